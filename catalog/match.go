package catalog

// Match lists the active APIs that hold the host, sorted by name; the list is not to be changed. An exact name beats a
// wildcard: where an API has the exact name (an inactive one too), wildcards do not count. Empty means the host is
// closed or in no API; see Holds.
func (c *Catalog) Match(h Host) []*API {
	if c == nil || h.IsZero() {
		return nil
	}
	if exact, ok := c.byPattern[h.String()]; ok {
		return exact
	}
	return c.byPattern["*."+h.Parent()]
}

// Holds reports whether the host is, or may be, in any API: active, inactive, too broken to load, or beyond the number
// of APIs that are read. While the hosts of a broken API are unknown, that is every host. YOLO_MODE may open only hosts
// that are in none.
func (c *Catalog) Holds(h Host) bool {
	if c == nil || h.IsZero() {
		return false
	}
	if c.closed["*"] != "" {
		return true
	}
	for _, pattern := range []string{h.String(), "*." + h.Parent()} {
		if _, ok := c.byPattern[pattern]; ok || c.closed[pattern] != "" {
			return true
		}
	}
	return false
}

// API is the API of that name, inactive ones included, or nil.
func (c *Catalog) API(name string) *API {
	if c == nil {
		return nil
	}
	return c.byName[name]
}

// AllCredentials lists every credential of every API, those of inactive APIs too, sorted by API and name.
func (c *Catalog) AllCredentials() []Credential {
	if c == nil {
		return nil
	}
	var all []Credential
	for _, a := range c.apis {
		all = append(all, a.Credentials...)
	}
	return all
}

// index compiles the lookups. It is the last step of a load.
func (c *Catalog) index() {
	c.byName, c.byPattern = map[string]*API{}, map[string][]*API{}
	for _, a := range c.apis {
		c.byName[a.Name] = a
		for _, p := range a.Hosts {
			list := c.byPattern[p.String()]
			if a.Active {
				list = append(list, a)
			}
			c.byPattern[p.String()] = list
		}
	}
}

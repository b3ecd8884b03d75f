package catalog

import (
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/secret"
)

// ListHolders lists the active APIs that include the host at its port, sorted by name. The caller must not change the
// list. An exact name beats a wildcard: if any API has the exact name, even an inactive one, wildcards do not count. An
// empty list means that the host is closed or in no API; see Holds.
func (c *Catalog) ListHolders(h Host) []*API {
	if c == nil || h.IsZero() {
		return nil
	}
	// An exact name is more specific, even if its API is inactive: a wildcard must not open its host.
	if exact, ok := c.byPattern[keyOf(h)]; ok {
		return exact
	}
	return c.byPattern[keyOf(h.WildcardPattern())]
}

// keyOf returns the key in byPattern of a host or a pattern: its name and its port.
func keyOf[P interface {
	Name() string
	String() string
}](p P) string {
	//defence:host-port instead p.Name()
	return p.String()
}

// MayHold reports whether the host is, or may be, in any API, at any port. It also counts inactive APIs, APIs that
// cannot be loaded, and folders beyond the limit. While the hosts of such an API are unknown, Holds is true for every
// host. YOLO_MODE may open only hosts for which Holds is false.
func (c *Catalog) MayHold(h Host) bool {
	if c == nil || h.IsZero() {
		return false
	}
	return c.closed["*"] != "" || c.named[h.Name()] || c.named["*."+h.Parent()]
}

// NearestHost returns the pattern of an active API that a misspelt host most likely means, or "". It accepts at most
// three slips.
func (c *Catalog) NearestHost(h Host) string {
	if c == nil {
		return ""
	}
	const slips = 3
	if i := c.names.NearestIndex(h.Name(), slips); i >= 0 {
		return c.patterns[i].String()
	}
	return ""
}

// OtherPorts lists the patterns by which active APIs have the host's name at other ports. The default ports come first.
func (c *Catalog) OtherPorts(h Host) []HostPattern {
	if c == nil || h.IsZero() || !c.MayHold(h) {
		return nil
	}
	var out []HostPattern
	for _, port := range append([]uint16{0}, c.ports...) {
		at := h.AtPort(port)
		// Only other ports help the user.
		if at == h || len(c.ListHolders(at)) == 0 {
			continue
		}
		p := at.WildcardPattern()
		if _, ok := c.byPattern[keyOf(at)]; ok {
			p = at.ExactPattern()
		}
		out = append(out, p)
	}
	return out
}

// ListPorts lists the ports of active APIs besides 443 and 80, in order. The caller must not change the list.
func (c *Catalog) ListPorts() []uint16 {
	if c == nil {
		return nil
	}
	return c.ports
}

// API returns the API with this name, also an inactive one, or nil.
func (c *Catalog) API(name string) *API {
	if c == nil {
		return nil
	}
	return c.byName[name]
}

// AllCredentials lists the credentials of every API, also of inactive ones, sorted by API and name.
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

// AllSecrets lists everything that must be scrubbed, as credentials named by their replacement. Values come first,
// under their token names. Secrets inside minted credentials and keys of client certificates follow, under a mask. A
// token name must not replace such a secret: if code sent it back, the proxy would swap the name.
func (c *Catalog) AllSecrets() []Credential {
	var values, inner []Credential
	masked := func(secrets []secret.Value) {
		for _, s := range secrets {
			inner = append(inner, Credential{Name: secret.Mask, Value: s})
		}
	}
	for _, cr := range c.AllCredentials() {
		if !cr.Value.IsEmpty() {
			values = append(values, Credential{Name: cr.Name, Value: cr.Value})
		}
		if cr.Mint != nil {
			masked(slices.DeleteFunc(cr.Mint.Secrets(), secret.Value.IsEmpty))
		}
	}
	for _, a := range c.APIs() {
		if a.ClientCert != nil {
			masked(keyLines(a.ClientCert.Key))
		}
	}
	return append(values, inner...)
}

// HasMint reports whether the proxy obtains any credential of this catalog.
func (c *Catalog) HasMint() bool {
	return slices.ContainsFunc(c.AllCredentials(), func(cr Credential) bool { return cr.Mint != nil })
}

// buildIndex compiles the lookups. It is the last step of a load.
func (c *Catalog) buildIndex() {
	c.byName, c.byPattern, c.named = map[string]*API{}, map[string][]*API{}, map[string]bool{}
	for pattern := range c.closed {
		name, _, _ := strings.Cut(pattern, ":")
		c.named[name] = true
	}
	for _, a := range c.apis {
		c.byName[a.Name] = a
		for _, p := range a.Hosts {
			// Inactive APIs count, too: YOLO_MODE must not open their hosts.
			c.named[p.Name()] = true
			if a.Active {
				c.patterns = append(c.patterns, p)
				c.names.AddName(p.Name())
			}
			// Only the proxy itself uses an internal API.
			open := a.Active && !a.Internal
			if port := p.Port(); port != 0 && open {
				c.ports = append(c.ports, port)
			}
			list := c.byPattern[keyOf(p)]
			if open {
				list = append(list, a)
			}
			c.byPattern[keyOf(p)] = list
		}
	}
	slices.Sort(c.ports)
	c.ports = slices.Compact(c.ports)
}

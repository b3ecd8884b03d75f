package policy

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// RegistryName is the name of the package registry on receipts and in logs. No API can have this name.
const RegistryName = "$registry"

// NewRegistry returns the package registry as an API without credentials, which only the proxy knows. It returns nil
// for a nil address, or one without a host name. private lists the ranges that its name may resolve to.
func NewRegistry(address *url.URL, private []netip.Prefix) *catalog.API {
	if address == nil {
		return nil
	}
	host, err := catalog.ParseHost(address.Hostname())
	if err != nil {
		return nil
	}
	pattern, err := catalog.ParseHostPattern(host.String())
	if err != nil {
		return nil
	}
	return &catalog.API{
		Name: RegistryName, Hosts: []catalog.HostPattern{pattern}, AllowPrivate: private, Active: true,
		Methods: catalog.Methods{Allowed: []string{http.MethodGet, http.MethodHead}},
	}
}

// MergeRegistries returns the registry of the settings, which may be nil, together with the registries that active
// MCP servers and the packages for code name.
func MergeRegistries(set *catalog.API, private []netip.Prefix, c *catalog.Catalog) *catalog.API {
	var addresses []string
	for _, a := range c.APIs() {
		if a.Active && a.Server != nil {
			addresses = append(addresses, a.Server.Registry)
			for _, host := range a.Server.RegistryHosts {
				addresses = append(addresses, "https://"+host)
			}
		}
	}
	packages := c.Packages()
	for _, host := range packages.IndexHosts {
		addresses = append(addresses, "https://"+host)
	}
	for _, text := range append(addresses, packages.Registry, packages.Index) {
		address, _ := url.Parse(text) // the catalog rejects an address with a mistake
		switch named := NewRegistry(address, private); {
		case named == nil:
		case set == nil:
			set = named
		default:
			// The caller keeps set for the next catalog, so extend a copy.
			all := *set
			all.Hosts = slices.Concat(set.Hosts, named.Hosts)
			set = &all
		}
	}
	return set
}

func (r Rules) isRegistry(h catalog.Host) bool {
	return r.Registry != nil && slices.ContainsFunc(r.Registry.Hosts, func(p catalog.HostPattern) bool {
		return p.String() == h.String()
	})
}

// decideInstall judges a request of an installation, which may only read from the registry. Even if APIs hold the host,
// it gets no credential.
func (r Rules) decideInstall(q Request, holders []*catalog.API) Verdict {
	if !r.isRegistry(q.Host) || !q.TLS {
		return buildRefusal(CodeHostNotRegistry, q.Host, "")
	}
	registry := []*catalog.API{r.Registry}
	if q.Upgrade != "" || len(q.Methods) == 0 {
		return buildRefusal(CodeUpgradeRefused, q.Host, "")
	}
	for _, m := range q.Methods {
		if v, ok := checkMethod(m, q.Host, registry); !ok {
			return v
		}
	}
	//defence:install-credential instead Verdict{Allow: true, APIs: append(registry, holders...)}
	return Verdict{Allow: true, APIs: registry}
}

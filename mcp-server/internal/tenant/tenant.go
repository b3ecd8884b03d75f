// Package tenant defines the rights of one of several clients of this server.
//
// A tenant has a separate surface, sessions, library and skills, which cmd/mcp-server creates. The shared parts (the
// executor, the queue and the broker) distinguish tenants by this package. A nil Tenant is the operator, who may use
// everything.
package tenant

import (
	"errors"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog/tokenfile"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/queue"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// Tenant is one tenant. It is immutable.
type Tenant struct {
	tokenfile.Tenant
	// Share is the tenant's part of the slots.
	Share *queue.Share
}

// ErrNotYours means that a run names only APIs that its tenant may not use.
var ErrNotYours = errors.New("the tenant may not use any of the APIs that the run is narrowed to")

// NarrowAPIs narrows a list of APIs to those that the tenant may use. An empty list means all. closed means that the
// run may not learn about others. The result is empty only if the tenant may use all.
func (t *Tenant) NarrowAPIs(apis []string) (narrow []string, closed bool, err error) {
	// A nil list allows all APIs.
	//defence:tenant-apis permits
	if t == nil || t.APIs == nil {
		return apis, false, nil
	}
	if len(apis) == 0 {
		// Not an empty list, which would mean all APIs.
		return t.APIs, true, nil
	}
	own := slices.DeleteFunc(slices.Clone(apis), func(name string) bool { return !t.CanUseAPI(name) })
	if len(own) == 0 {
		return nil, true, ErrNotYours
	}
	return own, true, nil
}

// NarrowCatalog returns the catalog in the tenant's view: its APIs, without the mistakes in others' APIs.
func (t *Tenant) NarrowCatalog(c proxyapi.Catalog) proxyapi.Catalog {
	//defence:tenant-apis permits
	if t == nil {
		return c
	}
	// Problems name APIs, and the tenant must not learn about others'.
	c.Problems = nil
	c.APIs = slices.DeleteFunc(slices.Clone(c.APIs), func(a proxyapi.API) bool { return !t.CanUseAPI(a.Name) })
	return c
}

// mark is the start of a tenant's session name. Other session names never start with it.
const mark = "@"

// SessionName returns the name of a tenant's session, in the form that all parts of the server use.
func (t *Tenant) SessionName(session string) string {
	//defence:tenant-sessions permits
	if t == nil {
		return session
	}
	return mark + t.Name + " " + session
}

// TenantOf returns the name of the tenant that a session belongs to, or "" for the operator.
func TenantOf(session string) string {
	name, _, _ := strings.Cut(session, " ")
	own, _ := strings.CutPrefix(name, mark)
	if own == name {
		return ""
	}
	return own
}

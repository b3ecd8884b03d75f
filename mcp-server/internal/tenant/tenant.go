// Package tenant is what one of several clients of this server may use.
//
// A tenant has its own surface, sessions, library and skills (cmd/mcp-server makes them); what all share, the executor,
// the queue and the broker, tells tenants apart by what is here. The nil Tenant is the operator, who may use all.
package tenant

import (
	"errors"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog/tokenfile"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/queue"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// Tenant is one tenant. It is immutable.
type Tenant struct {
	tokenfile.Tenant
	// Share is its part of the slots.
	Share *queue.Share
}

// ErrNotYours means that a run names only APIs that its tenant may not use.
var ErrNotYours = errors.New("the tenant may use none of the APIs that the run is narrowed to")

// Narrow narrows a list of APIs, of which the empty one stands for all, to those that the tenant may use. Closed says
// that the run may not learn of others. The list is empty only where the tenant may use all.
func (t *Tenant) Narrow(apis []string) (narrow []string, closed bool, err error) {
	//defence:tenant-apis permits
	if t == nil || t.APIs == nil {
		return apis, false, nil
	}
	if len(apis) == 0 {
		return t.APIs, true, nil
	}
	own := slices.DeleteFunc(slices.Clone(apis), func(name string) bool { return !t.MayUse(name) })
	if len(own) == 0 {
		return nil, true, ErrNotYours
	}
	return own, true, nil
}

// View is the catalog as the tenant sees it: its APIs, and no mistake in those of others.
func (t *Tenant) View(c controlapi.Catalog) controlapi.Catalog {
	//defence:tenant-apis permits
	if t == nil {
		return c
	}
	c.Problems = nil
	c.APIs = slices.DeleteFunc(slices.Clone(c.APIs), func(a controlapi.API) bool { return !t.MayUse(a.Name) })
	return c
}

// mark begins the name of a session that is a tenant's. No other session's begins with it.
const mark = "@"

// Session is the name of one of the tenant's sessions, as all parts of the server know it.
func (t *Tenant) Session(session string) string {
	//defence:tenant-sessions permits
	if t == nil {
		return session
	}
	return mark + t.Name + " " + session
}

// Of is the name of the tenant whose session it is, or empty: it is the operator's.
func Of(session string) string {
	name, _, _ := strings.Cut(session, " ")
	own, _ := strings.CutPrefix(name, mark)
	if own == name {
		return ""
	}
	return own
}

package approval

import (
	"crypto/sha256"
	"io"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/formdata"
)

// Request is a request to hold. Its approval covers the exact bytes of method, host, path, query, headers and body.
// Only the boundary between a body's parts, which differs each time, may change. The approval is also for the tenant,
// the MCP server and the rule of the request, and lets at most one request leave. A wider approval is for one run and
// ends with that run.
type Request struct {
	// HeldRequest is the request as a person sees it. The store sets its ID, Operator and times, and the fields that a
	// decision changes.
	approvalapi.HeldRequest
	// Generation is the generation of the lease for which maxOfRun counts requests: the run's lease, or the MCP server's
	// if the request belongs to no run.
	Generation uint64
	// Ended is closed when the run ends, which ends the approvals for the rest of the run. It is nil if the request
	// belongs to no run.
	Ended <-chan struct{}
	// Pauses are further runs that may have caused the request. ListWaiting lists the request for them too.
	Pauses []string
	// OtherPath means that a header names another path: see policy.HasOtherPath.
	OtherPath bool
	// Host is the host of the request. IsCall means that the request calls a tool of the MCP server API.
	Host   catalog.Host
	IsCall bool
	// Catalog is the version of all APIs that decide about the request: see SetVersions. RuleCatalog is the version of
	// those whose rules hold it.
	Catalog, RuleCatalog string
	// ByAny means that others than the operator may decide. The catalog determines it.
	ByAny bool
}

// SetVersions sets Catalog and RuleCatalog to the versions in a catalog. It reports whether Catalog stayed the same.
func (r *Request) SetVersions(c *catalog.Catalog) (same bool) {
	before := r.Catalog
	r.Catalog, r.RuleCatalog = r.versionIn(c), ruleVersionIn(c, r.API)
	return r.Catalog == before
}

// versionIn returns the version of the APIs that decide about the request under a catalog.
func (r Request) versionIn(c *catalog.Catalog) string {
	if r.IsCall {
		return ruleVersionIn(c, r.API)
	}
	return catalog.VersionOf(c.ListHolders(r.Host))
}

// ruleVersionIn returns the version of APIs in a catalog. The names are joined as in policy.Hold.
func ruleVersionIn(c *catalog.Catalog, names string) string {
	var apis []*catalog.API
	for _, name := range strings.Split(names, ", ") {
		if a := c.API(name); a != nil {
			apis = append(apis, a)
		}
	}
	return catalog.VersionOf(apis)
}

// memorySize returns about how many bytes the request takes in memory.
func (r Request) memorySize() int {
	n := len(r.URL) + len(r.Body)
	for _, h := range r.Headers {
		n += len(h)
	}
	return n
}

// hashScope identifies the parts of a request that an approval with a scope covers.
func (r Request) hashScope(scope approvalapi.Scope) [sha256.Size]byte {
	parts := []string{string(scope), r.Tenant, r.Server, r.API, r.Rule, strconv.FormatBool(r.ByAny)}
	if scope.IsWide() {
		parts = append(parts, r.Run, strconv.FormatUint(r.Generation, 10), r.RuleCatalog)
	}
	switch scope {
	case approvalapi.ScopeOnce:
		// fetch() chooses a new boundary each time: without StripBoundary no late approval would match.
		headers, body := formdata.StripBoundary(r.Headers, r.Body)
		parts = append(parts, r.Catalog, r.Method, r.URL, strings.Join(headers, "\n"), body)
	case approvalapi.ScopePath:
		address, _, _ := strings.Cut(r.URL, "?")
		parts = append(parts, r.Method, address)
		//defence:approval-path
		if r.OtherPath { // a server may act on that path, so the approval covers only the same headers
			parts = append(parts, r.Headers...)
		}
	}
	h := sha256.New()
	WriteParts(h, parts...)
	return [sha256.Size]byte(h.Sum(nil))
}

// WriteParts writes texts, each with its length, so that text cannot move from one part to the next.
func WriteParts(w io.Writer, parts ...string) {
	for _, s := range parts {
		_, _ = io.WriteString(w, strconv.Itoa(len(s))+":"+s) // a hash takes all
	}
}

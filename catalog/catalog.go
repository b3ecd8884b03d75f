// Package catalog loads and validates apis/<name>/config.json, and finds the APIs that a host belongs to.
//
// A Catalog is the immutable set of all valid APIs of one load. It holds credentials, so it stays in the proxy's
// memory; other parts get only the public catalog of proxy/controlapi.
package catalog

import (
	"net/netip"
	"slices"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/typo"
)

// Catalog is the validated, immutable set of APIs. The nil Catalog holds none.
type Catalog struct {
	version string
	apis    []*API // sorted by name
	byName  map[string]*API
	// byPattern maps each host pattern, as config.json writes it, to its active APIs. A pattern that only inactive APIs
	// have maps to an empty list.
	byPattern map[string][]*API
	// patterns are those of active APIs, and names the names of their hosts, for Nearest.
	patterns []HostPattern
	names    typo.Names
	// closed maps the host patterns of APIs that cannot be loaded to the API's name. "*" is there while the hosts of such
	// an API are unknown.
	closed map[string]string
	// named has the patterns of byPattern and closed, without their ports.
	named map[string]bool
	// ports are those of active APIs besides 443 and 80, sorted.
	ports []uint16
}

// API is one folder apis/<name>/. An API whose content did not change between two loads keeps its pointer.
type API struct {
	Name        string
	Description string
	Reference   string
	Hosts       []HostPattern
	Credentials []Credential
	Methods     Methods
	// Rules decide on each request that the methods permit: the first that matches, and none refuses. Nil means none.
	Rules []Rule
	// ToolRules decide in the same way on calls of the tools of Server. Nil means none.
	ToolRules []Rule
	// Limits bound what all runs together may do with the API. Nil means that nothing does.
	Limits *Limits
	// Idempotency is the header by which the API knows a repeated request. Empty: none.
	Idempotency string
	// Active is false for an API that is configured but inactive: its hosts are closed, its credentials scrubbed.
	Active bool
	// AllowHTTP lets credentials go over plain HTTP to this API's hosts.
	AllowHTTP bool
	// Compress lets this API's hosts compress their responses.
	Compress bool
	// KeepETag keeps the ETag of responses. An ETag can be the digest of a body that shows a credential.
	KeepETag bool
	// MessageFraming lets each message of a stream leave the proxy when it is complete.
	MessageFraming bool
	// AllowPrivate lists the private ranges this API's hosts may resolve to. Empty: none.
	AllowPrivate []netip.Prefix
	// CAs is PEM of additional certificate authorities for this API's hosts. Empty: the system's.
	CAs []byte
	// Types is types.d.ts, and OperationsFile is operations.jsonl. Nil means none.
	Types, OperationsFile *Document
	// Server is set when the API is an MCP server.
	Server *Server
	// Internal closes the hosts to code: only what obtains credentials uses the API. No list for code or models has it.
	Internal bool
	// ClientCert authenticates the proxy at the hosts. Nil means none.
	ClientCert *ClientCert
	// Operations is set when the API's folder has an operations.jsonl that codeforge api add wrote.
	Operations *Operations
	// Only, when not nil, is all that requests to the hosts may be ("only" of operations).
	Only *operation.Routes
	// Queries has the rule that matches GraphQL queries at the endpoint of an imported schema. It neither allows nor
	// refuses: it shows that a request only reads. Nil: the API's document is not a schema of GraphQL.
	Queries []Rule
	// Stale says why the folder's current content could not be loaded, if this is an earlier version of it.
	Stale string
	// LoadedAt is when this version was read.
	LoadedAt time.Time

	digest digest
}

// Scheme is how to reach one of the API's hosts if nothing else is known: "http" where the API allows it at a port of
// its own, which is rarely that of TLS, and else "https".
func (a *API) Scheme(h HostPattern) string {
	if a.AllowHTTP && h.Port() != 0 {
		return "http"
	}
	return "https"
}

// Credential is one token name with its value and the surfaces on which it may be swapped.
type Credential struct {
	Name     string
	Value    secret.Value
	Surfaces []Surface
	// Placeholder is swapped like Name, and contains it. It is empty if there is none.
	Placeholder string
	// Mint is how the proxy obtains the value. Nil means that Value is it; otherwise Value is empty.
	Mint Mint
}

// SurfaceKind is where in a request a token name may be swapped.
type SurfaceKind uint8

// The surfaces. The zero kind is none: nothing is swapped there.
const (
	SurfaceNone   SurfaceKind = iota
	SurfaceHeader             // "header" (default) or "header:Name"
	SurfaceQuery              // "query:name", or "query" for any parameter
	SurfacePath               // "path": one whole path segment
	SurfaceBody               // "body:field", or "body" for anywhere in the body
)

// Surface is one entry of a credential's "in". Field is the header's, parameter's or body field's name; empty means
// any.
type Surface struct {
	Kind  SurfaceKind
	Field string
}

// Methods holds restricted_methods or allowed_methods. The zero value restricts nothing.
type Methods struct {
	// Restricted methods are refused. Upper case, sorted.
	Restricted []string
	// Allowed, when not nil, is the only set of methods that passes. Upper case, sorted.
	Allowed []string
}

// Of is a catalog to look APIs up in by name, for a process that was told of them and loaded nothing. The APIs are
// sorted by name. It finds none by host.
func Of(apis []*API) *Catalog {
	c := &Catalog{apis: apis, byName: map[string]*API{}}
	for _, a := range apis {
		c.byName[a.Name] = a
	}
	return c
}

// Version identifies the content of the catalog. It changes with everything that matters to a run.
func (c *Catalog) Version() string {
	if c == nil {
		return ""
	}
	return c.version
}

// Unread reports whether a Load with Options.Soon left something for another one.
func (c *Catalog) Unread() bool {
	return slices.ContainsFunc(c.APIs(), func(a *API) bool { return a.OperationsFile.Unread() })
}

// APIs lists every valid API, sorted by name, inactive ones included.
func (c *Catalog) APIs() []*API {
	if c == nil {
		return nil
	}
	return c.apis
}

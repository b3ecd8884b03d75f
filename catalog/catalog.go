// Package catalog loads and validates apis/<name>/config.json, and finds the APIs that include a host.
//
// A Catalog is the immutable set of all valid APIs of one load. It contains credentials, so only the proxy has it in
// memory. Other parts get only the public catalog of proxy/proxyapi.
package catalog

import (
	"net/netip"
	"slices"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/typo"
)

// Catalog is the validated, immutable set of APIs. A nil *Catalog has no APIs.
type Catalog struct {
	version string
	apis    []*API // sorted by name
	byName  map[string]*API
	// byPattern maps each host pattern, as in config.json, to its active APIs. A pattern of only inactive APIs maps to an
	// empty list.
	byPattern map[string][]*API
	// patterns are the host patterns of active APIs, and names their host names, for NearestHost.
	patterns []HostPattern
	names    typo.NameIndex
	// closed maps the host patterns of an API that cannot be loaded to the name of the API. The pattern "*" means that the
	// hosts of such an API are unknown.
	closed map[string]string
	// named contains the patterns of byPattern and closed, without their ports.
	named map[string]bool
	// ports are the ports of active APIs other than 443 and 80, sorted.
	ports    []uint16
	packages Packages
}

// API is one folder apis/<name>/. An API whose content did not change between two loads keeps its pointer.
type API struct {
	Name        string
	Description string
	Reference   string
	Hosts       []HostPattern
	Credentials []Credential
	Methods     Methods
	// Rules decide on each request that the methods permit. The first rule that matches wins; if no rule matches, the
	// request is refused. Nil means no rules.
	Rules []Rule
	// ToolRules decide in the same way on calls of the tools of Server. Nil means no rules.
	ToolRules []Rule
	// Limits bound the requests of all runs together. Nil means no limits.
	Limits *Limits
	// Idempotency is the header by which the API recognises a repeated request, or "".
	Idempotency string
	// Active is false for an inactive API: its hosts are closed, and its credentials are still scrubbed.
	Active bool
	// AllowHTTP allows credentials over plain HTTP to this API's hosts.
	AllowHTTP bool
	// Compress allows this API's hosts to compress their responses.
	Compress bool
	// KeepETag keeps the ETag of responses. An ETag can be the digest of a body that contains a credential.
	KeepETag bool
	// MessageFraming lets each message of a stream leave the proxy once it is complete.
	MessageFraming bool
	// AllowPrivate lists the private ranges to which this API's hosts may resolve.
	AllowPrivate []netip.Prefix
	// CAs are additional certificate authorities for this API's hosts, in PEM. Empty means only those of the system.
	CAs []byte
	// Types is the file types.d.ts, and OperationsFile is operations.jsonl. Nil means that the file does not exist.
	Types, OperationsFile *Document
	// Server is set if the API is an MCP server.
	Server *mcpserver.Settings
	// ServerHost is the host of Server's URL if domains does not name it. Code reaches this host only through the server's
	// tools. Otherwise code could talk to the server directly, without Allow, Deny and ExclusiveWith.
	ServerHost string
	// Internal closes the hosts to code: only the proxy uses the API, to obtain credentials. The API is in no list for
	// code or models.
	Internal bool
	// ClientCert authenticates the proxy at the hosts. Nil means no certificate.
	ClientCert *ClientCert
	// Operations is set if the API's folder has an operations.jsonl that codeforge api add wrote.
	Operations *Operations
	// Only, if not nil, lists the only requests that are allowed to the hosts ("only" of operations).
	Only *operation.Routes
	// Queries has the rule that matches GraphQL queries at the endpoint of an imported schema. The rule shows that a
	// request only reads; it neither allows nor refuses a request. It is nil if the API's document is not a GraphQL
	// schema.
	Queries []Rule
	// Stale is the reason why the folder's current content could not be loaded, if this API is an earlier version of the
	// folder.
	Stale string

	digest apiDigest
}

// Scheme returns the scheme for one of the API's hosts if the caller knows no other. It is "http" if the API allows it
// and h has a port, because a special port rarely uses TLS. Otherwise it is "https".
func (a *API) Scheme(h HostPattern) string {
	if a.AllowHTTP && h.Port() != 0 {
		return "http"
	}
	return "https"
}

// Credential is one token name, with its value and the surfaces on which it may be swapped.
type Credential struct {
	Name     string
	Value    secret.Value
	Surfaces []Surface
	// Placeholder contains Name and is swapped like it. It may be empty.
	Placeholder string
	// Variable is a second environment variable, besides Name, in which code finds the token name. It may be empty.
	Variable string
	// Mint describes how the proxy obtains the value; Value is then empty. Nil means that Value is the value.
	Mint Mint
}

// SurfaceKind is the part of a request in which a token name may be swapped.
type SurfaceKind uint8

// The surfaces. On the zero kind a name is never swapped.
const (
	SurfaceNone   SurfaceKind = iota
	SurfaceHeader             // "header" (default) or "header:Name"
	SurfaceQuery              // "query:name", or "query" for any parameter
	SurfacePath               // "path": one whole path segment
	SurfaceBody               // "body:field", or "body" for anywhere in the body
	SurfaceCookie             // "cookie:name": the value of this cookie
)

// Surface is one entry of a credential's "in". Field is the name of the header, parameter, body field or cookie. An
// empty Field means any. A cookie always has a name.
type Surface struct {
	Kind  SurfaceKind
	Field string
}

// Methods are restricted_methods or allowed_methods. The zero value allows every method.
type Methods struct {
	// Restricted are the refused methods, in upper case and sorted.
	Restricted []string
	// Allowed, if not nil, are the only allowed methods, in upper case and sorted.
	Allowed []string
}

// NewNamesOnly returns a catalog that finds APIs only by name, for a process that has loaded no files. apis must be
// sorted by name.
func NewNamesOnly(apis []*API) *Catalog {
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

// HasUnread reports whether a Load with Options.Soon has left a file for the next Load.
func (c *Catalog) HasUnread() bool {
	return slices.ContainsFunc(c.APIs(), func(a *API) bool { return a.OperationsFile.IsUnread() })
}

// APIs lists every valid API, also inactive ones, sorted by name.
func (c *Catalog) APIs() []*API {
	if c == nil {
		return nil
	}
	return c.apis
}

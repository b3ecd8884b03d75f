package policy

import (
	"net/http"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// otherPaths are parts of the names of headers with the path of a second object.
var otherPaths = []string{
	"copy-source", "move-source", "rename-source", "symlink-target", "copy-from", "object-manifest", "versions-location",
	"history-location",
}

// HasOtherPath reports whether a header names a path beside the request's. Servers, frameworks and proxies use some
// of these paths instead, for example X-Original-URL. From or to others, a server copies, moves or reads an object:
// X-Amz-Copy-Source and its like in object stores, X-Symlink-Target in Swift and OSS, Destination in WebDAV. The last
// four of otherPaths belong to Swift.
func HasOtherPath(h http.Header) bool {
	for name := range h {
		name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
		names := func(words ...string) bool {
			return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(name, w) })
		}
		if names("url", "uri", "path", "prefix", "script") &&
			names("original", "rewrit", "overrid", "forward", "real", "http", "script") ||
			name == "destination" || names(otherPaths...) {
			return true
		}
	}
	return false
}

// hasLineBreak reports whether a path has a line break, however often it is escaped. A server that forwards a decoded
// path, as nginx does with $uri, ends the head there. The rest of the path then becomes another head, with the rest of
// this request as its body, or another request.
func hasLineBreak(escaped string) bool {
	// Each round removes one layer of escapes.
	for range 4 {
		if strings.ContainsAny(escaped, "\r\n") {
			return true
		}
		escaped = decodeEscapes(escaped)
	}
	return false
}

// checkOperation judges one method, from the request line or an override, on the request's path. It asks every API of
// the host that permits only the operations of its document.
func checkOperation(method string, q Request, holders []*catalog.API) (Verdict, bool) {
	m := strings.ToUpper(strings.TrimSpace(method))
	for _, a := range holders {
		//defence:operations permits
		if a.Only == nil || a.Only.Allows(q.Host.String(), m, q.Path) {
			continue
		}
		v := buildRefusal(CodeOperationUnknown, q.Host, a.Name)
		if near := a.Only.NearestOperation(m, q.Path); near != "" {
			v = v.extendHint("", " The nearest is "+near+".")
		}
		return v, false
	}
	return Verdict{}, true
}

package apidoc

import (
	"net/url"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
)

// ExplainMiss explains a request that failed with an error status, from the document, or returns "". The request is
// given by method and URL.
func (d *Document) ExplainMiss(method, address string, status int) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	path, under := d.pathInDocument(u)
	if path == "" || d.Head.GraphQL {
		return ""
	}
	others := []string{}
	for i := range d.OperationCount() {
		m, template, _ := strings.Cut(d.OperationKey(i), " ")
		if !under || !operation.MatchesTemplate(template, path) {
			continue
		}
		if m == method {
			// Other errors do not mean that the input was wrong.
			if status != 400 && status != 422 {
				return "" // the operation is right, and the thing does not exist
			}
			return d.OperationKey(i) + " of " + d.Name + " takes other input: list_apis with \"operation\": \"" +
				d.OperationKey(i) +
				"\" shows which."
		}
		if !slices.Contains(others, m) {
			others = append(others, m)
		}
	}
	asked := method + " " + showPath(path)
	if len(others) > 0 {
		return asked + " is no operation of " + d.Name + ", but " + strings.Join(others, " and ") + " is."
	}
	near := operation.NearestKey(method, path, d.OperationCount(), d.OperationKey)
	switch {
	case near == "":
		return asked + " is no operation of " + d.Name + ": list_apis with query finds one."
	case !under:
		return asked + " is no operation of " + d.Name + "; nearest: " + near + " at " + d.Head.Server + "."
	}
	return asked + " is no operation of " + d.Name + "; nearest: " + near + "."
}

func showPath(path string) string {
	if len(path) > 120 {
		return path[:120] + "…"
	}
	return path
}

// pathInDocument returns a request's path in the form of the document's operations, or "" for another host. under
// reports whether the path is below the document's server. If not, the result is the whole path.
func (d *Document) pathInDocument(u *url.URL) (path string, under bool) {
	base, err := url.Parse(d.Head.Server)
	if err != nil || !strings.EqualFold(u.Host, base.Host) {
		return "", false
	}
	path, under = strings.CutPrefix(u.EscapedPath(), strings.TrimSuffix(base.EscapedPath(), "/"))
	// A prefix must end at a segment: /v1 is not above /v10.
	if !strings.HasPrefix(path, "/") {
		return u.EscapedPath(), false
	}
	return path, under
}

package swap

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/multisearch"
)

// swapHeaders swaps token names in all headers, Authorization first.
func (x *requestRewrite) swapHeaders() error {
	names := slices.Sorted(maps.Keys(x.req.Header))
	// Each surface swaps a name once, and a surface without a field covers every header. Authorization comes first.
	if i := slices.Index(names, "Authorization"); i > 0 {
		names = slices.Insert(slices.Delete(names, i, i+1), 0, "Authorization")
	}
	for _, name := range names {
		values, rewrite := x.req.Header[name], x.swapHeader
		// Servers log, store or hand on the value of a sink header.
		//defence:sink-headers
		if catalog.IsSinkHeader(name) {
			rewrite = x.swapSinkHeader
		}
		for i, v := range values {
			before := x.report.countSwaps()
			text, err := rewrite(name, v)
			if err == nil && x.report.countSwaps() > before && x.isRepeated(name) {
				err = errTwice
			}
			if err != nil {
				return err
			}
			values[i] = text
		}
	}
	return nil
}

// isRepeated reports whether a header has two values, of which a server joins or picks one. It also counts headers
// whose names servers treat as the same.
func (x *requestRewrite) isRepeated(name string) bool {
	n := 0
	for other, values := range x.req.Header {
		if catalog.IsSameHeader(name, other) {
			n += len(values)
		}
	}
	//defence:one-reading
	return n > 1
}

func (x *requestRewrite) swapHeader(name, value string) (string, error) {
	// Servers ignore white space around a header's value (RFC 9110, section 5.5).
	trimmed := strings.TrimSpace(value)
	scheme, rest, _ := strings.Cut(trimmed, " ")
	rest = strings.TrimSpace(rest)
	authorization := http.CanonicalHeaderKey(name) == "Authorization"
	if authorization && strings.EqualFold(scheme, "basic") {
		text, err := x.swapBasic(rest)
		return scheme + " " + text, err
	}
	if !x.s.hasAnyName(value) {
		// A word like a misspelled token name is reported, so that the agent sees why the server rejects the request.
		if x.isDeclaredHeader(name) && (isTokenNameLike(trimmed) || isScheme(scheme) && isTokenNameLike(rest)) {
			x.report.addSeen(SeenName{"", "header", CodeUnknown})
		}
		return value, nil
	}
	at := requestSpot{catalog.SurfaceHeader, name, true}
	switch {
	case x.s.byText[trimmed] != "":
		if v, ok := x.useName(x.s.byText[trimmed], at); ok {
			return v, nil
		}
	case x.s.byText[rest] != "" && isScheme(scheme):
		if v, ok := x.useName(x.s.byText[rest], at); ok {
			return scheme + " " + v, nil
		}
	case authorization:
		return x.swapParameters(value)
	default:
		at.whole = false
		x.reportNames(value, CodeInside, at)
	}
	return value, nil
}

// isDeclaredHeader reports whether a credential of the exchange declares this header.
func (x *requestRewrite) isDeclaredHeader(header string) bool {
	return slices.ContainsFunc(x.o.Allowed, func(c catalog.Credential) bool {
		return slices.ContainsFunc(c.Surfaces, func(s catalog.Surface) bool {
			return s.Kind == catalog.SurfaceHeader &&
				(strings.EqualFold(s.Field, header) || s.Field == "" && strings.EqualFold(header, "Authorization"))
		})
	})
}

// isTokenNameLike reports whether a word looks like a token name: capitals joined by underscores, 5 to 64 bytes.
func isTokenNameLike(s string) bool {
	return len(s) >= 5 && len(s) <= 64 && s[0] >= 'A' && s[0] <= 'Z' && strings.Contains(s, "_") &&
		strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// isScheme reports whether a word may be an authentication scheme (RFC 9110, section 11.1: a token).
func isScheme(s string) bool {
	return s != "" && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:+") == ""
}

// swapPath swaps token names that are whole segments of the path.
func (x *requestRewrite) swapPath() error {
	u := x.req.URL
	escaped := u.EscapedPath()
	if !x.s.hasAnyName(escaped) {
		return nil
	}
	segments := strings.Split(escaped, "/")
	last := -1 // the last segment that was swapped
	for i, s := range segments {
		if x.s.byText[s] == "" {
			x.reportNames(s, CodeInside, requestSpot{kind: catalog.SurfacePath})
			continue
		}
		if v, ok := x.useName(x.s.byText[s], requestSpot{kind: catalog.SurfacePath, whole: true}); ok {
			segments[i], last = url.PathEscape(v), i
		}
	}
	if last < 0 {
		return nil
	}
	switch before := strings.Join(strings.Split(escaped, "/")[:last], "/"); {
	// A dot segment would move the credential to another segment on some servers.
	//defence:one-reading
	case !isPlainPath(escaped):
		return errPath
	//defence:one-reading
	case canBeginQuery(before, "?&;"):
		return errPathQuery
	}
	raw := strings.Join(segments, "/")
	if path, err := url.PathUnescape(raw); err == nil {
		u.Path, u.RawPath = path, raw
	}
	return nil
}

// isPlainPath reports whether every server resolves a path in the same way. Such a path has no dot segments,
// backslashes or control characters, even after it is decoded four times.
func isPlainPath(escaped string) bool {
	for range 4 {
		// A path may be decoded more than once: %252e becomes %2e, then a dot. %uXXXX is one more escape.
		if !utf8.ValidString(escaped) || strings.Contains(escaped, `\`) || strings.ContainsFunc(escaped, isControl) ||
			strings.Contains(strings.ToLower(escaped), "%u") {
			return false
		}
		for segment := range strings.SplitSeq(escaped, "/") {
			// A dot segment may have parameters, as in /..;x/.
			if segment, _, _ = strings.Cut(segment, ";"); segment == "." || segment == ".." {
				return false
			}
		}
		escaped = multisearch.UnescapePercent(escaped)
	}
	return true
}

// canBeginQuery reports whether a server may read the text after this path as a field of a query. nginx and Apache
// decode a path before they rewrite it, so an escaped question mark starts a query. A rewrite rule may also put the
// path into a query, where an ampersand separates fields.
func canBeginQuery(escaped, marks string) bool {
	for range 4 {
		if strings.ContainsAny(escaped, marks) {
			return true
		}
		escaped = multisearch.UnescapePercent(escaped)
	}
	return false
}

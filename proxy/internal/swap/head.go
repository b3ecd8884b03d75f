package swap

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// headers swaps in all headers, in Authorization first.
func (x *rewrite) headers() error {
	names := slices.Sorted(maps.Keys(x.req.Header))
	if i := slices.Index(names, "Authorization"); i > 0 {
		names = slices.Insert(slices.Delete(names, i, i+1), 0, "Authorization")
	}
	for _, name := range names {
		values := x.req.Header[name]
		for i, v := range values {
			//defence:sink-headers
			if catalog.SinkHeader(name) {
				x.reportNames(v, CodeSink, spot{kind: catalog.SurfaceHeader, field: name})
				continue
			}
			before := x.report.count()
			text, err := x.header(name, v)
			if err == nil && x.report.count() > before && x.twice(name) {
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

// twice reports whether a header has two values, which servers join or choose from, including those under a name that
// servers treat as the same.
func (x *rewrite) twice(name string) bool {
	n := 0
	for other, values := range x.req.Header {
		if catalog.SameHeader(name, other) {
			n += len(values)
		}
	}
	//defence:one-reading
	return n > 1
}

// header returns one value after swapping.
func (x *rewrite) header(name, value string) (string, error) {
	trimmed := strings.TrimSpace(value)
	scheme, rest, _ := strings.Cut(trimmed, " ")
	rest = strings.TrimSpace(rest)
	authorization := http.CanonicalHeaderKey(name) == "Authorization"
	if authorization && strings.EqualFold(scheme, "basic") {
		text, err := x.basic(rest)
		return scheme + " " + text, err
	}
	if !x.s.mentions(value) {
		if x.expected(name) && (likeName(trimmed) || isScheme(scheme) && likeName(rest)) {
			x.report.saw(Seen{"", "header", CodeUnknown})
		}
		return value, nil
	}
	at := spot{catalog.SurfaceHeader, name, true}
	switch {
	case x.s.byText[trimmed] != "":
		if v, ok := x.use(x.s.byText[trimmed], at); ok {
			return v, nil
		}
	case x.s.byText[rest] != "" && isScheme(scheme):
		if v, ok := x.use(x.s.byText[rest], at); ok {
			return scheme + " " + v, nil
		}
	case authorization:
		return x.parameters(value)
	default:
		at.whole = false
		x.reportNames(value, CodeInside, at)
	}
	return value, nil
}

// expected reports whether a token name belongs in a header.
func (x *rewrite) expected(header string) bool {
	return slices.ContainsFunc(x.o.Allowed, func(c catalog.Credential) bool {
		return slices.ContainsFunc(c.Surfaces, func(s catalog.Surface) bool {
			return s.Kind == catalog.SurfaceHeader &&
				(strings.EqualFold(s.Field, header) || s.Field == "" && strings.EqualFold(header, "Authorization"))
		})
	})
}

// likeName reports whether a word looks as if it were meant as a token name: capitals joined by underscores.
func likeName(s string) bool {
	return len(s) >= 5 && len(s) <= 64 && s[0] >= 'A' && s[0] <= 'Z' && strings.Contains(s, "_") &&
		strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// isScheme reports whether a word may be an authentication scheme (RFC 9110, 11.1: a token).
func isScheme(s string) bool {
	return s != "" && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:+") == ""
}

// path swaps whole segments of the path.
func (x *rewrite) path() error {
	u := x.req.URL
	escaped := u.EscapedPath()
	if !x.s.mentions(escaped) {
		return nil
	}
	segments := strings.Split(escaped, "/")
	last := -1 // the last that is swapped
	for i, s := range segments {
		if x.s.byText[s] == "" {
			x.reportNames(s, CodeInside, spot{kind: catalog.SurfacePath})
			continue
		}
		if v, ok := x.use(x.s.byText[s], spot{kind: catalog.SurfacePath, whole: true}); ok {
			segments[i], last = url.PathEscape(v), i
		}
	}
	if last < 0 {
		return nil
	}
	switch before := strings.Join(strings.Split(escaped, "/")[:last], "/"); {
	//defence:one-reading
	case !plainPath(escaped):
		return errPath
	//defence:one-reading
	case beginsQuery(before, "?&;"):
		return errPathQuery
	}
	raw := strings.Join(segments, "/")
	if path, err := url.PathUnescape(raw); err == nil {
		u.Path, u.RawPath = path, raw
	}
	return nil
}

// plainPath reports whether every server reads a path as the same one: it has no dot segments, backslashes or control
// characters, however often escaped.
func plainPath(escaped string) bool {
	for range 4 {
		if !utf8.ValidString(escaped) || strings.Contains(escaped, `\`) || strings.ContainsFunc(escaped, isControl) ||
			strings.Contains(strings.ToLower(escaped), "%u") {
			return false
		}
		for segment := range strings.SplitSeq(escaped, "/") {
			if segment, _, _ = strings.Cut(segment, ";"); segment == "." || segment == ".." {
				return false
			}
		}
		escaped = unescape(escaped)
	}
	return true
}

// beginsQuery reports whether a server may take what follows a path for a field of a query: nginx and Apache rewrite
// paths after decoding them, so that an escaped question mark becomes one, and an ampersand separates fields where a
// rule puts the path into a query.
func beginsQuery(escaped, marks string) bool {
	for range 4 {
		if strings.ContainsAny(escaped, marks) {
			return true
		}
		escaped = unescape(escaped)
	}
	return false
}

// unescape decodes the percent signs that are followed by two digits, and leaves the others.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]) {
			b.WriteByte(unhex(s[i+1])<<4 | unhex(s[i+2]))
			i += 2
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

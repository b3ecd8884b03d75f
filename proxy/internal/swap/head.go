package swap

import (
	"encoding/base64"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/catalog/disarm"
)

// headers swaps in all headers, Authorization first.
func (x *exchange) headers() {
	names := slices.Sorted(maps.Keys(x.req.Header))
	if i := slices.Index(names, "Authorization"); i > 0 {
		names = slices.Insert(slices.Delete(names, i, i+1), 0, "Authorization")
	}
	for _, name := range names {
		values := x.req.Header[name]
		for i, v := range values {
			if catalog.SinkHeader(name) && !disarm.Off("sink-headers") {
				x.look(v, CodeSink, spot{kind: catalog.SurfaceHeader, field: name})
				continue
			}
			values[i] = x.header(name, v)
		}
	}
}

// header is one value after swapping.
func (x *exchange) header(name, value string) string {
	trimmed := strings.TrimSpace(value)
	scheme, rest, _ := strings.Cut(trimmed, " ")
	rest = strings.TrimSpace(rest)
	authorization := http.CanonicalHeaderKey(name) == "Authorization"
	if authorization && strings.EqualFold(scheme, "basic") {
		return scheme + " " + x.basic(rest)
	}
	if !x.s.names.Contains(value) {
		if x.expected(name) && (likeName(trimmed) || isScheme(scheme) && likeName(rest)) {
			x.report.saw(Seen{"", "header", CodeUnknown})
		}
		return value
	}
	at := spot{catalog.SurfaceHeader, name, true}
	switch {
	case x.s.byName[trimmed]:
		if v, ok := x.use(trimmed, at); ok {
			return v
		}
	case x.s.byName[rest] && isScheme(scheme):
		if v, ok := x.use(rest, at); ok {
			return scheme + " " + v
		}
	case authorization:
		return x.parameters(value)
	default:
		at.whole = false
		x.look(value, CodeInside, at)
	}
	return value
}

// expected reports whether a header is one where a token name belongs.
func (x *exchange) expected(header string) bool {
	return slices.ContainsFunc(x.o.Allowed, func(c catalog.Credential) bool {
		return slices.ContainsFunc(c.Surfaces, func(s catalog.Surface) bool {
			return s.Kind == catalog.SurfaceHeader &&
				(strings.EqualFold(s.Field, header) || s.Field == "" && strings.EqualFold(header, "Authorization"))
		})
	})
}

// likeName reports whether a word looks like a token name that somebody meant: capitals joined by underscores.
func likeName(s string) bool {
	return len(s) >= 5 && len(s) <= 64 && s[0] >= 'A' && s[0] <= 'Z' && strings.Contains(s, "_") &&
		strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// isScheme reports whether a word may be an authentication scheme (RFC 9110, 11.1: a token).
func isScheme(s string) bool {
	return s != "" && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:+") == ""
}

var (
	inAuthorization    = spot{catalog.SurfaceHeader, "Authorization", false}
	wholeAuthorization = spot{catalog.SurfaceHeader, "Authorization", true}
)

// basic swaps the user, the password, or the two when one name stands for both. What needs no swap stays as it is.
func (x *exchange) basic(coded string) string {
	plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(coded, "="))
	if err != nil {
		return coded
	}
	swapped := false
	part := func(token string) string {
		if !x.s.byName[token] {
			x.look(token, CodeInside, inAuthorization)
			return token
		}
		v, ok := x.use(token, wholeAuthorization)
		if !ok {
			return token
		}
		swapped = true
		return v
	}
	user, password, colon := strings.Cut(string(plain), ":")
	text := part(user)
	if colon {
		text += ":" + part(password)
	}
	if !swapped {
		return coded
	}
	return base64.StdEncoding.EncodeToString([]byte(text))
}

// parameters swaps whole values of key=value parameters, quoted or not.
func (x *exchange) parameters(value string) string {
	var out strings.Builder
	for value != "" {
		eq := strings.IndexByte(value, '=')
		if eq < 0 {
			break
		}
		out.WriteString(value[:eq+1])
		x.look(value[:eq], CodeInside, inAuthorization)
		value = value[eq+1:]
		n, text, quoted := parameter(value)
		v, ok := "", false
		if x.s.byName[text] {
			v, ok = x.use(text, wholeAuthorization)
		} else {
			x.look(value[:n], CodeInside, inAuthorization)
		}
		if ok {
			out.WriteString(renderParameter(v, quoted))
		} else {
			out.WriteString(value[:n])
		}
		value = value[n:]
	}
	x.look(value, CodeInside, inAuthorization)
	out.WriteString(value)
	return out.String()
}

// parameter reads one value: how long it is as written, and what it says.
func parameter(s string) (n int, text string, quoted bool) {
	if !strings.HasPrefix(s, `"`) {
		n = strings.IndexAny(s, ", ;\t")
		if n < 0 {
			n = len(s)
		}
		return n, s[:n], false
	}
	for n = 1; n < len(s) && s[n] != '"'; n++ {
		if s[n] == '\\' {
			n++
		}
	}
	if n >= len(s) {
		return len(s), "", true
	}
	return n + 1, s[1:n], true
}

// renderParameter writes a value, in quotes where it had them or needs them.
func renderParameter(v string, quoted bool) string {
	if !quoted && !strings.ContainsAny(v, "\", ;\t\\") {
		return v
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v) + `"`
}

// path swaps whole segments.
func (x *exchange) path() {
	u := x.req.URL
	escaped := u.EscapedPath()
	if !x.s.names.Contains(escaped) {
		return
	}
	segments := strings.Split(escaped, "/")
	changed := false
	for i, s := range segments {
		if !x.s.byName[s] {
			x.look(s, CodeInside, spot{kind: catalog.SurfacePath})
			continue
		}
		if v, ok := x.use(s, spot{kind: catalog.SurfacePath, whole: true}); ok {
			segments[i] = url.PathEscape(v)
			changed = true
		}
	}
	if !changed {
		return
	}
	raw := strings.Join(segments, "/")
	if path, err := url.PathUnescape(raw); err == nil {
		u.Path, u.RawPath = path, raw
	}
}

// query swaps parameters' values.
func (x *exchange) query() {
	u := x.req.URL
	if !x.s.parts.Contains(u.RawQuery) {
		return
	}
	w := &formWriter{words: words{x: x}, kind: catalog.SurfaceQuery}
	u.RawQuery = string(w.finish(w.push(nil, []byte(u.RawQuery))))
}

package formdata

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// Type is a Content-Type that every server reads in the same way.
type Type struct {
	// Media is the media type in lower case, such as "multipart/form-data". It is empty without a Content-Type.
	Media  string
	params []param
	raw    string
}

// param is a parameter: the name in lower case, the value without quotes.
type param struct{ name, value string }

// ParseRequestType is ParseType for a request.
func ParseRequestType(h http.Header) (Type, error) {
	values := h["Content-Type"]
	for name, more := range h {
		if name != "Content-Type" && catalog.IsSameHeader(name, "Content-Type") {
			// Servers with CGI read such a header as a second Content-Type.
			values = slices.Concat(values, more, []string{""})
		}
	}
	t, err := ParseType(values)
	if err == nil && t.hasOtherType() {
		err = &Error{"its Content-Type names a second type, in a parameter or as a part of the first"}
	}
	return t, err
}

// hasOtherType reports whether a server that searches the whole header for a word, as formidable does, reads the body
// as another kind. A multipart type may name the type of its first part (RFC 2387).
func (t Type) hasOtherType() bool {
	whole := strings.ToLower(t.raw)
	found := 0
	for _, word := range []string{"multipart", "urlencoded", "json"} {
		switch {
		case !strings.Contains(whole, word), word == "json" && t.IsMultipart():
			continue
		case !strings.Contains(t.Media, word), word == "multipart" && !t.IsMultipart():
			return true
		}
		found++
	}
	return found > 1
}

// CheckCharset fails if a server that honours the charset would not read ASCII as ASCII.
func (t Type) CheckCharset() error {
	if !isASCII(t.Param("charset")) {
		return &Error{"its Content-Type has a charset that is not a superset of ASCII"}
	}
	return nil
}

// ParseType parses the values of Content-Type headers: either none, or one that every server reads in the same way. A
// multipart type needs a boundary.
func ParseType(values []string) (Type, error) {
	switch {
	case len(values) > 1:
		return Type{}, &Error{"it has two Content-Type headers"}
	case len(values) == 0 || strings.Trim(values[0], " \t") == "":
		return Type{}, nil
	}
	media, params, err := parseParameters(strings.Trim(values[0], " \t"), "")
	if err != nil {
		return Type{}, err
	}
	t := Type{strings.ToLower(media), params, strings.Trim(values[0], " \t")}
	major, minor, _ := strings.Cut(t.Media, "/")
	if !httpguts.ValidHeaderFieldName(major) || !httpguts.ValidHeaderFieldName(minor) {
		return Type{}, &Error{"its Content-Type is not of the form type/subtype"}
	}
	if t.IsMultipart() && !isBoundary(t.Boundary()) {
		return Type{}, &Error{"its Content-Type has no boundary, or one with unusual characters"}
	}
	return t, nil
}

// IsMultipart reports whether the body has parts.
func (t Type) IsMultipart() bool { return strings.HasPrefix(t.Media, "multipart/") }

// IsFormData reports whether the parts are the fields of a form.
func (t Type) IsFormData() bool { return t.Media == "multipart/form-data" }

// Boundary returns the boundary between the parts.
func (t Type) Boundary() string { return t.Param("boundary") }

// Param returns the value of a parameter, or "".
func (t Type) Param(name string) string {
	for _, p := range t.params {
		if p.name == name {
			return p.value
		}
	}
	return ""
}

// minBoundary is the length in hexadecimal digits at which a boundary cannot be guessed.
const minBoundary = 32

// WithNewBoundary returns the type with a new random boundary, which is unknown until the body leaves. It is as long as
// the old one, but has at least minBoundary digits. The type of a form keeps no other parameter.
func (t Type) WithNewBoundary() Type {
	n := max(len(t.Boundary()), minBoundary)
	random := make([]byte, (n+1)/2)
	_, _ = rand.Read(random) // it never fails
	//defence:multipart instead t
	return t.WithBoundary(strings.ToUpper(hex.EncodeToString(random))[:n])
}

// WithBoundary returns the type with another boundary.
func (t Type) WithBoundary(boundary string) Type {
	fresh := Type{Media: t.Media, params: []param{{"boundary", boundary}}}
	if !t.IsFormData() {
		for _, p := range t.params {
			if p.name != "boundary" {
				fresh.params = append(fresh.params, p)
			}
		}
	}
	return fresh
}

// String returns the type as a header value.
func (t Type) String() string {
	if t.raw != "" {
		return t.raw
	}
	s := t.Media
	for _, p := range t.params {
		if httpguts.ValidHeaderFieldName(p.value) {
			s += "; " + p.name + "=" + p.value
		} else {
			s += "; " + p.name + `="` + p.value + `"` // it contains no quotes or backslashes
		}
	}
	return s
}

// isASCII reports whether a charset is a superset of ASCII. An empty charset is the default.
func isASCII(charset string) bool {
	return slices.Contains([]string{
		"", "utf-8", "utf8", "us-ascii", "ascii", "latin1", "iso-8859-1", "iso-8859-2", "iso-8859-15",
		"koi8-r", "windows-1250", "windows-1251", "windows-1252", "euc-jp", "euc-kr",
	}, strings.ToLower(charset))
}

// maxParameters bounds the parameters of a header, because each is compared with all others.
const maxParameters = 32

// parseParameters splits a header's value into its first word and its parameters (RFC 9110, section 5.6.6). It rejects
// more than maxParameters, repeated parameters, continued or encoded parameters (RFC 2231), and escapes in a value.
// Only the quoted value of the parameter with the name file may have backslashes, but not as its last character.
func parseParameters(s, file string) (word string, list []param, err error) {
	word, rest, more := strings.Cut(s, ";")
	word = strings.TrimRight(word, " \t")
	for more && err == nil {
		if rest = strings.TrimLeft(rest, " \t"); rest == "" {
			break // some clients end with a semicolon
		}
		var p param
		if p, rest, more, err = parseParameter(rest, file); err != nil {
			break
		}
		if len(list) == maxParameters {
			err = &Error{"a header has more than 32 parameters"}
		}
		if slices.ContainsFunc(list, func(q param) bool { return q.name == p.name }) {
			err = &Error{"a header has the same parameter twice"}
		}
		list = append(list, p)
	}
	return word, list, err
}

// parseParameter parses the first parameter of a text. more means that a semicolon follows.
func parseParameter(s, file string) (p param, rest string, more bool, err error) {
	name, s, found := strings.Cut(s, "=")
	//defence:multipart
	unusual := strings.ContainsAny(name, "*%'")
	if !found || !httpguts.ValidHeaderFieldName(name) || unusual {
		return p, "", false, &Error{"a header has a parameter with an unusual name, or without a name"}
	}
	p.name = strings.ToLower(name)
	if quoted, ok := strings.CutPrefix(s, `"`); ok {
		p.value, rest, ok = strings.Cut(quoted, `"`)
		// Some parsers read a backslash as an escape of the next character. Unless that is the closing quote, the escape
		// changes the value, not its end. Browsers write file names without escapes, so a file name may have backslashes.
		escapes := strings.Contains(p.value, `\`) && (p.name != file || strings.HasSuffix(p.value, `\`))
		if !ok || !isText(p.value) || escapes {
			return p, "", false, &Error{"a header has a parameter with an escape, or with a quote that is not closed"}
		}
	} else {
		n := strings.IndexAny(s, "; \t")
		if n < 0 {
			n = len(s)
		}
		p.value, rest = s[:n], s[n:]
		//defence:multipart
		unusual := strings.ContainsAny(p.value, "'%*")
		if !httpguts.ValidHeaderFieldName(p.value) || unusual {
			return p, "", false, &Error{"a header has a parameter whose value needs quotes"}
		}
	}
	rest = strings.TrimLeft(rest, " \t")
	if rest == "" {
		return p, "", false, nil
	}
	if rest, more = strings.CutPrefix(rest, ";"); !more {
		return p, "", false, &Error{"a header has something after a parameter"}
	}
	return p, rest, true, nil
}

// isBoundary reports whether a text is a boundary (RFC 2046, section 5.1.1) without characters that servers treat
// differently.
func isBoundary(s string) bool {
	return s != "" && len(s) <= 70 && !strings.ContainsFunc(s, func(c rune) bool {
		return (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("'()+_,-./:=?", c)
	})
}

// StripBoundary returns header lines and a body without the boundary of its parts. Requests that differ only in their
// boundaries then compare equal: clients and this package choose another boundary for each request.
//
// Unbound returns its arguments unchanged unless every parser finds the same parts. That needs one type whose only
// parameter is a boundary of digits, no similar text in the parts, and no text around them. Each part needs a head that
// Reader accepts, and may not have inner parts.
//
// Boundaries of different lengths do not compare equal, because some parsers misread a body depending on the end of a
// buffer. The result is only for comparing, never for sending.
func StripBoundary(headers []string, body string) ([]string, string) {
	at, value := -1, ""
	for i, line := range headers {
		name, v, _ := strings.Cut(line, ":")
		if !strings.EqualFold(strings.ReplaceAll(name, "_", "-"), "Content-Type") { // CGI does not distinguish - and _
			continue
		}
		if at >= 0 || strings.Contains(name, "_") {
			return headers, body
		}
		at, value = i, v
	}
	if at < 0 {
		return headers, body
	}
	t, err := ParseType([]string{value})
	if err != nil || !t.IsMultipart() || len(t.params) != 1 || !isDigits(t.Boundary()) {
		return headers, body
	}
	begins := strings.ToLower(strings.TrimLeft(t.Boundary(), "-")[:tellingDigits])
	delimiter := "\r\n--" + t.Boundary()
	parts := strings.Split("\r\n"+body, delimiter)
	last := len(parts) - 1
	if last == 0 || parts[0] != "" || strings.TrimSuffix(parts[last], "\r\n") != "--" {
		return headers, body
	}
	var same strings.Builder
	for i, part := range parts {
		lower := strings.ToLower(part)
		if 0 < i && i < last && !hasHead(part, t) || strings.Contains(lower, begins) ||
			strings.Contains(lower, "multipart") { // Python's cgi searches only for an inner boundary
			return headers, body
		}
		same.WriteString(strconv.Itoa(len(part)) + ":" + part)
	}
	headers = slices.Clone(headers)
	none := strings.Repeat("\x00", len(t.Boundary())) // no header that arrives has this character
	headers[at] = strings.Replace(headers[at], t.Boundary(), none, 1)
	return headers, same.String()
}

// hasHead reports whether a part, after the line of its boundary, has a head whose end every parser agrees on. PHP and
// Rack read a head until a blank line, also past a boundary, which then becomes part of a name.
func hasHead(part string, t Type) bool {
	text, ok := strings.CutPrefix(part, "\r\n")
	if !ok || strings.HasPrefix(text, "\r\n") {
		return false
	}
	_, _, err := readHead(bufio.NewReaderSize(strings.NewReader(text), readWindow), t)
	return err == nil
}

// tellingDigits is the number of a boundary's digits that are searched for in the parts, in case a parser shortens the
// boundary.
const tellingDigits = 8

// isDigits reports whether a boundary has only hyphens and hexadecimal digits, as boundaries of Deno, Python's urllib3,
// Go and WithNewBoundary have. A word in the boundary could be read as another type: formidable searches the whole
// header for "json".
func isDigits(boundary string) bool {
	digits := strings.ToLower(strings.TrimLeft(boundary, "-"))
	return len(digits) >= 2*tellingDigits && strings.Trim(digits, "0123456789abcdef") == ""
}

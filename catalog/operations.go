package catalog

import (
	"fmt"
	"net/url"
	"strings"
	"unicode"

	"github.com/codeforge-mcp/codeforge/internal/jsonread"
)

// Operations is "operations" of a config.json: the origin of the API's operations.jsonl.
type Operations struct {
	// Source is the file or URL of the imported document, or "-".
	Source string
	// SHA256 is the digest of operations.jsonl in lower-case hexadecimal digits, or "".
	SHA256 string
	// Only refuses requests that are not operations of the document.
	Only bool
}

// maxSource bounds a source, in bytes.
const maxSource = 2000

func operationsFields() specs[Operations] {
	return specs[Operations]{
		{"source", "The file or URL of the document that codeforge api update reads again.",
			schema{Type: "string", MinLength: 1, MaxLength: maxSource},
			func(d *decoder, o *Operations, f string, n *node) { d.Str(f, n, &o.Source) }},
		{"sha256", "The digest of operations.jsonl.", schema{Type: "string", Pattern: "^[0-9a-f]{64}$"},
			func(d *decoder, o *Operations, f string, n *node) { d.Str(f, n, &o.SHA256) }},
		{"only", "Refuses every request that is not an operation of the document.", schema{Type: "boolean", Default: false},
			func(d *decoder, o *Operations, f string, n *node) { d.Boolean(f, n, &o.Only) }},
	}
}

// operations reads "operations". It returns nil if the value is not an object.
func (d *decoder) operations(n *node) *Operations {
	if n.Kind != jsonread.Object {
		d.Bad("operations", n.Kind.String(), "an object, as codeforge api add --openapi writes it")
		return nil
	}
	o := &Operations{}
	operationsFields().decode(d, "operations.", n, o)
	return o
}

// operations checks "operations".
func (v *validator) operations(o *Operations) *Operations {
	if o == nil {
		return nil
	}
	const want = "the file or the URL of a document, without a credential in it"
	u, err := url.Parse(o.Source)
	remote := err == nil && (u.Scheme == "https" || u.Scheme == "http")
	switch {
	case len(o.Source) > maxSource:
		v.Bad("operations.source", fmt.Sprintf("%d bytes", len(o.Source)), fmt.Sprintf("at most %d", maxSource))
	case strings.ContainsFunc(o.Source, unicode.IsControl):
		v.Bad("operations.source", "a line break or control character", want)
	case remote && u.User != nil:
		v.Bad("operations.source", "a URL with a user", want)
	case remote && secretLike(u.RawQuery):
		v.Bad("operations.source", "a URL that seems to contain a credential", want)
	}
	if s := o.SHA256; s != "" && (len(s) != 64 || strings.Trim(s, "0123456789abcdef") != "") {
		v.Bad("operations.sha256", "not a digest", "64 of 0-9 and a-f: codeforge api update writes it")
	}
	return o
}

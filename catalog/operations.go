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

func operationsFields() fieldSpecs[Operations] {
	return fieldSpecs[Operations]{
		stringField("source", func(o *Operations) *string { return &o.Source }),
		stringField("sha256", func(o *Operations) *string { return &o.SHA256 }),
		boolField("only", func(o *Operations) *bool { return &o.Only }),
	}
}

// readOperations reads "operations". It returns nil if the value is not an object.
func (d *configDecoder) readOperations(n *node) *Operations {
	if n.Kind != jsonread.Object {
		d.AddError("operations", n.Kind.String(), "an object, as codeforge api add --openapi writes it")
		return nil
	}
	o := &Operations{}
	operationsFields().decodeObject(d, "operations.", n, o)
	return o
}

func (v *configValidator) buildOperations(o *Operations) *Operations {
	if o == nil {
		return nil
	}
	const want = "the file or the URL of a document, without a credential in it"
	u, err := url.Parse(o.Source)
	remote := err == nil && (u.Scheme == "https" || u.Scheme == "http")
	switch {
	case len(o.Source) > maxSource:
		v.AddError("operations.source", fmt.Sprintf("%d bytes", len(o.Source)), fmt.Sprintf("at most %d", maxSource))
	case strings.ContainsFunc(o.Source, unicode.IsControl):
		v.AddError("operations.source", "a line break or control character", want)
	case remote && u.User != nil:
		v.AddError("operations.source", "a URL with a user", want)
	case remote && hasLikelySecret(u.RawQuery):
		v.AddError("operations.source", "a URL that seems to contain a credential", want)
	}
	if s := o.SHA256; s != "" && (len(s) != 64 || strings.Trim(s, "0123456789abcdef") != "") {
		v.AddError("operations.sha256", "not a digest", "64 of 0-9 and a-f: codeforge api update writes it")
	}
	return o
}

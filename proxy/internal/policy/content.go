package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/formdata"
)

// MaxContent is the size in bytes up to which rules read a body, decoded. A longer one cannot be judged.
const MaxContent = 256 << 10

// maxTokens bounds a GraphQL document, maxNested the nesting of JSON.
const (
	maxTokens = 20_000
	maxNested = 100
)

// Content is what rules read of a request: its query and its body. The zero Content has neither.
type Content struct {
	query  []field
	cookie []string // the names
	form   []field
	object map[string]any // of a body that is a JSON object
	batch  []any          // of a body that is a JSON list
	text   string         // of a body that is a GraphQL document
	raw    *string        // the whole body. Nil means that it was not read to its end
	held   *membudget.Account
	size   int64 // bytes that it has taken from held
	bad    *formdata.Error
}

// field is one name with its value, decoded.
type field struct{ name, value string }

// parsedCost is how many bytes a byte of JSON, or of a query, takes once it is parsed, at most.
const parsedCost = 64

// ReadContent reads a request's body, which then leaves as it was read. A body that no rule can judge is marked as
// such, without an error. An error comes from reading the body, or is membudget.ErrFull. The caller calls Release when
// the rules have read the content.
func ReadContent(r *http.Request) (*Content, error) {
	c := &Content{held: membudget.From(r.Context())}
	if err := c.acquire(r.Context(), len(r.URL.RawQuery)); err != nil {
		return nil, err
	}
	c.query, c.bad = fields(r.URL.RawQuery)
	for pair := range cookies(strings.Join(r.Header["Cookie"], ";")) {
		name, _, _ := strings.Cut(pair, "=")
		c.cookie = append(c.cookie, decode(strings.TrimSpace(name)))
	}
	if r.Header.Get("Upgrade") != "" {
		c.bad = &formdata.Error{Reason: "messages follow the request"}
	}
	if r.Body == nil || r.Body == http.NoBody {
		c.raw = new(string)
		return c, nil
	}
	kind, err := formdata.RequestType(r.Header)
	if err != nil {
		return nil, err
	}
	encodings, err := coding.Parse(r.Header)
	if err != nil {
		c.bad = &formdata.Error{Reason: "its encoding is unknown"}
		return c, nil
	}
	decodeBody(r, encodings)
	text, err := io.ReadAll(io.LimitReader(r.Body, MaxContent+1))
	if err != nil {
		return nil, err
	}
	if len(text) > MaxContent {
		c.bad = &formdata.Error{Reason: "it is larger than 256 KiB"}
		return c, nil
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{bytes.NewReader(text), r.Body}
	if err := c.acquire(r.Context(), len(text)); err != nil {
		return nil, err
	}
	whole := string(text)
	r.ContentLength, c.raw = int64(len(text)), &whole
	r.Header.Del("Content-Length")
	if c.bad == nil {
		c.parse(kind, text)
	}
	return c, nil
}

// acquire takes the memory for so many bytes of text that will be parsed.
func (c *Content) acquire(ctx context.Context, size int) error {
	n := parsedCost * int64(size)
	err := c.held.Acquire(ctx, n)
	if err == nil {
		c.size += n
	}
	return err
}

// Release gives the memory of the parsed query and body back to the request's account.
func (c *Content) Release() {
	c.held.Give(c.size)
	c.size = 0
}

// Text is the whole body, for a person to see. It is false for one that is too large or no text.
func (c *Content) Text() (string, bool) {
	if c == nil || c.raw == nil || !utf8.ValidString(*c.raw) {
		return "", false
	}
	return *c.raw, true
}

func (c *Content) parse(kind formdata.Type, text []byte) {
	switch {
	case len(text) == 0:
	case !utf8.Valid(text) || kind.CheckCharset() != nil:
		c.bad = &formdata.Error{Reason: "it is not UTF-8"}
	case kind.Media == "application/graphql":
		c.text = string(text)
	case isJSON(kind.Media):
		value, ok := StrictJSON(text)
		switch v := value.(type) {
		case map[string]any:
			c.object = v
		case []any:
			c.batch = v
		default:
			ok = false
		}
		if !ok {
			c.bad = &formdata.Error{Reason: "it is no JSON object in which each name stands once"}
		}
	case kind.Media == "application/x-www-form-urlencoded":
		c.form, c.bad = fields(string(text))
	default:
		c.bad = &formdata.Error{Reason: "it is neither JSON nor a form"}
	}
}

// fields are those of a query or a form.
func fields(text string) ([]field, *formdata.Error) {
	if strings.ContainsAny(text, ";\x00") {
		return nil, &formdata.Error{Reason: "a form or query with a semicolon"}
	}
	var out []field
	for pair := range strings.SplitSeq(text, "&") {
		name, value, _ := strings.Cut(pair, "=")
		n, err := url.QueryUnescape(name)
		v, bad := url.QueryUnescape(value)
		if err != nil || bad != nil || !named(n) {
			return nil, &formdata.Error{Reason: "a form or query with a broken escape, or an odd name"}
		}
		if pair != "" {
			out = append(out, field{n, v})
		}
	}
	return out, nil
}

// StrictJSON is the value of JSON in which no object has two names that any server takes for the same.
func StrictJSON(text []byte) (any, bool) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if !json.Valid(text) {
		return nil, false
	}
	return jsonValue(dec, maxNested)
}

func jsonValue(dec *json.Decoder, depth int) (any, bool) {
	token, err := dec.Token()
	if err != nil || depth == 0 {
		return nil, false
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for dec.More() {
			v, ok := jsonValue(dec, depth-1)
			if !ok {
				return nil, false
			}
			list = append(list, v)
		}
		_, err = dec.Token()
		return list, err == nil
	case json.Delim('{'):
		object, names := map[string]any{}, map[string]bool{}
		for dec.More() {
			key, err := dec.Token()
			name, isName := key.(string)
			folded := fold(name)
			if err != nil || !isName || names[folded] || !named(name) {
				return nil, false
			}
			v, ok := jsonValue(dec, depth-1)
			if !ok {
				return nil, false
			}
			object[name], names[folded] = v, true
		}
		_, err = dec.Token()
		return object, err == nil
	}
	return token, true
}

// named reports whether a name is one for every server: some end a name at a NUL, and give objects in JavaScript all
// fields of what is called __proto__.
func named(name string) bool {
	return !strings.ContainsRune(name, 0) && !strings.Contains(fold(name), "__proto__")
}

// fold is a name without the differences that some servers ignore.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case '\u017f':
			return 's' // encoding/json takes these two for the ASCII letters
		case '\u212a':
			return 'k'
		}
		return r
	}, strings.ToLower(strings.TrimSpace(name)))
}

var errUnclear = errors.New("servers may read the field in different ways")

// Lookup implements catalog.Content. It fails where a server might find the field elsewhere, or in another form.
func (c *Content) Lookup(name string) (v catalog.FieldValue, found bool, err error) {
	path := strings.Split(name, ".")
	if c.bad != nil {
		return v, false, c.bad
	}
	for _, q := range c.query {
		if leads(q.name, path) {
			return v, false, errUnclear // frameworks mix the query's fields with the body's
		}
	}
	if slices.ContainsFunc(c.cookie, func(name string) bool { return leads(name, path) }) {
		return v, false, errUnclear // PHP without a php.ini mixes the cookies in too
	}
	switch {
	case c.batch != nil || c.text != "":
		return v, false, errUnclear
	case c.object != nil:
		return inObject(c.object, path)
	}
	for _, f := range c.form {
		if !leads(f.name, path) {
			continue
		}
		if found || f.name != path[0]+bracketed(path[1:]) {
			return v, false, errUnclear
		}
		v.Text, found = f.value, true
	}
	return v, found, nil
}

// bracketed is the rest of a path as forms have it: "[amount]".
func bracketed(path []string) string {
	out := ""
	for _, p := range path {
		out += "[" + p + "]"
	}
	return out
}

// leads reports whether a form's name may be read as a field, or as something in it.
func leads(name string, path []string) bool {
	parts := partsOf(name)
	for i, p := range path {
		if i >= len(parts) || parts[i] != squeezed(p) {
			return squeezed(name) == squeezed(strings.Join(path, ""))
		}
	}
	return true
}

// partsOf are the names that a form's name may consist of.
func partsOf(name string) []string {
	parts := strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune("[]. ", r) })
	for i, p := range parts {
		parts[i] = squeezed(p)
	}
	return parts
}

// squeezed is a folded name without what separates words: isAdmin is is_admin to some servers.
func squeezed(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("_-[]. ", r) {
			return -1
		}
		return r
	}, fold(name))
}

func inObject(object map[string]any, path []string) (v catalog.FieldValue, found bool, err error) {
	if _, reference := object["$ref"]; reference {
		return v, false, errUnclear // Fastjson and Json.NET put something else of the document in its place
	}
	squeezedPath := make([]string, len(path))
	for i, p := range path {
		squeezedPath[i] = squeezed(p)
	}
	for name := range object {
		parts := partsOf(name)
		if name != path[0] && len(parts) > 0 && (slices.Equal(parts, squeezedPath[:min(len(parts), len(path))]) ||
			squeezed(name) == squeezedPath[0]) {
			return v, false, errUnclear
		}
	}
	value, has := object[path[0]]
	if !has || value == nil {
		return v, false, nil
	}
	if len(path) > 1 {
		inner, ok := value.(map[string]any)
		if !ok {
			return v, false, errUnclear
		}
		return inObject(inner, path[1:])
	}
	switch value := value.(type) {
	case string:
		return catalog.FieldValue{Text: value, Kind: catalog.KindText}, true, nil
	case json.Number:
		return catalog.FieldValue{Text: value.String(), Kind: catalog.KindNumber}, true, nil
	case bool:
		return catalog.FieldValue{Text: strconv.FormatBool(value), Kind: catalog.KindBool}, true, nil
	}
	return v, false, errUnclear
}

// Operations implements catalog.Content. It fails if they cannot all be known.
func (c *Content) Operations() ([]string, error) {
	if c.bad != nil {
		return nil, c.bad
	}
	var documents []string
	for _, q := range c.query {
		switch {
		case q.name == "query":
			documents = append(documents, q.value)
		case namesDocument(q.name):
			return nil, errUnclear
		}
	}
	switch {
	case c.form != nil:
		return nil, errUnclear
	case c.text != "":
		documents = append(documents, c.text)
	case c.batch != nil:
		for _, entry := range c.batch {
			object, _ := entry.(map[string]any)
			text, ok := document(object)
			if !ok || len(documents) == maxRuleBatch {
				return nil, errUnclear
			}
			documents = append(documents, text)
		}
	case c.object != nil:
		text, ok := document(c.object)
		if !ok {
			return nil, errUnclear
		}
		documents = append(documents, text)
	}
	if len(documents) == 0 || c.batch == nil && len(documents) > 1 {
		return nil, errUnclear
	}
	var out []string
	for _, text := range documents {
		doc, err := parser.ParseQueryWithTokenLimit(&ast.Source{Input: text}, maxTokens)
		// Ends of lines to some parsers.
		if err != nil || len(doc.Operations) == 0 || strings.ContainsAny(text, "\u0085\u2028\u2029") {
			return nil, errUnclear
		}
		for _, o := range doc.Operations {
			out = append(out, string(o.Operation))
		}
	}
	return out, nil
}

// namesDocument reports whether a field of a URL may be, or name, a document.
func namesDocument(name string) bool {
	name = squeezed(name)
	return name == "id" || name == "batch" || name == "map" || slices.ContainsFunc(
		[]string{"query", "mutation", "doc", "hash", "persist", "extension", "operations", "operationid"},
		func(word string) bool { return strings.Contains(name, word) })
}

// document is the text of a GraphQL request. It is false for one that names a persisted operation, of which only the
// server knows the text, and for one with a field that may do so.
func document(object map[string]any) (string, bool) {
	for name, value := range object {
		switch name {
		case "query", "variables", "operationName":
		case "extensions":
			if inner, ok := value.(map[string]any); value != nil && (!ok || len(inner) > 0) {
				return "", false
			}
		default:
			return "", false
		}
	}
	text, ok := object["query"].(string)
	return text, ok
}

// maxRuleBatch is how many documents of a batch are read.
const maxRuleBatch = 100

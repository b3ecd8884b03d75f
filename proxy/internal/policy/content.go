package policy

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/jsonread"
	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/formdata"
)

// MaxContent is how many bytes of a decoded body rules read. Rules cannot judge a longer body.
const MaxContent = 256 << 10

// maxTokens bounds a GraphQL document, maxNested the nesting of JSON.
const (
	maxTokens = 20_000
	maxNested = 99
)

// Content is the query and the body of a request, as rules read them. The zero Content has neither.
type Content struct {
	query  []FormField
	cookie []string // the names
	form   []FormField
	json   *jsonread.Node // of a body that is a JSON object or list
	text   string         // of a body that is a GraphQL document
	raw    *string        // the whole body; nil if it was not read to its end
	held   *membudget.Account
	size   int64 // bytes taken from held
	bad    *formdata.Error
	folded map[string]foldedName // of names that a rule has compared
}

// FormField is one name with its value, decoded.
type FormField struct{ Name, Value string }

// foldedName is a name as canReferTo compares it: split, and as a whole.
type foldedName struct {
	parts []string
	whole string
}

// parsedCost is the most memory, in bytes, that one byte of JSON or of a query takes after parsing.
const parsedCost = 64

// ReadContent reads a request's body and puts the decoded bytes back, so that the judged bytes leave. It marks a body
// that no rule can judge, without an error. Errors come from reading the body, or are membudget.ErrFull. The caller
// must call ReleaseMemory after the rules have read the content.
func ReadContent(r *http.Request) (*Content, error) {
	c := &Content{held: membudget.FromContext(r.Context())}
	if err := c.acquireMemory(r.Context(), len(r.URL.RawQuery)); err != nil {
		return nil, err
	}
	c.query, c.bad = ParseForm(r.URL.RawQuery)
	for pair := range splitCookies(strings.Join(r.Header["Cookie"], ";")) {
		name, _, _ := strings.Cut(pair, "=")
		c.cookie = append(c.cookie, decodeEscapes(strings.TrimSpace(name)))
	}
	if r.Header.Get("Upgrade") != "" {
		c.bad = &formdata.Error{Reason: "messages follow the request"}
	}
	if r.Body == nil || r.Body == http.NoBody {
		c.raw = new(string)
		return c, nil
	}
	kind, err := formdata.ParseRequestType(r.Header)
	if err != nil {
		return nil, err
	}
	encodings, err := coding.Parse(r.Header)
	if err != nil {
		c.bad = &formdata.Error{Reason: "its encoding is unknown"}
		return c, nil
	}
	// The body leaves decoded, so the server parses the bytes that the rules judged.
	decodeBody(r, encodings)
	text, whole, err := coding.PeekBody(r, MaxContent, 0)
	if err != nil {
		return nil, err
	}
	if !whole {
		c.bad = &formdata.Error{Reason: "it is larger than 256 KiB"}
		return c, nil
	}
	// Reserve the memory before parsing: 256 KiB of JSON can become 16 MiB.
	if err := c.acquireMemory(r.Context(), len(text)); err != nil {
		return nil, err
	}
	raw := string(text)
	r.ContentLength, c.raw = int64(len(text)), &raw
	r.Header.Del("Content-Length")
	if c.bad == nil {
		c.parseBody(kind, text)
	}
	return c, nil
}

// acquireMemory reserves the memory for parsing size bytes of text.
func (c *Content) acquireMemory(ctx context.Context, size int) error {
	n := parsedCost * int64(size)
	err := c.held.WaitAndTake(ctx, n)
	if err == nil {
		c.size += n
	}
	return err
}

// ReleaseMemory returns the memory of the parsed query and body to the request's account.
func (c *Content) ReleaseMemory() {
	c.held.GiveBack(c.size)
	c.size = 0
}

// BodyText returns the whole body, for a person to read. It returns false if the body is too large or not UTF-8.
func (c *Content) BodyText() (string, bool) {
	if c == nil || c.raw == nil || !utf8.ValidString(*c.raw) {
		return "", false
	}
	return *c.raw, true
}

func (c *Content) parseBody(kind formdata.Type, text []byte) {
	switch {
	case len(text) == 0:
	case !utf8.Valid(text) || kind.CheckCharset() != nil:
		c.bad = &formdata.Error{Reason: "it is not UTF-8"}
	case kind.Media == "application/graphql":
		c.text = string(text)
	case isJSON(kind.Media):
		c.json = ParseStrictJSON(text)
		if !c.json.Is(jsonread.Object) && !c.json.Is(jsonread.List) {
			c.bad = &formdata.Error{Reason: "it is not a JSON object with unique names"}
		}
	case kind.Media == "application/x-www-form-urlencoded":
		c.form, c.bad = ParseForm(string(text))
	default:
		c.bad = &formdata.Error{Reason: "it is neither JSON nor a form"}
	}
}

// ParseForm parses a query or a form. It returns the reason if servers read the text in different ways.
func ParseForm(text string) ([]FormField, *formdata.Error) {
	// Some servers split at semicolons too, and some end a name at a NUL.
	if strings.ContainsAny(text, ";\x00") {
		return nil, &formdata.Error{Reason: "a form or query with a semicolon"}
	}
	var out []FormField
	for pair := range strings.SplitSeq(text, "&") {
		name, value, _ := strings.Cut(pair, "=")
		n, err := url.QueryUnescape(name)
		v, bad := url.QueryUnescape(value)
		if err != nil || bad != nil || !isUnambiguousName(n) {
			return nil, &formdata.Error{Reason: "a form or query with a broken escape, or an odd name"}
		}
		if pair != "" {
			out = append(out, FormField{n, v})
		}
	}
	return out, nil
}

// ParseStrictJSON parses JSON. It returns nil for invalid JSON, and for an object with two names that some server
// treats as equal. Numbers keep their text: a float64 would round a large one, so a rule or a limit would read another
// number than the server.
func ParseStrictJSON(text []byte) *jsonread.Node {
	// Servers differ in which of two equal names they use.
	n, err := jsonread.Parse(string(text), jsonread.Options{MaxDepth: maxNested, Fold: foldName})
	if err != nil || !hasUnambiguousNames(n) {
		return nil
	}
	return n
}

// hasUnambiguousNames reports whether every server reads the names of all objects the same way.
func hasUnambiguousNames(n *jsonread.Node) bool {
	return !slices.ContainsFunc(n.Members, func(m jsonread.Member) bool {
		return !isUnambiguousName(m.Key) || !hasUnambiguousNames(m.Node)
	})
}

// isUnambiguousName reports whether every server reads a name the same way. Some end a name at a NUL. JavaScript gives
// an object all fields of its __proto__.
func isUnambiguousName(name string) bool {
	return !strings.ContainsRune(name, 0) && !strings.Contains(foldName(name), "__proto__")
}

// foldName removes the differences between names that some servers ignore.
func foldName(name string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case '\u017f':
			return 's' // encoding/json treats these two as the ASCII letters
		case '\u212a':
			return 'k'
		}
		return r
	}, strings.ToLower(strings.TrimSpace(name)))
}

var errUnclear = errors.New("servers may read the field in different ways")

// Lookup implements catalog.Content. It returns an error if a server might find the field elsewhere, or read it in
// another form.
func (c *Content) Lookup(name string) (v catalog.FieldValue, found bool, err error) {
	path := strings.Split(name, ".")
	if c.bad != nil {
		return v, false, c.bad
	}
	folded := foldPath(path)
	for _, q := range c.query {
		if c.splitOnce(q.Name).canReferTo(folded) {
			return v, false, errUnclear // frameworks mix the query's fields with the body's
		}
	}
	if slices.ContainsFunc(c.cookie, func(name string) bool { return c.splitOnce(name).canReferTo(folded) }) {
		return v, false, errUnclear // PHP without a php.ini mixes the cookies in too
	}
	switch {
	case c.json.Is(jsonread.List) || c.text != "":
		return v, false, errUnclear
	case c.json != nil:
		return c.lookUpInObject(c.json, path)
	}
	for _, f := range c.form {
		if !c.splitOnce(f.Name).canReferTo(folded) {
			continue
		}
		// Servers differ in which of two equal fields they use.
		if found || f.Name != path[0]+formatBrackets(path[1:]) {
			return v, false, errUnclear
		}
		v.Text, found = f.Value, true
	}
	return v, found, nil
}

// splitOnce splits and folds a name. It keeps the result, because every rule compares every name.
func (c *Content) splitOnce(name string) foldedName {
	n, known := c.folded[name]
	if !known {
		if c.folded == nil {
			c.folded = map[string]foldedName{}
		}
		n = foldedName{splitName(name), foldSeparators(name)}
		c.folded[name] = n
	}
	return n
}

func foldPath(path []string) foldedName {
	return foldedName{whole: foldSeparators(strings.Join(path, "")), parts: convert.Each(path, foldSeparators)}
}

// formatBrackets returns the rest of a path in the notation of forms: "[amount]".
func formatBrackets(path []string) string {
	out := ""
	for _, p := range path {
		out += "[" + p + "]"
	}
	return out
}

// canReferTo reports whether a server may read a form's name as the field, or as a part of the field.
func (n foldedName) canReferTo(field foldedName) bool {
	for i, p := range field.parts {
		if i >= len(n.parts) || n.parts[i] != p {
			return n.whole == field.whole
		}
	}
	return true
}

// splitName splits a form's name into the names that it may consist of.
func splitName(name string) []string {
	parts := strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune("[]. ", r) })
	for i, p := range parts {
		parts[i] = foldSeparators(p)
	}
	return parts
}

// foldSeparators folds a name and removes the separators of words: some servers read isAdmin as is_admin.
func foldSeparators(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("_-[]. ", r) {
			return -1
		}
		return r
	}, foldName(name))
}

func (c *Content) lookUpInObject(object *jsonread.Node, path []string) (
	v catalog.FieldValue, found bool, err error,
) {
	field := foldPath(path).parts
	for _, m := range object.Members {
		switch m.Key {
		case "$ref":
			return v, false, errUnclear // Fastjson and Json.NET replace the object by another part of the document
		case path[0]:
			continue
		}
		// Some servers bind another spelling of the name to the field, such as is_admin to isAdmin.
		n := c.splitOnce(m.Key)
		if len(n.parts) > 0 && (slices.Equal(n.parts, field[:min(len(n.parts), len(path))]) || n.whole == field[0]) {
			return v, false, errUnclear
		}
	}
	value := object.GetValue(path[0])
	switch {
	case value == nil || value.Kind == jsonread.Null:
		return v, false, nil
	case len(path) > 1 && value.Kind == jsonread.Object:
		return c.lookUpInObject(value, path[1:])
	case len(path) > 1:
		return v, false, errUnclear
	}
	switch v.Text = value.Text; value.Kind {
	case jsonread.String:
		v.Kind = catalog.KindText
	case jsonread.Number:
		v.Kind = catalog.KindNumber
	case jsonread.Bool:
		v.Kind = catalog.KindBool
	default:
		return v, false, errUnclear
	}
	return v, true, nil
}

// Operations implements catalog.Content. It returns an error if the text of an operation is unknown.
func (c *Content) Operations() ([]string, error) {
	if c.bad != nil {
		return nil, c.bad
	}
	var documents []string
	for _, q := range c.query {
		switch {
		case q.Name == "query":
			documents = append(documents, q.Value)
		case canNameDocument(q.Name):
			return nil, errUnclear
		}
	}
	switch {
	case c.form != nil:
		return nil, errUnclear
	case c.text != "":
		documents = append(documents, c.text)
	case c.json.Is(jsonread.List):
		for _, entry := range c.json.Members {
			text, ok := graphQLText(entry.Node)
			if !ok || len(documents) == maxRuleBatch {
				return nil, errUnclear
			}
			documents = append(documents, text)
		}
	case c.json != nil:
		text, ok := graphQLText(c.json)
		if !ok {
			return nil, errUnclear
		}
		documents = append(documents, text)
	}
	// A query in the URL beside one in the body: servers differ in which they run.
	if len(documents) == 0 || !c.json.Is(jsonread.List) && len(documents) > 1 {
		return nil, errUnclear
	}
	var out []string
	for _, text := range documents {
		doc, err := parser.ParseQueryWithTokenLimit(&ast.Source{Input: text}, maxTokens)
		// Some parsers treat these characters as ends of lines.
		if err != nil || len(doc.Operations) == 0 || strings.ContainsAny(text, "\u0085\u2028\u2029") {
			return nil, errUnclear
		}
		// All operations count: the server, not this code, applies operationName.
		for _, o := range doc.Operations {
			out = append(out, string(o.Operation))
		}
	}
	return out, nil
}

// canNameDocument reports whether a field of a URL may be a document, or name a stored one.
func canNameDocument(name string) bool {
	name = foldSeparators(name)
	return name == "id" || name == "batch" || name == "map" || slices.ContainsFunc(
		[]string{"query", "mutation", "doc", "hash", "persist", "extension", "operations", "operationid"},
		func(word string) bool { return strings.Contains(name, word) })
}

// graphQLText returns the text of a GraphQL request. It returns false for a persisted operation, whose text only the
// server knows, and for a request with a field that may name one.
func graphQLText(object *jsonread.Node) (string, bool) {
	for _, m := range object.ObjectMembers() {
		switch m.Key {
		case "query", "variables", "operationName":
		// Apollo's persisted queries name a stored document here, by its hash.
		case "extensions":
			if !m.Node.Is(jsonread.Null) && (!m.Node.Is(jsonread.Object) || len(m.Node.Members) > 0) {
				return "", false
			}
		default:
			return "", false
		}
	}
	text := object.GetValue("query")
	if !text.Is(jsonread.String) {
		return "", false
	}
	return text.Text, true
}

// maxRuleBatch is how many documents of a batch are judged.
const maxRuleBatch = 100

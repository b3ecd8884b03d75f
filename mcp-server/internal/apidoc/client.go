package apidoc

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runner"
)

const (
	// maxCalled bounds the operations of one client, and maxDeclared its declarations, in bytes. Types that do not fit
	// become any.
	maxCalled   = 500
	maxDeclared = 512 << 10
)

// Identifier returns the name under which code imports an API's client: the API's name as an identifier.
func Identifier(api string) string {
	name := strings.ReplaceAll(api, "-", "_")
	if name == "" || '0' <= name[0] && name[0] <= '9' || !runner.CheckIdentifier(name) {
		name = "_" + name
	}
	return name
}

// Client returns the client's table of the operations with these keys, and its TypeScript declarations. It omits
// operations that the API does not have. tokens are the names of the API's tokens.
func (d *Doc) Client(keys map[string]bool, tokens []string) (t runner.Table, types string) {
	t = runner.Table{Name: d.Name, Call: Identifier(d.Name), Server: d.Head.Server, Auth: d.auth(tokens)}
	if d.Head.GraphQL {
		t.Note = d.Name + " is an API of GraphQL: send its queries with fetch"
		return t, ""
	}
	c := declarations{doc: d, call: t.Call}
	// Counted first, because the table has each key once.
	variants := map[string]int{}
	for i := range d.Len() {
		if key := d.Key(i); keys[key] {
			variants[key]++
		}
	}
	seen := map[string]bool{}
	for i := range d.Len() {
		key := d.Key(i)
		if !keys[key] || seen[key] || len(t.Operations) == maxCalled {
			continue
		}
		seen[key] = true
		l := d.Operation(i)
		o := runner.Operation{Key: key, Media: l.BodyMedia, Server: l.Server}
		for _, name := range slices.Sorted(maps.Keys(l.Styles)) {
			o.Styles = append(o.Styles, [2]string{name, l.Styles[name]})
		}
		o.Query = append(fieldNames(l.Query), fieldNames(d.Head.Common)...)
		o.Fields = fieldNames(d.resolved(l.Body))
		o.List = d.findList(l)
		t.Operations = append(t.Operations, o)
		if variants[key] > 1 { // one method and path for several operations, which differ by the body
			// Without knowing the body, the types of one variant would reject the others.
			c.open(key)
			continue
		}
		c.operation(l, key)
	}
	return t, c.text()
}

// basic matches a user name and a password in a head's value.
var basic = regexp.MustCompile(`^Basic \$\{btoa\("([A-Za-z0-9_]+):([A-Za-z0-9_]*)"\)\}$`)

// auth returns how requests carry the tokens that the API has.
func (d *Doc) auth(tokens []string) []runner.Auth {
	out := []runner.Auth{}
	for _, a := range d.Head.Auth {
		kind, name, _ := strings.Cut(a.Place, ":")
		r := runner.Auth{Value: a.Value}
		// The user name and password go as two parts, so that the client encodes them itself.
		if m := basic.FindStringSubmatch(a.Value); m != nil {
			r = runner.Auth{Basic: m[1:]}
		}
		switch {
		// A token that the API does not have would be sent as its name.
		case !slices.Contains(tokens, a.Token) || name == "":
			continue
		case kind == "header":
			r.Header = name
		case kind == "query":
			r.Query = name
		default:
			continue
		}
		out = append(out, r)
	}
	return out
}

// resolved returns the type that a type's name stands for, or the type itself.
func (d *Doc) resolved(ts string) string {
	// Bounded, because a hostile document may have types that name each other in a circle.
	const chain = 5
	for range chain {
		t, ok := d.Type(ts)
		if !ok {
			break
		}
		ts = t.TS
	}
	return ts
}

// fieldNames returns the names of an object's properties.
func fieldNames(ts string) []string {
	out := []string{}
	list, _ := members(ts)
	for _, m := range list {
		if name, _, ok := property(m); ok {
			out = append(out, name)
		}
	}
	return out
}

// findList returns the property of an operation's answer that holds its list, or "". Of several arrays this is the only
// one with objects that are not links, or else the one that the path names.
func (d *Doc) findList(l operation.Line) string {
	all, _ := members(d.resolved(l.Answer))
	var arrays, objects []string
	for _, m := range all {
		name, ts, ok := property(m)
		item, isArray := strings.CutSuffix(d.resolved(ts), "[]")
		switch {
		case !ok || !isArray || slices.Contains(besideLists, strings.ToLower(name)):
		case isPlain(d.resolved(item)):
			arrays = append(arrays, name)
		default:
			arrays, objects = append(arrays, name), append(objects, name)
		}
	}
	// The only array of objects is the list, whatever its name.
	if len(objects) == 1 {
		return objects[0]
	}
	for _, name := range arrays {
		if strings.EqualFold(name, findLastWord(l.Path)) {
			return name
		}
	}
	if len(arrays) == 1 {
		return arrays[0]
	}
	return ""
}

// besideLists are arrays beside the list of an answer, in lower case. client.js has the same names.
var besideLists = []string{"links", "_links", "errors", "warnings"}

// isPlain reports whether a type consists of texts, numbers and booleans.
func isPlain(ts string) bool {
	return ts == "string" || ts == "number" || ts == "boolean" || strings.HasPrefix(ts, `"`) || strings.HasPrefix(ts, `("`)
}

// findLastWord returns the last segment of a path that is not a parameter, without a file extension.
func findLastWord(path string) string {
	for _, s := range slices.Backward(strings.Split(path, "/")) {
		if s != "" && !strings.Contains(s, "{") {
			word, _, _ := strings.Cut(s, ".")
			return word
		}
	}
	return ""
}

// property splits a member of an object into its name and its type. ok is false for an index signature.
func property(member string) (name, ts string, ok bool) {
	if strings.HasPrefix(member, "[") {
		return "", "", false
	}
	at := strings.Index(member, ": ")
	// A quoted name may contain ": " itself.
	if strings.HasPrefix(member, `"`) {
		end := 1
		for end < len(member) && member[end] != '"' {
			if member[end] == '\\' {
				end++
			}
			end++
		}
		if end+1 >= len(member) {
			return "", "", false
		}
		if at = strings.Index(member[end:], ": "); at >= 0 {
			at += end
		}
	}
	if at < 0 {
		return "", "", false
	}
	name = strings.TrimSuffix(member[:at], "?")
	if strings.HasPrefix(name, `"`) {
		var err error
		if name, err = strconv.Unquote(braced.ReplaceAllStringFunc(name, eight)); err != nil {
			return "", "", false
		}
	}
	return name, member[at+2:], true
}

// braced matches an escaped character in a TypeScript string. Go writes it with eight digits.
var braced = regexp.MustCompile(`\\u\{[0-9a-f]{1,6}\}`)

func eight(s string) string { return fmt.Sprintf(`\U%08s`, s[3:len(s)-1]) }

// declarations builds the text that declares a client.
type declarations struct {
	doc        *Doc
	call       string
	types      strings.Builder
	operations strings.Builder
	queue      []string
	n          int
}

// declared is the start of the names of generated declarations. A document that uses such a name only spoils the check
// of its client.
const declared = "codeforge$"

// operation declares one operation.
func (c *declarations) operation(l operation.Line, key string) {
	var input []string
	needed := false
	part := func(name, ts string, required bool) {
		if ts == "" {
			return
		}
		// Each part gets a name, because the compiler shows names and not structures.
		alias := c.alias(name)
		fmt.Fprintf(&c.types, "type %s = %s;\n", alias, ts)
		mark := "?"
		if required {
			mark, needed = "", true
		}
		input = append(input, name+mark+": "+alias)
	}
	path, query := c.path(l), c.wire(merged(l.Query, c.doc.Head.Common), l.Styles)
	part("path", path, path != "")
	part("query", query, anyRequired(query))
	headers, must := c.headers(l.Headers)
	part("headers", headers, must)
	body := l.Body
	if body != "" {
		if l.BodyMedia == "application/x-www-form-urlencoded" || l.BodyMedia == "multipart/form-data" {
			body = c.wire(body, nil)
		} else {
			body = c.use(body)
		}
	}
	part("body", body, !l.BodyOptional)
	input = append(input, "signal?: any")
	answer := "any"
	if l.Answer != "" {
		answer = c.use(l.Answer)
	}
	mark := "?"
	if needed {
		mark = ""
	}
	fmt.Fprintf(&c.types, "type %s = { %s };\ntype %s = %s;\n", c.alias("input"), strings.Join(input, "; "),
		c.alias("answer"), answer)
	fmt.Fprintf(&c.operations, "  %s: { input: [input%s: %s]; answer: %s };\n", runner.Literal(key), mark,
		c.alias("input"), c.alias("answer"))
	c.n++
}

// open declares an operation with any input and answer.
func (c *declarations) open(key string) {
	fmt.Fprintf(&c.operations, "  %s: { input: [input?: any]; answer: any };\n", runner.Literal(key))
}

// alias returns the name for a part of the present operation. The compiler shows it in errors.
func (c *declarations) alias(part string) string {
	return fmt.Sprintf("%s%s$%d$%s", declared, part, c.n, c.call)
}

// use returns a type for the declarations, with any for unknown parts. It queues the types that the type names.
func (c *declarations) use(ts string) string {
	// Queued and not written at once: types may refer to each other.
	c.queue = append(c.queue, c.doc.named(ts)...)
	return lenient(ts)
}

// path declares the path's parameters.
func (c *declarations) path(l operation.Line) string {
	given := map[string]string{}
	list, _ := members(l.Params)
	for _, m := range list {
		if name, ts, ok := property(m); ok {
			given[name] = ts
		}
	}
	var out []string
	seen := map[string]bool{}
	for _, m := range inPath.FindAllStringSubmatch(l.Path, -1) {
		name := strings.TrimSuffix(m[1], "+")
		if seen[name] {
			continue
		}
		seen[name] = true
		ts := given[name]
		if ts == "" {
			ts = "string"
		}
		out = append(out, runner.Literal(name)+": "+c.text1(ts))
	}
	if len(out) == 0 {
		return ""
	}
	return "{ " + strings.Join(out, "; ") + " }"
}

var inPath = regexp.MustCompile(`\{([^{}]+)\}`)

// wire declares a type that is sent as text: a number may be a string, and a list of one may be a single value.
func (c *declarations) wire(ts string, styles map[string]string) string {
	list, ok := members(ts)
	if !ok {
		return c.use(ts)
	}
	for i, m := range list {
		name, t, ok := property(m)
		if !ok {
			list[i] = c.use(m)
			continue
		}
		one, isList := strings.CutSuffix(t, "[]")
		wide := c.text1(t)
		if isList && wide == lenient(t) { // a list of items other than words and numbers
			wide = c.use(t)
		}
		if isList && styles != nil && styles[name] == "" {
			wide += " | " + c.text1(one)
		}
		list[i] = strings.TrimSuffix(m, t) + wide
	}
	return "{ " + strings.Join(list, "; ") + " }"
}

// text1 returns the type of a value that is sent as text.
func (c *declarations) text1(ts string) string {
	switch ts {
	case "string":
		return "string | number | boolean"
	case "number":
		return "number | `${number}`"
	case "boolean":
		return `boolean | "true" | "false"`
	case "string[]":
		return "(string | number)[]"
	case "number[]":
		return "(number | `${number}`)[]"
	}
	return c.use(ts)
}

// headers declares headers. Further headers are always allowed. must reports whether a header is required.
func (c *declarations) headers(ts string) (declared string, must bool) {
	out := []string{"[name: string]: any"}
	list, _ := members(ts)
	for _, m := range list {
		name, _, ok := property(m)
		if !ok || optional(m) == 1 {
			continue
		}
		switch strings.ToLower(name) {
		case "user-agent", "host", "content-length", "accept-encoding", "connection", "content-encoding", "date", "cookie":
			continue
		}
		must = true
		out = append(out, runner.Literal(name)+": any")
	}
	return "{ " + strings.Join(out, "; ") + " }", must
}

// merged returns an object type with the properties of both.
func merged(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	first, ok1 := members(a)
	second, ok2 := members(b)
	if !ok1 || !ok2 {
		return a
	}
	known := fieldNames(a)
	for _, m := range second {
		if name, _, ok := property(m); !ok || !slices.Contains(known, name) {
			first = append(first, m)
		}
	}
	return "{ " + strings.Join(first, "; ") + " }"
}

// anyRequired reports whether an object has a required property.
func anyRequired(ts string) bool {
	list, _ := members(ts)
	return slices.ContainsFunc(list, func(m string) bool {
		return optional(m) == 0 && !strings.HasPrefix(m, "[")
	})
}

// text returns all declarations.
func (c *declarations) text() string {
	shown := map[string]bool{}
	var named strings.Builder
	for len(c.queue) > 0 {
		name := c.queue[0]
		c.queue = c.queue[1:]
		if shown[name] {
			continue
		}
		shown[name] = true
		t, _ := c.doc.Type(name)
		ts := t.TS
		// The bound leaves the name declared, so that other types stay valid.
		if c.types.Len()+named.Len()+len(ts) > maxDeclared {
			ts = "any"
		}
		fmt.Fprintf(&named, "type %s = %s;\n", name, c.use(ts))
	}
	var b strings.Builder
	b.WriteString("export {};\n") // this makes the file a module with local declarations
	b.WriteString(named.String())
	b.WriteString(c.types.String())
	fmt.Fprintf(&b, "interface %soperations {\n%s}\n", declared, c.operations.String())
	b.WriteString(strings.NewReplacer("OPERATIONS", declared+"operations", "ITEM", declared+"item",
		"CLIENT", declared+"client", "FAILED", declared+"failed", "CALL", c.call).Replace(clientTypes))
	return b.String()
}

// clientTypes declare the client. Its properties for lists are the same as in client.js.
const clientTypes = `type ITEM<A> = A extends readonly (infer T)[] ? T
  : A extends { data: readonly (infer T)[] } ? T : A extends { items: readonly (infer T)[] } ? T
  : A extends { results: readonly (infer T)[] } ? T : A extends { value: readonly (infer T)[] } ? T
  : A extends { values: readonly (infer T)[] } ? T : A extends { entries: readonly (infer T)[] } ? T
  : A extends { records: readonly (infer T)[] } ? T : any;
interface CLIENT {
  <K extends keyof OPERATIONS>(operation: K, ...input: OPERATIONS[K]["input"]): Promise<OPERATIONS[K]["answer"]>;
  raw<K extends keyof OPERATIONS>(operation: K, ...input: OPERATIONS[K]["input"]): Promise<any>;
  pages<K extends keyof OPERATIONS>(operation: K, ...input: [...OPERATIONS[K]["input"], list?: string]):
    AsyncGenerator<ITEM<OPERATIONS[K]["answer"]>, void, void>;
}
declare const api: CLIENT;
export { api as CALL };
declare const FAILED: any;
export { FAILED as ApiError };
export default api;
`

// lenient returns a type with any in place of unknown, so that code may use such values.
func lenient(ts string) string {
	if !strings.Contains(ts, "unknown") {
		return ts
	}
	var b strings.Builder
	quoted := false
	for i := 0; i < len(ts); {
		c := ts[i]
		if quoted || !letter(c) {
			if c == '\\' && quoted && i+1 < len(ts) {
				b.WriteByte(c)
				i++
				c = ts[i]
			} else if c == '"' {
				quoted = !quoted
			}
			b.WriteByte(c)
			i++
			continue
		}
		from := i
		for i < len(ts) && (letter(ts[i]) || '0' <= ts[i] && ts[i] <= '9') {
			i++
		}
		word := ts[from:i]
		if word == "unknown" && !strings.HasPrefix(strings.TrimPrefix(ts[i:], "?"), ":") {
			word = "any"
		}
		b.WriteString(word)
	}
	return b.String()
}

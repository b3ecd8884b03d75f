package apidoc

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
)

// Lengths of types in the results of a search, in characters.
const (
	longType  = 220
	shortType = 100
	// longMember bounds the type of one property in a shortened type.
	longMember = 60
)

// Detail is the amount of detail of a result.
type Detail int

// Levels of detail.
const (
	Plain Detail = iota // one line
	Short               // short types of the input
	Long                // types up to a few hundred characters
)

// ShowResult returns an operation as a search result: a line with method, path and summary, then its types.
func (d *Document) ShowResult(i int, detail Detail) string {
	l := d.Operation(i)
	if detail == Plain {
		return d.titleLine(l, shortSummary)
	}
	var b strings.Builder
	b.WriteString(d.titleLine(l, longSummary))
	most := longType
	if detail == Short {
		most = shortType
	}
	d.writePart(&b, "path", l.Params, most)
	if detail == Long {
		d.writePart(&b, "headers", l.Headers, most)
	}
	d.writePart(&b, d.queryName(), l.Query, most)
	if l.BodyMedia != "" {
		d.writePart(&b, "body ("+l.BodyMedia+")", l.Body, most)
	} else {
		d.writePart(&b, "body", l.Body, most)
	}
	if detail == Long {
		d.writePart(&b, "answers", l.Answer, most)
	} else if l.Params+l.Query+l.Body == "" {
		b.WriteString("\n  no input")
	}
	return b.String()
}

// queryName returns the name of Line.Query for a model.
func (d *Document) queryName() string {
	if d.Head.GraphQL {
		return "arguments"
	}
	return "query"
}

// Label returns the name by which a model asks for an operation.
func (d *Document) Label(i int) string { return d.labelOf(d.Operation(i)) }

// labelOf returns the method and path of an operation. In GraphQL it returns the ID. It returns both if the path means
// nothing, as in APIs whose operations are values of a header.
func (d *Document) labelOf(l operation.Line) string {
	key := l.Method + " " + l.Path
	switch {
	case d.Head.GraphQL:
		return l.ID
	case l.Path == "/" && l.ID != "":
		return key + " " + l.ID
	}
	return key
}

// Lengths of a summary, in bytes.
const longSummary, shortSummary = 120, 64

// titleLine returns the first line of an operation, with at most most bytes of its summary.
func (d *Document) titleLine(l operation.Line, most int) string {
	line := d.labelOf(l)
	if l.Server != "" {
		line = l.Method + " " + l.Server + l.Path
	}
	if l.Summary != "" {
		line += "  " + cutBytes(l.Summary, most)
	}
	if l.Deprecated {
		line += "  (deprecated)"
	}
	return line
}

// writePart writes one type on a separate line. After the name of a type it writes the type.
func (d *Document) writePart(b *strings.Builder, name, ts string, most int) {
	if ts == "" {
		return
	}
	fmt.Fprintf(b, "\n  %s %s", name, shortenType(ts, most))
	named := strings.TrimSuffix(ts, "[]")
	if d.Head.GraphQL {
		only, _ := strings.CutPrefix(ts, "{ input: ") // the form of most mutations' arguments
		named = strings.Trim(strings.TrimSuffix(only, " }"), "[]!")
	}
	// A long type leaves no room for a second one.
	if len(ts) < most/2 {
		if t, ok := d.Type(named); ok {
			b.WriteString(" " + shortenType(t.TS, most-len(ts)))
		}
	}
}

// ImportLine returns the import of the API's typed client, or "".
func (d *Document) ImportLine() string {
	if d.Head.GraphQL {
		return ""
	}
	return fmt.Sprintf("import { %s } from \"/apis/%s.ts\"", ClientName(d.Name), d.Name)
}

// HostAndTokens returns the host of an API's requests, and how they carry its tokens.
func (d *Document) HostAndTokens(tokens []string) string {
	line := "# " + d.Name + " " + d.Head.Server
	if d.Head.GraphQL && d.OperationCount() > 0 {
		_, path, _ := strings.Cut(d.OperationKey(0), " ")
		line += path + "  POST {query, variables}"
	}
	for _, a := range d.Head.Auth {
		if slices.Contains(tokens, a.Token) {
			_, where, named := strings.Cut(a.Place, ":")
			if !named {
				where = a.Place
			}
			how := "  " + where + ": " + a.Value
			if strings.HasPrefix(a.Place, "cookie:") {
				how = "  Cookie: " + where + "=" + a.Value
			}
			if !strings.HasSuffix(line, how) { // both halves of Basic have the same text
				line += how
			}
		}
	}
	return line
}

// maxFull bounds the result of ShowAll, and maxFullType one type in it, in bytes.
const (
	maxFull     = 10 << 10
	maxFullType = 2 << 10
)

// ShowAll returns all of an operation, with the types that it names.
func (d *Document) ShowAll(i int) string {
	l := d.Operation(i)
	var b strings.Builder
	b.WriteString(d.titleLine(l, longSummary))
	body := "body"
	if l.BodyMedia != "" {
		body += " (" + l.BodyMedia + ")"
	}
	shown := map[string]bool{}
	var queue []string
	for _, p := range [][2]string{
		{"path", l.Params}, {d.queryName(), l.Query}, {"query, common", d.Head.Common}, {"headers", l.Headers},
		{body, l.Body}, {"answers", l.Answer},
	} {
		if p[1] != "" {
			fmt.Fprintf(&b, "\n  %s %s", p[0], shortenType(p[1], maxFullType))
			queue = append(queue, d.typesNamedBy(p[1])...)
		}
	}
	d.writeTypes(&b, queue, shown)
	return b.String()
}

// FullType returns all of a type, with the types that it names.
func (d *Document) FullType(name string) (string, bool) {
	t, ok := d.Type(name)
	if !ok {
		return "", false
	}
	var b strings.Builder
	fmt.Fprintf(&b, "type %s = %s", t.Type, shortenType(t.TS, maxFull))
	d.writeTypes(&b, d.typesNamedBy(t.TS), map[string]bool{name: true})
	return b.String(), true
}

// writeTypes writes the types of a list as far as they fit, and names the others.
func (d *Document) writeTypes(b *strings.Builder, queue []string, shown map[string]bool) {
	var left []string
	for _, name := range queue {
		if shown[name] {
			continue
		}
		shown[name] = true
		t, _ := d.Type(name)
		if b.Len()+min(len(t.TS), maxFullType) > maxFull {
			left = append(left, name)
			continue
		}
		fmt.Fprintf(b, "\ntype %s = %s", name, shortenType(t.TS, maxFullType))
	}
	if len(left) > 0 {
		fmt.Fprintf(b, "\nFurther types, for operation: %s", cutBytes(strings.Join(left, ", "), 500))
	}
}

// maxNamed bounds the result of named.
const maxNamed = 400

// typesNamedBy returns the document's types that a type names, in their order.
func (d *Document) typesNamedBy(ts string) []string {
	var out []string
	eachTypeWord(ts, func(word string, reference bool) {
		if !reference || len(out) == maxNamed {
			return
		}
		if _, ok := slices.BinarySearch(d.types, word); ok && !slices.Contains(out, word) {
			out = append(out, word)
		}
	})
	return out
}

// FindOperation returns the operation that a text names: by method and path, or by a path with only one method.
func (d *Document) FindOperation(text string) (int, bool) {
	text = strings.Join(strings.Fields(text), " ")
	for _, name := range []string{text, "query " + text, "mutation " + text} {
		if i, ok := d.ids[name]; ok {
			return i, true
		}
	}
	found, at := 0, 0
	for i := range d.OperationCount() {
		key := d.OperationKey(i)
		// An exact key wins over a path that several methods have.
		if key == text {
			return i, true
		}
		if _, path, _ := strings.Cut(key, " "); path == text {
			found, at = found+1, i
		}
	}
	return at, found == 1
}

// maxGroups bounds the result of OperationGroups.
const maxGroups = 80

// OperationGroups returns the groups of the API, largest first, each with its number of operations: "refunds 5".
func (d *Document) OperationGroups() []string { return d.groups }

// listLargestGroups returns groups in the form of OperationGroups.
func listLargestGroups(count map[string]int) []string {
	names := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(count[b]-count[a], strings.Compare(a, b))
	})
	out := []string{}
	for i, n := range names {
		if i == maxGroups {
			out = append(out, fmt.Sprintf("%d more groups", len(names)-i))
			break
		}
		out = append(out, fmt.Sprintf("%s %d", n, count[n]))
	}
	return out
}

// groupOf returns the first tag, or the first segment of the path that is not a version.
func groupOf(l operation.Line) string {
	if len(l.Tags) > 0 {
		return cutBytes(l.Tags[0], 40)
	}
	for segment := range strings.SplitSeq(strings.Trim(l.Path, "/"), "/") {
		version := len(segment) > 1 && segment[0] == 'v' && strings.Trim(segment[1:], "0123456789.") == ""
		if segment != "" && segment[0] != '{' && !version && segment != "api" {
			return cutBytes(segment, 40)
		}
	}
	return "/"
}

// shortenType shortens a type to about most characters: required properties first, then as many others as fit, then the
// number of the rest.
func shortenType(ts string, most int) string {
	list, ok := objectMembers(ts)
	if !ok {
		return cutBytes(ts, most)
	}
	whole := len(ts) <= most
	// Required properties come first, because a call without them fails.
	slices.SortStableFunc(list, func(a, b string) int { return countOptional(a) - countOptional(b) })
	var b strings.Builder
	b.WriteString("{ ")
	for i, m := range list {
		if short := shortenMember(m); !whole && len(short) < len(m) {
			m = short
		}
		// The first property is always shown.
		if b.Len()+len(m) > most && i > 0 && !whole {
			fmt.Fprintf(&b, "…%d more ", len(list)-i)
			break
		}
		b.WriteString(cutBytes(m, most))
		if !whole || i < len(list)-1 {
			b.WriteString(";")
		}
		b.WriteString(" ")
	}
	return b.String() + "}"
}

func countOptional(member string) int {
	name, _, _ := strings.Cut(member, ":")
	if strings.HasSuffix(name, "?") {
		return 1
	}
	return 0
}

// shortenMember shortens the type of a property: a long object becomes {…}, and a long union loses its end.
func shortenMember(member string) string {
	name, ts, ok := strings.Cut(member, ": ")
	if !ok || len(ts) <= longMember {
		return member
	}
	if _, ok := objectMembers(strings.TrimSuffix(ts, "[]")); ok {
		if strings.HasSuffix(ts, "[]") {
			return name + ": {…}[]"
		}
		return name + ": {…}"
	}
	var b strings.Builder
	for i, part := range splitOutside(ts, '|') {
		if i > 0 && b.Len()+len(part) > longMember {
			return name + ": " + b.String() + " | …"
		}
		if i > 0 {
			b.WriteString(" | ")
		}
		b.WriteString(cutBytes(part, longMember))
	}
	return name + ": " + b.String()
}

// objectMembers returns the properties of an object's type. ok is false for any other type.
func objectMembers(ts string) ([]string, bool) {
	if !strings.HasPrefix(ts, "{") || !strings.HasSuffix(ts, "}") {
		return nil, false
	}
	list := splitOutside(ts[1:len(ts)-1], ';')
	return list, len(list) > 0
}

// splitOutside splits a type at a separator outside of brackets and literals.
func splitOutside(ts string, separator byte) []string {
	var out []string
	depth, from, quoted := 0, 0, false
	for i := 0; i < len(ts); i++ {
		switch c := ts[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '(' || c == '[' || c == '<':
			depth++
		case c == '}' || c == ')' || c == ']' || c == '>':
			depth--
		case c == separator && depth == 0:
			if part := strings.TrimSpace(ts[from:i]); part != "" {
				out = append(out, part)
			}
			from = i + 1
		}
	}
	if part := strings.TrimSpace(ts[from:]); part != "" {
		out = append(out, part)
	}
	return out
}

// cutBytes shortens a text to at most most bytes, at the end of a character.
func cutBytes(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.TrimRight(safetext.CutText(s, max(most-len("…"), 0), ""), " ") + "…"
}

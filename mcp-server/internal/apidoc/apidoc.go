// Package apidoc holds the operations of one API from its operations.jsonl. They are indexed for search and stored
// compressed, because a document may have tens of thousands of operations of which a model needs eight.
package apidoc

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/search"
)

// block is the size of a compressed block, in bytes. Reading one line means unpacking up to one block.
const block = 24 << 10

// Document holds the operations and types of one API. It is immutable.
type Document struct {
	Name  string
	Head  operation.Head
	Index *search.Index // its entries are the operations, in the same order

	blocks [][]byte
	lines  []linePosition // the operations, then the types
	keys   string         // "GET /v1/refunds", concatenated
	ends   []uint32       // the end of each key
	types  []string       // names, in order
	typeAt []uint32       // the line of each type
	groups []string       // the result of OperationGroups
	ids    map[string]int // operations by label, if it differs from method and path
}

type linePosition struct{ block, from, to uint32 }

// ReadDocument reads an operations.jsonl. It rejects the same input as operation.Reader.
func ReadDocument(name string, r io.Reader) (*Document, error) {
	lines, err := operation.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("reading the operations of %s: %w", name, err)
	}
	d := &Document{Name: name, Head: lines.Head(), ids: map[string]int{}}
	p := linePacker{doc: d}
	builder := search.NewBuilder(name)
	var keys []byte
	type named struct {
		name string
		line uint32
	}
	var types []named
	var typeLines []operation.Line
	groups := map[string]int{}
	for {
		l, err := lines.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading the operations of %s: %w", name, err)
		}
		if l.Type != "" { // stored after the operations, in any order of the file
			typeLines = append(typeLines, l)
			continue
		}
		indexOperation(builder, d, l)
		// Only the index needs the words, which are the largest part of many lines.
		l.Words = ""
		keys = append(keys, l.Method+" "+l.Path...)
		d.ends = append(d.ends, uint32(len(keys)))
		groups[groupOf(l)]++
		if label := d.labelOf(l); label != l.Method+" "+l.Path {
			// Of several operations with one label the first is found.
			if _, known := d.ids[label]; !known {
				d.ids[label] = d.OperationCount() - 1
			}
		}
		if err := p.addLine(l); err != nil {
			return nil, err
		}
	}
	for _, l := range typeLines {
		types = append(types, named{strings.Clone(l.Type), uint32(len(d.lines))})
		if err := p.addLine(l); err != nil {
			return nil, err
		}
	}
	if err := p.flushBlock(); err != nil {
		return nil, err
	}
	// Sorted for the binary search of Type.
	slices.SortStableFunc(types, func(a, b named) int { return strings.Compare(a.name, b.name) })
	for _, t := range types {
		d.types, d.typeAt = append(d.types, t.name), append(d.typeAt, t.line)
	}
	d.keys, d.Index, d.groups = string(keys), builder.BuildIndex(), listLargestGroups(groups)
	d.lines, d.ends = slices.Clip(d.lines), slices.Clip(d.ends)
	return d, nil
}

// linePacker compresses lines in blocks.
type linePacker struct {
	doc   *Document
	text  []byte
	write *flate.Writer
}

func (p *linePacker) addLine(l operation.Line) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	from := uint32(len(p.text))
	p.text = append(p.text, text...)
	p.doc.lines = append(p.doc.lines, linePosition{uint32(len(p.doc.blocks)), from, uint32(len(p.text))})
	// A block ends after a line, so that no line spans two blocks.
	if len(p.text) >= block {
		return p.flushBlock()
	}
	return nil
}

func (p *linePacker) flushBlock() error {
	var out bytes.Buffer
	var err error
	// The writer is reused, because a new one allocates its tables again.
	if p.write == nil {
		p.write, err = flate.NewWriter(&out, flate.DefaultCompression)
	} else {
		p.write.Reset(&out)
	}
	if err == nil {
		_, err = p.write.Write(p.text)
	}
	if err == nil {
		err = p.write.Close()
	}
	p.doc.blocks = append(p.doc.blocks, bytes.Clone(out.Bytes()))
	p.text = p.text[:0]
	return err
}

// OperationCount returns the number of operations.
func (d *Document) OperationCount() int { return len(d.ends) }

// OperationKey returns an operation's method and path, such as "POST /v1/refunds".
func (d *Document) OperationKey(i int) string {
	if i == 0 {
		return d.keys[:d.ends[0]]
	}
	return d.keys[d.ends[i-1]:d.ends[i]]
}

// Operation returns an operation in full.
func (d *Document) Operation(i int) operation.Line { return d.readLine(d.lines[i]) }

// Type returns a type by its name.
func (d *Document) Type(name string) (operation.Line, bool) {
	i, ok := slices.BinarySearch(d.types, name)
	if !ok {
		return operation.Line{}, false
	}
	return d.readLine(d.lines[d.typeAt[i]]), true
}

// readLine reads a line. packer wrote the block, so an error cannot happen; it would give an empty line.
func (d *Document) readLine(p linePosition) operation.Line {
	r := flate.NewReader(bytes.NewReader(d.blocks[p.block]))
	text := make([]byte, p.to)
	var l operation.Line
	// Unpacked only up to the end of the line.
	if _, err := io.ReadFull(r, text); err == nil {
		_ = json.Unmarshal(text[p.from:], &l)
	}
	return l
}

// indexOperation adds an operation to an index. As words, the end of its path counts most, and the names in its types
// least. The weights of the meaning must be the same as in rank.py, which trains the vectors.
func indexOperation(b *search.Builder, d *Document, l operation.Line) {
	path, last := pathWords(l.Path)
	does := operationKind(l)
	if d.Head.GraphQL {
		// All operations of GraphQL have one path, so the field's name takes its place.
		_, last, _ = strings.Cut(l.ID, " ")
		path, does = last, kindOfField(l)
	}
	tags, words := strings.Join(l.Tags, " "), strings.Fields(l.Words)
	brief, long := min(20, len(words)), min(50, len(words))
	b.AddEntry(search.IndexEntry{
		Kind: does, Title: l.Summary,
		Meaning: []search.WeightedText{
			{Text: d.Name, Weight: 1}, {Text: tags, Weight: 1}, {Text: l.Summary, Weight: 1.5}, {Text: l.ID, Weight: 1},
			{Text: path, Weight: 1}, {Text: last, Weight: 0.3}, {Text: listParameters(l.Path), Weight: 0.3},
			{Text: strings.Join(words[:brief], " "), Weight: 0.7}, {Text: strings.Join(words[brief:long], " "), Weight: 0.3},
			{Text: describeKind(does), Weight: 0.3},
		},
		Fields: []search.Field{
			{Text: last, Weight: 2.2, Bound: 1},
			{Text: path, Weight: 1.4, Bound: 3, Most: 40},
			{Text: l.Summary, Weight: 2.4, Bound: 8},
			{Text: l.ID, Weight: 1.4, Bound: 5},
			{Text: l.Words, Weight: 1.1, Bound: 12},
			{Text: tags, Weight: 0.8, Bound: 3},
			{Text: wordsInType(l.Query, false), Weight: 0.25, Most: 40},
			{Text: wordsInType(l.Body, false), Weight: 0.9, Bound: 8, Most: 60},
			{Text: wordsInType(l.Body+" "+l.Answer, true), Weight: 0.6, Bound: 4, Most: 20},
		},
	})
}

func listParameters(path string) string {
	var names strings.Builder
	for _, after := range strings.Split(path, "{")[1:] {
		name, _, _ := strings.Cut(after, "}")
		names.WriteString(name + " ")
	}
	return names.String()
}

// describeKind returns verbs that people use for an action.
func describeKind(k search.Kind) string {
	switch {
	case k&search.Read != 0:
		return "get list"
	case k&search.Delete != 0:
		return "delete remove"
	case k&search.Change != 0:
		return "update replace"
	}
	return "create add"
}

// pathWords returns the words of a path without its parameters, and the words of the last segment that has any.
func pathWords(path string) (all, last string) {
	for segment := range strings.SplitSeq(path, "/") {
		var b strings.Builder
		depth := 0
		for _, r := range segment {
			switch {
			case r == '{':
				depth++
			case r == '}':
				depth--
			case depth == 0:
				b.WriteRune(r)
			}
		}
		s := strings.TrimSuffix(b.String(), ".json")
		if all != "" && strings.Count(s, ".") > 1 { // OData's qualified names: microsoft.graph.forward
			s = s[strings.LastIndexByte(s, '.')+1:]
		}
		if strings.Trim(s, ".:()'") != "" {
			all, last = all+" "+s, s
		}
	}
	return all, last
}

// wordsInType returns the names of other types in a type, or its other names and its literals.
func wordsInType(ts string, references bool) string {
	var b strings.Builder
	eachTypeWord(ts, func(word string, reference bool) {
		if reference == references {
			b.WriteString(word + " ")
		}
	})
	return b.String()
}

// eachTypeWord calls f for the words of TypeScript that are not keywords. A word after a colon, or alone, refers to a
// type. A word before a colon is the name of a property.
func eachTypeWord(ts string, f func(word string, reference bool)) {
	value, quoted := true, byte(0)
	var firsts []bool // for each open bracket: whether its parts start with a type
	for i := 0; i < len(ts); {
		c := ts[i]
		switch {
		case quoted != 0:
			if c == quoted {
				quoted = 0
			}
		case c == '"' || c == '\'':
			quoted = c
		case c == '{' || c == '<' || c == '(' || c == '[':
			// Inside < there are types; inside { the names of properties come first.
			value = c == '<' || c != '{' && value
			firsts = append(firsts, value)
		case len(firsts) > 0 && (c == '}' || c == '>' || c == ')' || c == ']'):
			firsts = firsts[:len(firsts)-1]
		case len(firsts) > 0 && (c == ';' || c == ','):
			value = firsts[len(firsts)-1]
		case c == ':' || c == '|' || c == '&':
			value = true
		}
		if !isLetter(c) {
			i++
			continue
		}
		from := i
		for i < len(ts) && (isLetter(ts[i]) || '0' <= ts[i] && ts[i] <= '9') {
			i++
		}
		switch word := ts[from:i]; word {
		case "string", "number", "boolean", "unknown", "null", "true", "false", "Record", "undefined", "never", "any",
			"Array", "Blob":
		default:
			f(word, value && quoted == 0)
		}
	}
}

func isLetter(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c == '$'
}

// kindOfField returns the kind of a field of a GraphQL root type.
func kindOfField(l operation.Line) search.Kind {
	if query, _, _ := strings.Cut(l.ID, " "); query == "query" {
		if strings.HasPrefix(l.Answer, "[") || strings.HasSuffix(strings.TrimSuffix(l.Answer, "!"), "Connection") {
			return search.Read | search.Collection | deprecatedKind(l)
		}
		return search.Read | deprecatedKind(l)
	}
	k := search.Kind(0)
	search.EachWord(l.ID, func(w string) {
		if k == 0 {
			k = search.VerbKind(w)
		}
	})
	// A mutation without a known verb changes data in some way.
	if k == 0 || k == search.Read {
		k = search.Create | search.Change
	}
	return k | deprecatedKind(l)
}

func deprecatedKind(l operation.Line) search.Kind {
	if l.Deprecated {
		return search.Deprecated
	}
	return 0
}

// operationKind returns the kind of an operation. If the API uses POST for everything, the operation's name decides.
func operationKind(l operation.Line) search.Kind {
	var k search.Kind
	switch l.Method {
	case "GET", "HEAD", "QUERY", "OPTIONS":
		k = search.Read
	case "POST":
		k = search.Create
	case "DELETE":
		k = search.Delete
	default:
		k = search.Change
	}
	_, last := pathWords(l.Path)
	// Many APIs use POST for reading too, so the verb in the name decides.
	if first := true; l.Method == "POST" {
		search.EachWord(last+" "+l.ID, func(w string) {
			if verb := search.VerbKind(w); verb != 0 && first {
				k, first = verb, false
			}
		})
		end := strings.TrimSuffix(l.Path[strings.LastIndexByte(l.Path, '/')+1:], ".json")
		if first && !strings.HasPrefix(end, "{") && strings.ContainsAny(end, ".:") {
			k = 0 // an action with an unknown verb, such as microsoft.graph.provisionEmail
		}
	}
	// A parameter before the last resource means that the resource is a part of another.
	if at := strings.Index(l.Path, "}/"); at >= 0 && strings.Count(l.Path[:at], "/") > 1 {
		k |= search.Nested
	}
	if k&^search.Nested == search.Read && !strings.HasSuffix(strings.TrimSuffix(l.Path, ".json"), "}") {
		k |= search.Collection
	}
	return k | deprecatedKind(l)
}

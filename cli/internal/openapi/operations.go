package openapi

import (
	"net/url"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/cli/internal/document"
	"github.com/codeforge-mcp/codeforge/internal/jsonread"
)

const (
	// maxOperations bounds the operations of a document, maxMembers the members of its paths and operations. References
	// can share both, and each use counts.
	maxOperations = 100_000
	maxMembers    = 10_000_000
	// maxShared bounds a list that many operations may share.
	maxShared = 100
)

// atMost returns the first members of a list.
func atMost(list []jsonread.Member, most int) []jsonread.Member { return list[:min(len(list), most)] }

// each visits the operations in the document's order.
func (im *importer) each(visit func(path, method string, item, op *jsonread.Node)) {
	n, members := 0, 0
	for _, group := range []string{"paths", "x-ms-paths"} {
		for _, p := range im.root.Get(group).Maps() {
			item := im.refs.resolve(p.Node)
			// Many paths can refer to one large item.
			if members += len(item.Maps()); members > maxMembers {
				return
			}
			for _, m := range item.Maps() {
				method := strings.ToUpper(m.Key)
				if !m.Node.Is(jsonread.Object) || !slices.Contains(operation.Methods(), method) || strings.ToLower(m.Key) != m.Key {
					continue
				}
				members += len(item.Members) + len(m.Node.Members)
				if n++; n > maxOperations {
					return
				}
				visit(p.Key, method, item, m.Node)
			}
		}
	}
}

// operations writes a line for each operation.
func (im *importer) operations() {
	shared := im.shared()
	seen := map[string]bool{}
	im.each(func(path, method string, item, op *jsonread.Node) {
		if im.o.Methods != nil && !slices.Contains(im.o.Methods, method) {
			return
		}
		where, err := cleanPath(path)
		if err != nil {
			im.out.Note("an operation was left out: %v", err)
			return
		}
		l := operation.Line{Method: method, Path: where, Deprecated: deprecated(op)}
		l.ID = document.Line(op.Str("operationId"), operation.MaxID)
		key := l.Method + " " + l.Path + " " + l.ID
		// Two entries of one path can become equal in cleanPath.
		if seen[key] {
			return
		}
		seen[key] = true
		im.words(&l, op)
		server, ok := im.own(op, item)
		if !ok {
			return
		}
		l.Server = server
		im.parameters(&l, item, op, shared)
		im.answer(&l, op)
		im.fit(&l)
		im.out.Operations = append(im.out.Operations, l)
	})
	im.out.Head.Common = im.gen.object(shared.query)
}

// fit shortens a line that is too long: it replaces its largest types by unknown.
func (im *importer) fit(l *operation.Line) {
	for _, part := range []*string{&l.Answer, &l.Body, &l.Query, &l.Headers, &l.Params} {
		if _, err := operation.Marshal(l); err == nil {
			return
		}
		if *part != "" {
			*part = unknown
			im.gen.cutOff++
		}
	}
}

// words sets an operation's summary and tags, and further words for search.
func (im *importer) words(l *operation.Line, op *jsonread.Node) {
	const long = 160
	texts := []string{op.Str("description")}
	l.Summary = document.Sentence(op.Str("summary"), long)
	about := document.Sentence(op.Str("description"), long)
	if about != "" && (l.Summary == "" || saysNothing(l.Summary)) {
		l.Summary = about
	}
	for _, t := range atMost(op.Get("tags").Items(), maxShared) {
		if tag := document.Line(t.Node.Text, operation.MaxTag); tag != "" && len(l.Tags) < operation.MaxTags {
			l.Tags = append(l.Tags, tag)
			texts = append(texts, im.tags[t.Node.Text])
		}
	}
	l.Words = document.Words(l.Summary, texts...)
}

// saysNothing reports whether a summary only repeats the end of the path. Microsoft's OData converter writes such
// summaries for actions and functions.
func saysNothing(summary string) bool {
	name, made := strings.CutPrefix(summary, "Invoke action ")
	if !made {
		name, made = strings.CutPrefix(summary, "Invoke function ")
	}
	return made && !strings.Contains(name, " ")
}

// deprecated reports whether a document marks an operation as deprecated, in any common way.
func deprecated(op *jsonread.Node) bool {
	return op.True("deprecated") || op.True("x-deprecated") || op.True("x-is-deprecated") ||
		document.Outdated(op.Str("summary")) || document.Outdated(op.Str("description"))
}

// cleanPath returns a path in the form of requests: in ASCII, and without a fragment. Some documents use fragments to
// distinguish operations of one path.
func cleanPath(path string) (string, error) {
	path, _, _ = strings.Cut(path, "#")
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	var b strings.Builder
	for i := range len(path) {
		switch c := path[i]; {
		case c <= ' ' || c >= 0x7f || c == '\\' || c == '"' || c == '<' || c == '>':
			b.WriteString(url.PathEscape(string(c))) // bytes, not characters: UTF-8 is escaped byte by byte
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), operation.CheckPath(b.String())
}

// field is a parameter, or a field of a form.
type field struct {
	name     string
	required bool
	schema   typ
}

// params returns an operation's parameters with their definitions. Those of the operation override those of the path.
func (im *importer) params(item, op *jsonread.Node) []*jsonread.Node {
	var out []*jsonread.Node
	at := map[string]int{}
	for _, list := range []*jsonread.Node{item.Get("parameters"), op.Get("parameters")} {
		for _, m := range atMost(list.Items(), maxParameters) {
			p := im.refs.resolve(m.Node)
			if p.Str("name") == "" || len(out) >= maxParameters {
				continue
			}
			key := p.Str("in") + ":" + p.Str("name")
			if i, twice := at[key]; twice {
				out[i] = p
				continue
			}
			at[key] = len(out)
			out = append(out, p)
		}
	}
	return out
}

const maxParameters = 500

// common are the optional parameters that nearly all operations share.
type common struct {
	query []field
	keys  map[string]bool
}

// shared finds the common parameters: more than 70 % of at least 10 operations have them.
func (im *importer) shared() common {
	const few, percent = 10, 70
	operations := 0
	count, first := map[string]int{}, map[string]*jsonread.Node{}
	var order []string
	im.each(func(_, _ string, item, op *jsonread.Node) {
		operations++
		for _, p := range im.params(item, op) {
			in := p.Str("in")
			if in != "query" && in != "header" || p.True("required") {
				continue
			}
			key := in + ":" + p.Str("name")
			if count[key]++; count[key] == 1 {
				first[key] = p
				order = append(order, key)
			}
		}
	})
	out := common{keys: map[string]bool{}}
	for _, key := range order {
		if operations < few || count[key]*100 <= operations*percent {
			continue
		}
		out.keys[key] = true
		if p := first[key]; p.Str("in") == "query" && !im.credential("query:"+p.Str("name")) {
			out.query = append(out.query, field{name: p.Str("name"), schema: im.parameterType(p)})
		}
	}
	return out
}

// credential reports whether a place is that of a token.
func (im *importer) credential(place string) bool {
	for _, t := range im.out.Scheme.Tokens {
		if strings.EqualFold(t.Place, place) {
			return true
		}
	}
	return false
}

// parameters writes the parameters and the body of an operation.
func (im *importer) parameters(l *operation.Line, item, op *jsonread.Node, shared common) {
	var path, query, headers, form []field
	plain := true
	var body *jsonread.Node
	for _, p := range im.params(item, op) {
		in, name := p.Str("in"), p.Str("name")
		// The proxy inserts the credential: code must not be asked for it.
		if !p.True("required") && shared.keys[in+":"+name] || im.credential(in+":"+name) {
			continue
		}
		f := field{name: name, required: p.True("required")}
		switch in {
		case "body":
			body = p
			continue
		case "header":
			switch strings.ToLower(name) {
			// OpenAPI says to ignore these parameters: the body and the scheme define them.
			case "accept", "content-type", "authorization":
				continue
			}
		case "path", "query", "formData":
		default:
			continue
		}
		f.schema = im.parameterType(p)
		switch in {
		case "header":
			headers = append(headers, f)
		case "path":
			// A path parameter is always required (OpenAPI 3, Parameter Object).
			f.required = true
			plain = plain && f.schema.text == "string"
			path = append(path, f)
		case "query":
			query = append(query, f)
			im.style(l, p, f)
		case "formData":
			form = append(form, f)
		}
	}
	if !plain {
		l.Params = im.gen.object(path)
	}
	l.Query, l.Headers = im.gen.object(query), im.gen.object(headers)
	switch {
	case im.swagger && body != nil:
		l.Body, l.BodyMedia = im.gen.schema(body.Get("schema"), context{input: true}).text, im.consumes(op, "")
		l.BodyOptional = !body.True("required")
	case len(form) > 0:
		l.Body, l.BodyMedia = im.gen.object(form), im.consumes(op, formMedia)
		l.BodyOptional = !slices.ContainsFunc(form, func(f field) bool { return f.required })
		if slices.ContainsFunc(form, func(f field) bool { return f.schema.text == blob }) {
			l.BodyMedia = multipart
		}
	case !im.swagger:
		im.body(l, im.refs.resolve(op.Get("requestBody")))
	}
	if l.BodyMedia == jsonMedia {
		l.BodyMedia = ""
	}
}

// style records how a parameter is written if that differs from the default.
func (im *importer) style(l *operation.Line, p *jsonread.Node, f field) {
	way := ""
	list := strings.HasSuffix(f.schema.text, "[]")
	switch style := p.Str("style"); {
	case p.Get("content") != nil:
		way = "json"
	case style == "deepObject":
		way = "deep"
	case im.swagger && list:
		way = map[string]string{"multi": "", "ssv": "space", "pipes": "pipe", "tsv": "tab"}[p.Str("collectionFormat")]
		if c := p.Str("collectionFormat"); c == "" || c == "csv" {
			way = "comma"
		}
	case style == "spaceDelimited" && list:
		way = "space"
	case style == "pipeDelimited" && list:
		way = "pipe"
	case p.Str("explode") == "false" && list:
		way = "comma"
	}
	setStyle(l, f.name, way)
}

// setStyle records how one parameter or field is written, unless that is the default or already recorded.
func setStyle(l *operation.Line, name, way string) {
	_, said := l.Styles[name]
	if way == "" || said || len(l.Styles) >= operation.MaxStyles || document.Line(name, operation.MaxTag) != name {
		return
	}
	if l.Styles == nil {
		l.Styles = map[string]string{}
	}
	l.Styles[name] = way
}

// parameterType returns the type of a parameter.
func (im *importer) parameterType(p *jsonread.Node) typ {
	c := context{input: true}
	switch {
	case p.Get("schema") != nil:
		return im.gen.schema(p.Get("schema"), c)
	case im.swagger:
		return im.gen.schema(p, c)
	}
	for _, m := range p.Get("content").Maps() {
		return im.gen.schema(m.Node.Get("schema"), c)
	}
	return typ{text: "string"}
}

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

func takeAtMost(list []jsonread.Member, most int) []jsonread.Member {
	return list[:min(len(list), most)]
}

// eachOperation visits the operations in the document's order.
func (im *docImporter) eachOperation(visit func(path, method string, item, op *jsonread.Node)) {
	n, members := 0, 0
	for _, group := range []string{"paths", "x-ms-paths"} {
		for _, p := range im.root.GetValue(group).ObjectMembers() {
			item := im.refs.followRefs(p.Node)
			// Many paths can refer to one large item.
			if members += len(item.ObjectMembers()); members > maxMembers {
				return
			}
			for _, m := range item.ObjectMembers() {
				method := strings.ToUpper(m.Key)
				if !m.Node.Is(jsonread.Object) || !slices.Contains(operation.ListMethods(), method) ||
					strings.ToLower(m.Key) != m.Key {
					continue
				}
				members += len(item.Members) + len(m.Node.Members) +
					len(item.GetValue("parameters").ListItems()) + len(m.Node.GetValue("parameters").ListItems())
				if n++; n > maxOperations {
					return
				}
				visit(p.Key, method, item, m.Node)
			}
		}
	}
}

func (im *docImporter) writeOperations() {
	shared := im.findCommon()
	seen := map[string]bool{}
	im.eachOperation(func(path, method string, item, op *jsonread.Node) {
		if im.o.Methods != nil && !slices.Contains(im.o.Methods, method) {
			return
		}
		where, err := cleanPath(path)
		if err != nil {
			im.out.AddNote("an operation was left out: %v", err)
			return
		}
		l := im.describeOperation(op)
		l.Method, l.Path = method, where
		key := l.Method + " " + l.Path + " " + l.ID
		// Two entries of one path can become equal in cleanPath.
		if seen[key] {
			return
		}
		seen[key] = true
		server, ok := im.ownServer(op, item)
		if !ok {
			return
		}
		l.Server = server
		im.writeParameters(&l, item, op, shared)
		im.writeAnswer(&l, op)
		im.shortenLine(&l)
		im.out.Operations = append(im.out.Operations, l)
	})
	im.out.Head.Common = im.gen.writeObject(shared.query)
}

// shortenLine shortens a line that is too long: it replaces its largest types by unknown.
func (im *docImporter) shortenLine(l *operation.Line) {
	for _, part := range []*string{&l.Answer, &l.Body, &l.Query, &l.Headers, &l.Params} {
		if _, err := operation.MarshalLine(l); err == nil {
			return
		}
		if *part != "" {
			*part = unknown
			im.gen.cutOff++
		}
	}
}

// describeOperation returns a line with an operation's ID, summary and tags, and further words for search.
func (im *docImporter) describeOperation(op *jsonread.Node) operation.Line {
	if l, known := im.words[op]; known {
		return l
	}
	const long = 160
	l := operation.Line{Deprecated: isDeprecated(op)}
	l.ID = document.CleanLine(op.TextOf("operationId"), operation.MaxID)
	texts := []string{op.TextOf("description")}
	l.Summary = document.FirstSentence(op.TextOf("summary"), long)
	about := document.FirstSentence(op.TextOf("description"), long)
	if about != "" && (l.Summary == "" || isGenerated(l.Summary)) {
		l.Summary = about
	}
	for _, t := range takeAtMost(op.GetValue("tags").ListItems(), maxShared) {
		if tag := document.CleanLine(t.Node.Text, operation.MaxTag); tag != "" && len(l.Tags) < operation.MaxTags {
			l.Tags = append(l.Tags, tag)
			texts = append(texts, im.tags[t.Node.Text])
		}
	}
	l.Words = document.SearchWords(l.Summary, texts...)
	im.words[op] = l
	return l
}

// isGenerated reports whether a summary only repeats the end of the path. Microsoft's OData converter writes such
// summaries for actions and functions.
func isGenerated(summary string) bool {
	name, made := strings.CutPrefix(summary, "Invoke action ")
	if !made {
		name, made = strings.CutPrefix(summary, "Invoke function ")
	}
	return made && !strings.Contains(name, " ")
}

// isDeprecated reports whether a document marks an operation as deprecated, in any common way.
func isDeprecated(op *jsonread.Node) bool {
	return op.IsTrue("deprecated") || op.IsTrue("x-deprecated") || op.IsTrue("x-is-deprecated") ||
		document.IsDeprecated(op.TextOf("summary")) || document.IsDeprecated(op.TextOf("description"))
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

type formField struct {
	name     string
	required bool
	schema   tsType
}

// resolveParams returns an operation's parameters with their definitions. Those of the operation override those of the
// path.
func (im *docImporter) resolveParams(item, op *jsonread.Node) []*jsonread.Node {
	var out []*jsonread.Node
	at := map[string]int{}
	for _, list := range []*jsonread.Node{item.GetValue("parameters"), op.GetValue("parameters")} {
		for _, m := range takeAtMost(list.ListItems(), maxParameters) {
			p := im.refs.followRefs(m.Node)
			if p.TextOf("name") == "" || len(out) >= maxParameters {
				continue
			}
			key := p.TextOf("in") + ":" + p.TextOf("name")
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

// commonParams are the optional parameters that nearly all operations share.
type commonParams struct {
	query []formField
	keys  map[string]bool
}

// findCommon finds the common parameters: more than 70 % of at least 10 operations have them.
func (im *docImporter) findCommon() commonParams {
	const few, percent = 10, 70
	operations := 0
	count, first := map[string]int{}, map[string]*jsonread.Node{}
	var order []string
	im.eachOperation(func(_, _ string, item, op *jsonread.Node) {
		operations++
		for _, p := range im.resolveParams(item, op) {
			in := p.TextOf("in")
			if in != "query" && in != "header" || p.IsTrue("required") {
				continue
			}
			key := in + ":" + p.TextOf("name")
			if count[key]++; count[key] == 1 {
				first[key] = p
				order = append(order, key)
			}
		}
	})
	out := commonParams{keys: map[string]bool{}}
	for _, key := range order {
		if operations < few || count[key]*100 <= operations*percent {
			continue
		}
		out.keys[key] = true
		if p := first[key]; p.TextOf("in") == "query" && !im.isTokenPlace("query:"+p.TextOf("name")) {
			out.query = append(out.query, formField{name: p.TextOf("name"), schema: im.parameterType(p)})
		}
	}
	return out
}

func (im *docImporter) isTokenPlace(place string) bool {
	return slices.ContainsFunc(im.out.Scheme.Tokens, func(t document.Token) bool {
		return strings.EqualFold(t.Place, place)
	})
}

func (im *docImporter) writeParameters(l *operation.Line, item, op *jsonread.Node, shared commonParams) {
	var path, query, headers, form []formField
	plain := true
	var body *jsonread.Node
	for _, p := range im.resolveParams(item, op) {
		in, name := p.TextOf("in"), p.TextOf("name")
		// The proxy inserts the credential: code must not be asked for it.
		if !p.IsTrue("required") && shared.keys[in+":"+name] || im.isTokenPlace(in+":"+name) {
			continue
		}
		f := formField{name: name, required: p.IsTrue("required")}
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
			im.setStyle(l, p, f)
		case "formData":
			form = append(form, f)
		}
	}
	if !plain {
		l.Params = im.gen.writeObject(path)
	}
	l.Query, l.Headers = im.gen.writeObject(query), im.gen.writeObject(headers)
	switch {
	case im.swagger && body != nil:
		l.Body, l.BodyMedia = im.gen.writeSchema(body.GetValue("schema"), schemaContext{input: true}).text,
			im.bodyMedia(op, "")
		l.BodyOptional = !body.IsTrue("required")
	case len(form) > 0:
		l.Body, l.BodyMedia = im.gen.writeObject(form), im.bodyMedia(op, formMedia)
		l.BodyOptional = !slices.ContainsFunc(form, func(f formField) bool { return f.required })
		if slices.ContainsFunc(form, func(f formField) bool { return f.schema.text == blob }) {
			l.BodyMedia = multipart
		}
	case !im.swagger:
		im.writeBody(l, im.refs.followRefs(op.GetValue("requestBody")))
	}
	if l.BodyMedia == jsonMedia {
		l.BodyMedia = ""
	}
}

// setStyle records how a parameter is written if that differs from the default.
func (im *docImporter) setStyle(l *operation.Line, p *jsonread.Node, f formField) {
	way := ""
	list := strings.HasSuffix(f.schema.text, "[]")
	switch style := p.TextOf("style"); {
	case p.GetValue("content") != nil:
		way = "json"
	case style == "deepObject":
		way = "deep"
	case im.swagger && list:
		way = map[string]string{"multi": "", "ssv": "space", "pipes": "pipe", "tsv": "tab"}[p.TextOf("collectionFormat")]
		if c := p.TextOf("collectionFormat"); c == "" || c == "csv" {
			way = "comma"
		}
	case style == "spaceDelimited" && list:
		way = "space"
	case style == "pipeDelimited" && list:
		way = "pipe"
	case p.TextOf("explode") == "false" && list:
		way = "comma"
	}
	setStyle(l, f.name, way)
}

// setStyle records how one parameter or field is written, unless that is the default or already recorded.
func setStyle(l *operation.Line, name, way string) {
	_, said := l.Styles[name]
	if way == "" || said || len(l.Styles) >= operation.MaxStyles || document.CleanLine(name, operation.MaxTag) != name {
		return
	}
	if l.Styles == nil {
		l.Styles = map[string]string{}
	}
	l.Styles[name] = way
}

func (im *docImporter) parameterType(p *jsonread.Node) tsType {
	c := schemaContext{input: true}
	switch {
	case p.GetValue("schema") != nil:
		return im.gen.writeSchema(p.GetValue("schema"), c)
	case im.swagger:
		return im.gen.writeSchema(p, c)
	}
	for _, m := range p.GetValue("content").ObjectMembers() {
		return im.gen.writeSchema(m.Node.GetValue("schema"), c)
	}
	return tsType{text: "string"}
}

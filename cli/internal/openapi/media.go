package openapi

import (
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/cli/internal/document"
	"github.com/codeforge-mcp/codeforge/internal/jsonread"
)

const (
	jsonMedia = "application/json"
	formMedia = "application/x-www-form-urlencoded"
	multipart = "multipart/form-data"
	maxMedia  = 100
)

// mediaType returns a media type without parameters, in lower case.
func mediaType(s string) string {
	s, _, _ = strings.Cut(s, ";")
	s = strings.ToLower(strings.TrimSpace(s))
	if s == "*/*" || s == "application/*" || s == "text/json" {
		return jsonMedia
	}
	return document.Line(s, maxMedia)
}

// rank orders media types. The lowest is the easiest to write and read.
func rank(media string) int {
	switch {
	case media == jsonMedia:
		return 0
	case strings.HasSuffix(media, "+json"):
		return 1
	case media == formMedia:
		return 2
	case media == multipart:
		return 3
	case strings.HasPrefix(media, "text/") && media != "text/event-stream" && media != "text/html" && media != "text/xml":
		return 4
	case media == "text/html" || isXML(media):
		return 6
	case media == "text/event-stream":
		return 7
	}
	return 5
}

func isXML(media string) bool {
	return media == "text/xml" || media == "application/xml" || strings.HasSuffix(media, "+xml")
}

// content chooses one of a body's media types.
func content(n *jsonread.Node) (media string, schema *jsonread.Node, ok bool) {
	members := atMost(n.Get("content").Maps(), maxShared)
	if len(members) == 0 {
		return "", nil, false
	}
	best := slices.MinFunc(members, func(a, b jsonread.Member) int {
		return rank(mediaType(a.Key)) - rank(mediaType(b.Key))
	})
	return mediaType(best.Key), best.Node.Get("schema"), true
}

// body writes the body of an OpenAPI 3 operation.
func (im *importer) body(l *operation.Line, n *jsonread.Node) {
	media, schema, ok := content(n)
	if !ok {
		return
	}
	resolved := im.refs.resolve(schema)
	nothing := resolved == nil || len(resolved.Get("properties").Maps()) == 0 && len(resolved.Members) <= 3 &&
		resolved.Str("type") == "object"
	// An optional, empty body of these methods is left out.
	if (l.Method == "GET" || l.Method == "HEAD" || l.Method == "DELETE") && !n.True("required") && nothing {
		return
	}
	l.BodyMedia, l.BodyOptional = media, !n.True("required")
	if media == formMedia {
		encodings(l, n.Get("content"))
	}
	switch {
	case schema != nil && rank(media) <= 3:
		l.Body = im.gen.schema(schema, context{input: true}).text
	case rank(media) <= 3:
		l.Body = unknown
	case strings.HasPrefix(media, "text/") || isXML(media):
		l.Body = "string"
	default:
		l.Body = blob
	}
}

// encodings sets how fields of a form are written, like the style of parameters.
func encodings(l *operation.Line, content *jsonread.Node) {
	for _, m := range atMost(content.Maps(), maxShared) {
		if mediaType(m.Key) != formMedia {
			continue
		}
		for _, e := range atMost(m.Node.Get("encoding").Maps(), maxShared) {
			switch style := e.Node.Str("style"); {
			case style == "deepObject":
				setStyle(l, e.Key, "deep")
			case style == "spaceDelimited":
				setStyle(l, e.Key, "space")
			case style == "pipeDelimited":
				setStyle(l, e.Key, "pipe")
			case e.Node.Str("explode") == "false":
				setStyle(l, e.Key, "comma")
			case mediaType(e.Node.Str("contentType")) == jsonMedia:
				setStyle(l, e.Key, "json")
			}
		}
	}
}

// consumes returns the media type of a Swagger 2 body.
func (im *importer) consumes(op *jsonread.Node, usual string) string {
	list := op.Get("consumes").Items()
	if len(list) == 0 {
		list = im.root.Get("consumes").Items()
	}
	best := usual
	for i, m := range atMost(list, maxShared) {
		media := mediaType(m.Node.Text)
		if usual != "" && media != formMedia && media != multipart {
			continue
		}
		if i == 0 && usual == "" || best == "" || rank(media) < rank(best) || usual != "" && media == multipart {
			best = media
		}
	}
	return best
}

// maxAnswers bounds the different success responses that are written.
const maxAnswers = 3

// answer writes the response type of a successful operation.
func (im *importer) answer(l *operation.Line, op *jsonread.Node) {
	var parts []typ
	responses := atMost(op.Get("responses").Maps(), maxShared)
	success := func(code string) bool {
		return len(code) == 3 && code[0] == '2' && code != "204" && code != "205"
	}
	use := func(code string) bool { return success(code) }
	// Many documents describe only "default", which then is the success too.
	if !slices.ContainsFunc(responses, func(m jsonread.Member) bool { return strings.HasPrefix(m.Key, "2") }) {
		use = func(code string) bool { return code == "default" }
	}
	for _, m := range responses {
		if use(m.Key) && len(parts) < maxAnswers {
			if t, ok := im.answerType(im.refs.resolve(m.Node), op); ok && !slices.Contains(parts, t) {
				parts = append(parts, t)
			}
		}
	}
	if len(parts) > 0 {
		l.Answer = join(parts, " | ", union).text
	}
}

func (im *importer) answerType(r *jsonread.Node, op *jsonread.Node) (typ, bool) {
	if im.swagger {
		schema := r.Get("schema")
		if schema == nil {
			return typ{}, false
		}
		produces := op.Get("produces").Items()
		if len(produces) == 0 {
			produces = im.root.Get("produces").Items()
		}
		produces = atMost(produces, maxShared)
		if len(produces) > 0 && !slices.ContainsFunc(produces, func(m jsonread.Member) bool {
			return rank(mediaType(m.Node.Text)) <= 1
		}) && isXML(mediaType(produces[0].Node.Text)) {
			return typ{text: "string"}, true
		}
		return im.gen.schema(schema, context{}), true
	}
	media, schema, ok := content(r)
	switch {
	case !ok:
		return typ{}, false
	case rank(media) <= 1:
		return im.gen.schema(schema, context{}), true
	case strings.HasPrefix(media, "text/") || isXML(media) || media == formMedia:
		return typ{text: "string"}, true
	}
	return typ{text: blob}, true
}

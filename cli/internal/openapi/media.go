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
	return document.CleanLine(s, maxMedia)
}

// rankMedia orders media types. The lowest is the easiest to write and read.
func rankMedia(media string) int {
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

// chooseContent chooses one of a body's media types.
func chooseContent(n *jsonread.Node) (media string, schema *jsonread.Node, ok bool) {
	members := takeAtMost(n.GetValue("content").ObjectMembers(), maxShared)
	if len(members) == 0 {
		return "", nil, false
	}
	best := slices.MinFunc(members, func(a, b jsonread.Member) int {
		return rankMedia(mediaType(a.Key)) - rankMedia(mediaType(b.Key))
	})
	return mediaType(best.Key), best.Node.GetValue("schema"), true
}

func (im *docImporter) writeBody(l *operation.Line, n *jsonread.Node) {
	media, schema, ok := chooseContent(n)
	if !ok {
		return
	}
	resolved := im.refs.followRefs(schema)
	nothing := resolved == nil || len(resolved.GetValue("properties").ObjectMembers()) == 0 &&
		len(resolved.Members) <= 3 &&
		resolved.TextOf("type") == "object"
	// An optional, empty body of these methods is left out.
	if (l.Method == "GET" || l.Method == "HEAD" || l.Method == "DELETE") && !n.IsTrue("required") && nothing {
		return
	}
	l.BodyMedia, l.BodyOptional = media, !n.IsTrue("required")
	if media == formMedia {
		setEncodings(l, n.GetValue("content"))
	}
	switch {
	case schema != nil && rankMedia(media) <= 3:
		l.Body = im.gen.writeSchema(schema, schemaContext{input: true}).text
	case rankMedia(media) <= 3:
		l.Body = unknown
	case strings.HasPrefix(media, "text/") || isXML(media):
		l.Body = "string"
	default:
		l.Body = blob
	}
}

// setEncodings sets how fields of a form are written, like the style of parameters.
func setEncodings(l *operation.Line, content *jsonread.Node) {
	for _, m := range takeAtMost(content.ObjectMembers(), maxShared) {
		if mediaType(m.Key) != formMedia {
			continue
		}
		for _, e := range takeAtMost(m.Node.GetValue("encoding").ObjectMembers(), maxShared) {
			switch style := e.Node.TextOf("style"); {
			case style == "deepObject":
				setStyle(l, e.Key, "deep")
			case style == "spaceDelimited":
				setStyle(l, e.Key, "space")
			case style == "pipeDelimited":
				setStyle(l, e.Key, "pipe")
			case e.Node.TextOf("explode") == "false":
				setStyle(l, e.Key, "comma")
			case mediaType(e.Node.TextOf("contentType")) == jsonMedia:
				setStyle(l, e.Key, "json")
			}
		}
	}
}

// bodyMedia returns the media type of a Swagger 2 body.
func (im *docImporter) bodyMedia(op *jsonread.Node, usual string) string {
	list := op.GetValue("consumes").ListItems()
	if len(list) == 0 {
		list = im.root.GetValue("consumes").ListItems()
	}
	best := usual
	for i, m := range takeAtMost(list, maxShared) {
		media := mediaType(m.Node.Text)
		if usual != "" && media != formMedia && media != multipart {
			continue
		}
		if i == 0 && usual == "" || best == "" || rankMedia(media) < rankMedia(best) || usual != "" && media == multipart {
			best = media
		}
	}
	return best
}

// maxAnswers bounds the different success responses that are written.
const maxAnswers = 3

// writeAnswer writes the response type of a successful operation.
func (im *docImporter) writeAnswer(l *operation.Line, op *jsonread.Node) {
	var parts []tsType
	responses := takeAtMost(op.GetValue("responses").ObjectMembers(), maxShared)
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
			if t, ok := im.answerType(im.refs.followRefs(m.Node), op); ok && !slices.Contains(parts, t) {
				parts = append(parts, t)
			}
		}
	}
	if len(parts) > 0 {
		l.Answer = joinTypes(parts, " | ", union).text
	}
}

func (im *docImporter) answerType(r *jsonread.Node, op *jsonread.Node) (tsType, bool) {
	if im.swagger {
		schema := r.GetValue("schema")
		if schema == nil {
			return tsType{}, false
		}
		// Swagger 2: the list of an operation replaces the list of the document.
		produces := op.GetValue("produces").ListItems()
		if len(produces) == 0 {
			produces = im.root.GetValue("produces").ListItems()
		}
		produces = takeAtMost(produces, maxShared)
		if len(produces) > 0 && !slices.ContainsFunc(produces, func(m jsonread.Member) bool {
			return rankMedia(mediaType(m.Node.Text)) <= 1
		}) && isXML(mediaType(produces[0].Node.Text)) {
			return tsType{text: "string"}, true
		}
		return im.gen.writeSchema(schema, schemaContext{}), true
	}
	media, schema, ok := chooseContent(r)
	switch {
	case !ok:
		return tsType{}, false
	case rankMedia(media) <= 1:
		return im.gen.writeSchema(schema, schemaContext{}), true
	case strings.HasPrefix(media, "text/") || isXML(media) || media == formMedia:
		return tsType{text: "string"}, true
	}
	return tsType{text: blob}, true
}

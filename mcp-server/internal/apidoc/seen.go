package apidoc

import (
	"net/url"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// Silent are the APIs that have operations of which their documents do not say what they answer.
func (l *Library) Silent() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, h := range l.docs {
		if h.doc.silent {
			out = append(out, h.name)
		}
	}
	return out
}

// silent reports whether the document does not say what an operation answers.
func silent(l operation.Line) bool {
	switch l.Answer {
	case "", "unknown", "unknown[]", "{ [key: string]: unknown }", "Record<string, unknown>", "{}", "{ }":
		return true
	}
	return false
}

// place is where the Memory has the answers of an operation.
func (d *Doc) place(i int) string { return d.Name + " " + d.version + " " + d.Key(i) }

// answer is what an operation answers, and what to call that: what the document says, or else what was seen.
func (d *Doc) answer(i int, l operation.Line) (name, ts string) {
	if d.seen != nil && silent(l) {
		if seen := d.seen.Answer(d.place(i)); seen != "" {
			return "answered before", seen
		}
	}
	return "answers", l.Answer
}

// Learn notes what answers looked like.
func (l *Library) Learn(answers []controlapi.Answer) {
	l.mu.Lock()
	docs := l.docs
	l.mu.Unlock()
	for _, a := range answers {
		if i := slices.IndexFunc(docs, func(h held) bool { return h.name == a.API }); i >= 0 {
			docs[i].doc.learn(a)
		}
	}
}

// learn notes the answer of an operation, if the document does not say what it answers.
func (d *Doc) learn(a controlapi.Answer) {
	u, err := url.Parse(a.URL)
	if err != nil || d.seen == nil || a.Shape == nil {
		return
	}
	path, under := d.path(u)
	found, fewest := -1, 0
	for i := range d.Len() {
		method, template, _ := strings.Cut(d.Key(i), " ")
		parameters := strings.Count(template, "{") // /users/me is not /users/{id}
		if under && method == a.Method && operation.Fits(template, path) && (found < 0 || parameters < fewest) {
			found, fewest = i, parameters
		}
	}
	if found >= 0 && silent(d.Operation(found)) {
		d.seen.Add(d.place(found), []byte(a.URL), a.Shape)
	}
}

// Package redact replaces the strings that must not leave by Mark, in requests and in copies for logs.
//
// Threat: personal data that code sends to an API. The strings are found literally and escaped as in a request
// (percent, JSON, HTML), on any surface. Code that encodes them otherwise is not stopped.
package redact

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/engine"
	"github.com/codeforge-mcp/codeforge/proxy/internal/framing"
)

// Mark replaces what is redacted. It is the same in every part of a request, because no part escapes it.
const Mark = "REDACTED"

// Redactor finds the strings. It is immutable and may be used by many goroutines. The nil Redactor finds none.
type Redactor struct {
	set   *engine.Set
	lower *engine.Set // for names of headers and hosts
}

// New compiles the strings. Empty ones are ignored.
func New(list []string) *Redactor {
	var all, lower []engine.Pattern
	for _, s := range list {
		all = append(all, engine.Pattern{Text: s, Escaped: true})
		if strings.Contains(s, " ") {
			all = append(all, engine.Pattern{Text: strings.ReplaceAll(s, " ", "+"), Escaped: true})
		}
		lower = append(lower, engine.Pattern{Text: strings.ToLower(s)})
	}
	return &Redactor{set: engine.New(all), lower: engine.New(lower)}
}

// String returns text redacted.
func (r *Redactor) String(text string) string {
	text, _ = r.Replace(text)
	return text
}

// Replace returns text redacted, and how many strings were replaced.
func (r *Redactor) Replace(text string) (string, int) {
	if r == nil {
		return text, 0
	}
	return r.set.Replace(text, func(int) string { return Mark })
}

// Report holds what was done to a request. It is complete once the body has been read.
type Report struct{ n atomic.Int64 }

// Count returns how many strings were redacted so far.
func (r *Report) Count() int {
	if r == nil {
		return 0
	}
	return int(r.n.Load())
}

// Host reports whether a host name contains one of the strings, in any case.
func (r *Redactor) Host(name string) bool {
	return r != nil && r.lower.ContainsFold(name)
}

// Request redacts a request in place: URL, headers and body. The host is not changed. how is the framing by which the
// body leaves.
func (r *Redactor) Request(req *http.Request, how framing.Kind) *Report {
	report := &Report{}
	if r == nil || r.set == nil {
		return report
	}
	r.url(req.URL, report)
	r.headers(req.Header, report)
	r.body(req, how, report)
	return report
}

func (r *Redactor) replace(text string, report *Report) string {
	text, n := r.Replace(text)
	report.n.Add(int64(n))
	return text
}

// url redacts path and query as they are written, so that what is escaped stays escaped.
func (r *Redactor) url(u *url.URL, report *Report) {
	u.RawQuery = r.replace(u.RawQuery, report)
	escaped := u.EscapedPath()
	clean := r.replace(escaped, report)
	if clean == escaped {
		return
	}
	path, err := url.PathUnescape(clean)
	if err != nil { // the match ended inside an escape
		path, clean = "/"+Mark, "/"+Mark
	}
	u.Path, u.RawPath = path, clean
}

// headers redacts values and removes headers whose name contains a string.
func (r *Redactor) headers(h http.Header, report *Report) {
	for name, values := range h {
		if r.lower.ContainsFold(name) {
			delete(h, name)
			report.n.Add(1)
			continue
		}
		for i, v := range values {
			values[i] = r.replace(v, report)
		}
	}
}

// body redacts a body as it streams. An encoded one leaves decoded; one in an unknown encoding is searched as it is.
// Errors occur when the body is read.
func (r *Redactor) body(req *http.Request, how framing.Kind, report *Report) {
	if req.Body == nil || req.Body == http.NoBody {
		return
	}
	encodings, err := coding.Parse(req.Header)
	if err == nil {
		req.Header.Del("Content-Encoding")
	}
	b := coding.NewBody(req.Body)
	b.Decode(encodings)
	redacted := func(src io.Reader) io.Reader {
		return r.set.NewReader(src, func(int) (string, error) { report.n.Add(1); return Mark, nil })
	}
	b.Through(func(src io.Reader) io.Reader { return how.Through(src, redacted) })
	if err := coding.Ahead(req, b, true); err != nil {
		req.ContentLength = -1
		req.Header.Del("Content-Length")
	}
}

// Package redact replaces confidential strings by Mark, in requests and in copies for logs.
//
// Threat: personal data that code sends to an API. Contract: the strings are found literally and escaped as in a
// request (percent, JSON, HTML), on any surface. Code that encodes them in another way is not stopped.
package redact

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/framing"
	"github.com/codeforge-mcp/codeforge/proxy/internal/multisearch"
)

// Mark replaces a redacted string. It is the same in every part of a request, because no syntax escapes it.
const Mark = "REDACTED"

// Redactor finds the strings. It is immutable and safe for concurrent use. A nil Redactor changes nothing.
type Redactor struct {
	set   *multisearch.Set
	lower *multisearch.Set // for names of headers and hosts
}

// New compiles the strings. It ignores empty ones.
func New(list []string) *Redactor {
	var all, lower []multisearch.Pattern
	for _, s := range list {
		all = append(all, multisearch.Pattern{Text: s, Escaped: true})
		if strings.Contains(s, " ") {
			// Forms and queries write a space as a plus sign.
			all = append(all, multisearch.Pattern{Text: strings.ReplaceAll(s, " ", "+"), Escaped: true})
		}
		lower = append(lower, multisearch.Pattern{Text: strings.ToLower(s)})
	}
	return &Redactor{set: multisearch.New(all), lower: multisearch.New(lower)}
}

// String returns the redacted text.
func (r *Redactor) String(text string) string {
	text, _ = r.ReplaceAndCount(text)
	return text
}

// ReplaceAndCount returns the redacted text and the number of replacements.
func (r *Redactor) ReplaceAndCount(text string) (string, int) {
	if r == nil {
		return text, 0
	}
	return r.set.ReplaceAll(text, func(int) string { return Mark })
}

// Report counts the replacements in a request. It is complete once the body has been read.
type Report struct{ n atomic.Int64 }

// Count returns the number of redacted strings so far.
func (r *Report) Count() int {
	if r == nil {
		return 0
	}
	return int(r.n.Load())
}

// MatchHost reports whether a host name contains one of the strings, in any letter case.
func (r *Redactor) MatchHost(name string) bool {
	return r != nil && r.lower.ContainsFold(name)
}

// RedactRequest redacts the URL, the headers and the body of a request in place. It does not change the host. how is
// the framing of the body.
func (r *Redactor) RedactRequest(req *http.Request, how framing.Kind) *Report {
	report := &Report{}
	if r == nil || r.set == nil {
		return report
	}
	r.redactURL(req.URL, report)
	r.redactHeaders(req.Header, report)
	r.redactBody(req, how, report)
	return report
}

func (r *Redactor) redactAndCount(text string, report *Report) string {
	text, n := r.ReplaceAndCount(text)
	report.n.Add(int64(n))
	return text
}

// redactURL redacts the path and the query in their escaped form, so that escapes stay.
func (r *Redactor) redactURL(u *url.URL, report *Report) {
	u.RawQuery = r.redactAndCount(u.RawQuery, report)
	escaped := u.EscapedPath()
	clean := r.redactAndCount(escaped, report)
	if clean == escaped {
		return
	}
	path, err := url.PathUnescape(clean)
	if err != nil { // the match ended inside an escape
		path, clean = "/"+Mark, "/"+Mark
	}
	u.Path, u.RawPath = path, clean
}

// redactHeaders redacts values, and removes headers whose name contains a string.
func (r *Redactor) redactHeaders(h http.Header, report *Report) {
	for name, values := range h {
		if r.lower.ContainsFold(name) {
			delete(h, name)
			report.n.Add(1)
			continue
		}
		for i, v := range values {
			values[i] = r.redactAndCount(v, report)
		}
	}
}

// redactBody redacts a body while it streams. An encoded body leaves decoded. A body in an unknown encoding is searched
// undecoded. Errors occur when the body is read.
func (r *Redactor) redactBody(req *http.Request, how framing.Kind, report *Report) {
	b := coding.BodyOf(req)
	if b == nil {
		return
	}
	encodings, err := coding.Parse(req.Header)
	if err == nil {
		req.Header.Del("Content-Encoding")
	}
	b.AddDecoder(encodings)
	redacted := func(src io.Reader) io.Reader {
		return r.set.NewReader(src, func(int) (string, error) { report.n.Add(1); return Mark, nil })
	}
	// Decode first: a string in an encoded body would not be found.
	b.AddReader(func(src io.Reader) io.Reader { return how.WrapMessages(src, redacted) })
	// Reading the body later returns the same error.
	if err := coding.ReadAhead(req, true); err != nil {
		req.ContentLength = -1
		req.Header.Del("Content-Length")
	}
}

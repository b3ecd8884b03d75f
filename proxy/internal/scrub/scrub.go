// Package scrub replaces credentials by token names in all responses of upstream servers.
//
// Threat: an upstream that echoes a credential to code that must never hold it, in any place, framing, encoding or
// escape.
//
// Contract: every response is searched for every credential. Bodies stream in constant memory and leave decoded, so
// that the searched bytes are the sent bytes. A response is refused if its encoding or character set cannot be decoded.
//
// Limits: the scrubber cannot find a credential that the upstream slices, breaks over lines, or transforms in a way
// that multisearch.ListForms does not list.
package scrub

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/proxy/internal/charset"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/framing"
	"github.com/codeforge-mcp/codeforge/proxy/internal/multisearch"
	"github.com/codeforge-mcp/codeforge/proxy/internal/renewedvalues"
	"github.com/codeforge-mcp/codeforge/proxy/internal/secretvalues"
)

// ErrEncoding is the error for a response whose Content-Encoding cannot be decoded. No part of its body may be sent.
var ErrEncoding = errors.New("the response has a content encoding that cannot be scrubbed")

// Scrubber finds the credentials of a catalog. It is immutable and safe for concurrent use. A nil Scrubber, and one
// without credentials, changes nothing.
type Scrubber struct {
	set    *multisearch.Set
	lower  *multisearch.Set // for header names, whose letter case is lost
	names  [][]string       // by the id of a value: the token names for it
	minted *renewedvalues.Values
}

// Options describe one exchange.
type Options struct {
	// Method is the request's method. A response to HEAD has no body.
	Method string
	// Sent are the token names that this run sent. If several names share one value, the replacement is one of Sent, or
	// else the first name.
	Sent []string
	// KeepETag keeps an ETag, which may be the digest of a body that contains a credential.
	KeepETag bool
	// Framing describes how the body is split into messages. With the zero Kind the body is a single text.
	Framing framing.Kind
	// Held is the memory account of the exchange. If it has no room for a body, the body streams.
	Held *membudget.Account
}

// New compiles credentials. They should be all credentials of the catalog, including inactive and replaced ones.
func New(creds []catalog.Credential) *Scrubber {
	list := convert.Each(creds, func(c catalog.Credential) secret.Value { return c.Value })
	return NewWithValues(secretvalues.New(list), creds)
}

// NewWithValues is New with compiled values. known must contain exactly the values of the credentials.
func NewWithValues(known *secretvalues.ValueSet, creds []catalog.Credential) *Scrubber {
	s := &Scrubber{set: known.Set, lower: known.Lower, names: make([][]string, known.Len())}
	for _, c := range creds {
		if id, ok := known.FindID(c.Value); ok && !slices.Contains(s.names[id], c.Name) {
			s.names[id] = append(s.names[id], c.Name)
		}
	}
	return s
}

// WithMinted returns a Scrubber that also finds minted values, including those minted while a response is read. Nil
// means that the proxy never mints.
func (s *Scrubber) WithMinted(values *renewedvalues.Values) *Scrubber {
	return &Scrubber{set: values.LayerOver(s.set), lower: values.LayerOverLower(s.lower), names: s.names, minted: values}
}

// chooseName returns the token name that replaces a value.
func (s *Scrubber) chooseName(id int, sent []string) string {
	// The ids of minted values are negative, so both kinds share one space.
	if name, ok := s.minted.ReplacementFor(id); ok {
		return name
	}
	names := s.names[id]
	for _, n := range names {
		if slices.Contains(sent, n) {
			return n
		}
	}
	return names[0]
}

// String returns text with credentials replaced by token names.
func (s *Scrubber) String(text string) string {
	if s == nil {
		return text
	}
	text, _ = s.set.ReplaceAll(text, func(id int) string { return s.chooseName(id, nil) })
	return text
}

// CleanForLog is String for log lines and reports about a request. It also finds credentials in lower case, as in host
// names.
func (s *Scrubber) CleanForLog(text string) string {
	//defence:last-scrub permits
	if s == nil {
		return text
	}
	// The values in their original case come first: their replacement is in the right case.
	text, _ = s.lower.ReplaceAll(s.String(text), func(id int) string { return s.chooseName(id, nil) })
	return text
}

// NewFileReader is CleanForLog for a stream.
func (s *Scrubber) NewFileReader(src io.Reader) io.Reader {
	//defence:last-scrub permits
	if s == nil {
		return src
	}
	name := func(id int) (string, error) { return s.chooseName(id, nil), nil }
	return s.lower.NewReader(s.set.NewReader(src, name), name)
}

// NewReader scrubs a stream other than an HTTP body. It calls each for every replacement.
func (s *Scrubber) NewReader(src io.Reader, sent []string, each func()) *multisearch.Reader {
	if s == nil {
		return (*multisearch.Set)(nil).NewReader(src, nil)
	}
	return s.set.NewReader(src, func(id int) (string, error) {
		each()
		return s.chooseName(id, sent), nil
	})
}

// Contains reports whether text contains a credential, in any form.
func (s *Scrubber) Contains(text string) bool { return s != nil && s.set.Contains(text) }

// Report counts the replacements in a response. It may be read at any time, and is complete after the end of the body.
type Report struct {
	n       atomic.Int64
	etagged atomic.Bool // an ETag was removed

	mu    sync.Mutex
	found []FoundCredential
}

// FoundCredential is a replaced credential: its token name, its place ("status", "header:NAME", "body", "trailer:NAME")
// and the number of replacements.
type FoundCredential struct {
	Name, In string
	Count    int
}

// maxFound bounds the list of a report.
const maxFound = 32

// ListFound lists the replacements so far.
func (r *Report) ListFound() []FoundCredential {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.found)
}

// addFound counts one replacement.
func (r *Report) addFound(name, in string) {
	r.n.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.found {
		if f := &r.found[i]; f.Name == name && f.In == in {
			f.Count++
			return
		}
	}
	if len(r.found) < maxFound {
		r.found = append(r.found, FoundCredential{Name: name, In: in, Count: 1})
	}
}

// Count returns the number of replacements so far.
func (r *Report) Count() int {
	if r == nil {
		return 0
	}
	return int(r.n.Load())
}

// HasRemovedETag reports whether the response had an ETag that was removed.
func (r *Report) HasRemovedETag() bool { return r != nil && r.etagged.Load() }

// ScrubResponse rewrites the status text, headers, body and trailers of a response in place. The body leaves decoded,
// with its exact length if that can be known. On an error no part of the response may be sent; the caller closes its
// body.
func (s *Scrubber) ScrubResponse(resp *http.Response, o Options) (*Report, error) {
	report := &Report{}
	if s == nil || s.set == nil {
		return report, nil
	}
	x := &responseScrub{scrubber: s, options: o, report: report, resp: resp}
	// The head leaves before the body, so it is scrubbed even if the body is refused.
	x.scrubHead()
	if !hasBody(resp, o.Method) {
		x.fixBodylessHead()
		return report, nil
	}
	encodings, err := coding.ParseResponse(resp.Header)
	// Text that cannot be decoded cannot be searched.
	if err != nil || isPacked(resp.Header) {
		return report, ErrEncoding
	}
	how, err := readCharset(resp.Header)
	if err != nil {
		return report, err
	}
	//defence:scrub-body instead report, nil
	//defence:codings instead report, func() error { if len(encodings) > 0 { return nil }; return x.scrubBody(nil, how) }()
	return report, x.scrubBody(encodings, how)
}

// readCharset returns how to decode the characters of a body.
func readCharset(h http.Header) (charset.Reading, error) {
	//defence:charset instead charset.Reading{}, nil
	return charset.Parse(h)
}

// isPacked reports whether a body contains compressed messages, as gRPC and Connect send them, or an instance
// manipulation (RFC 3229). Content-Encoding does not name either. The proxy asks for neither.
func isPacked(h http.Header) bool {
	if len(h["Im"]) > 0 {
		return true
	}
	for _, name := range []string{"Grpc-Encoding", "Connect-Content-Encoding"} {
		if v := h.Get(name); v != "" && v != "identity" {
			return true
		}
	}
	return false
}

// hasBody reports whether HTTP allows the response a body (RFC 9110, section 6.4.1).
func hasBody(resp *http.Response, method string) bool {
	return method != http.MethodHead && resp.StatusCode >= 200 &&
		resp.StatusCode != http.StatusNoContent && resp.StatusCode != http.StatusNotModified && resp.Body != nil
}

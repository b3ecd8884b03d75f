// Package scrub replaces credentials by token names in everything that comes back from an upstream.
//
// Threat: an upstream that echoes a credential, in any place, framing, encoding or escape, to code that must never hold
// it. All responses are searched for all credentials. Bodies stream in constant memory and leave decoded, so that what
// is sent is what was searched; a response whose encoding or character set cannot be decoded is refused.
//
// What cannot be found: a credential that the upstream slices, breaks over lines, or transforms in a way that
// engine.Forms does not list.
package scrub

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/proxy/internal/charset"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/engine"
	"github.com/codeforge-mcp/codeforge/proxy/internal/framing"
	"github.com/codeforge-mcp/codeforge/proxy/internal/minted"
	"github.com/codeforge-mcp/codeforge/proxy/internal/values"
)

// ErrEncoding is for a response whose Content-Encoding cannot be decoded. Nothing of its body may be sent.
var ErrEncoding = errors.New("the response has a content encoding that cannot be scrubbed")

// Scrubber finds the credentials of a catalog. It is immutable and may be used by many goroutines. The nil Scrubber and
// one without credentials change nothing.
type Scrubber struct {
	set    *engine.Set
	lower  *engine.Set // for header names, which lose their case
	names  [][]string  // by the id of a value: the token names for it
	minted *minted.Values
}

// Options hold what is known about an exchange.
type Options struct {
	// Method is the request's. A response to HEAD has no body.
	Method string
	// Sent are the token names that this run sent. If several names have one value, such a name is shown, else the
	// first.
	Sent []string
	// KeepETag keeps an ETag that may be the digest of a body with a credential in it.
	KeepETag bool
	// Framing says how the body leaves message by message. With the zero Kind it leaves as one text.
	Framing framing.Kind
	// Held is the memory account of the exchange. If it has no room for a body, the body streams.
	Held *membudget.Account
}

// New compiles the credentials, which should be all of the catalog, including inactive and replaced ones.
func New(creds []catalog.Credential) *Scrubber {
	list := make([]secret.Value, 0, len(creds))
	for _, c := range creds {
		list = append(list, c.Value)
	}
	return Of(values.New(list), creds)
}

// Of is New with values that are already compiled: exactly those of the credentials.
func Of(known *values.Known, creds []catalog.Credential) *Scrubber {
	s := &Scrubber{set: known.Set, lower: known.Lower, names: make([][]string, known.Len())}
	for _, c := range creds {
		if id, ok := known.ID(c.Value); ok && !slices.Contains(s.names[id], c.Name) {
			s.names[id] = append(s.names[id], c.Name)
		}
	}
	return s
}

// With returns a Scrubber that also finds what was minted when a response comes, and while it is read. Nil means that
// nothing is ever minted.
func (s *Scrubber) With(values *minted.Values) *Scrubber {
	return &Scrubber{set: values.Above(s.set), lower: values.AboveLower(s.lower), names: s.names, minted: values}
}

// name returns the token name that a value is shown as.
func (s *Scrubber) name(id int, sent []string) string {
	if name, ok := s.minted.Name(id); ok {
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
	text, _ = s.set.Replace(text, func(id int) string { return s.name(id, nil) })
	return text
}

// Loggable is String for what is logged or reported about a request: it also finds credentials in lower case, as they
// are in host names.
func (s *Scrubber) Loggable(text string) string {
	//defence:last-scrub permits
	if s == nil {
		return text
	}
	text, _ = s.lower.Replace(s.String(text), func(id int) string { return s.name(id, nil) })
	return text
}

// Reader scrubs a stream other than an HTTP body. each is called for every credential that is replaced.
func (s *Scrubber) Reader(src io.Reader, sent []string, each func()) *engine.Reader {
	if s == nil {
		return (*engine.Set)(nil).NewReader(src, nil)
	}
	return s.set.NewReader(src, func(id int) (string, error) {
		each()
		return s.name(id, sent), nil
	})
}

// Contains reports whether text contains a credential, in any form.
func (s *Scrubber) Contains(text string) bool { return s != nil && s.set.Contains(text) }

// Report holds what was done to a response. It may be read at any time and is complete after the end of the body.
type Report struct {
	n       atomic.Int64
	etagged atomic.Bool // an ETag was removed

	mu    sync.Mutex
	found []Found
}

// Found is a credential that was replaced, by its name, where ("status", "header:NAME", "body", "trailer:NAME"), and
// how often.
type Found struct {
	Name, In string
	Count    int
}

// maxFound bounds a report's list.
const maxFound = 32

// Found lists what was replaced so far.
func (r *Report) Found() []Found {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.found)
}

// add counts a replacement.
func (r *Report) add(name, in string) {
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
		r.found = append(r.found, Found{Name: name, In: in, Count: 1})
	}
}

// Count returns how many credentials were replaced so far.
func (r *Report) Count() int {
	if r == nil {
		return 0
	}
	return int(r.n.Load())
}

// RemovedETag reports whether the response had an ETag that was removed.
func (r *Report) RemovedETag() bool { return r != nil && r.etagged.Load() }

// Response rewrites a response in place: status text, headers, body and trailers. The body leaves decoded, with its
// exact length where that can be known. On an error nothing of the response may be sent; the caller closes its body.
func (s *Scrubber) Response(resp *http.Response, o Options) (*Report, error) {
	report := &Report{}
	if s == nil || s.set == nil {
		return report, nil
	}
	x := &response{scrubber: s, options: o, report: report, resp: resp}
	x.head()
	if !hasBody(resp, o.Method) {
		x.noBody()
		return report, nil
	}
	encodings, err := coding.ParseResponse(resp.Header)
	if err != nil || packed(resp.Header) {
		return report, ErrEncoding
	}
	how, err := reading(resp.Header)
	if err != nil {
		return report, err
	}
	//defence:scrub-body instead report, nil
	//defence:codings instead report, func() error { if len(encodings) > 0 { return nil }; return x.body(nil, how) }()
	return report, x.body(encodings, how)
}

// reading returns how a body's characters are decoded.
func reading(h http.Header) (charset.Reading, error) {
	//defence:charset instead charset.Reading{}, nil
	return charset.Parse(h)
}

// packed reports whether a body contains compressed messages, as those of gRPC and Connect may, or is coded in a way
// that Content-Encoding does not name (RFC 3229); the proxy asks for none of these.
func packed(h http.Header) bool {
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

// hasBody reports whether HTTP allows the response a body (RFC 9110, 6.4.1).
func hasBody(resp *http.Response, method string) bool {
	return method != http.MethodHead && resp.StatusCode >= 200 &&
		resp.StatusCode != http.StatusNoContent && resp.StatusCode != http.StatusNotModified && resp.Body != nil
}

// Package swap replaces token names by credentials in an outgoing request, on declared surfaces only.
//
// Threat: code that writes a token name where the server would publish the value, or that has obtained a value. Also a
// request that a server reads differently from this package, so that the credential ends up elsewhere.
//
// Contract: a name is swapped only for a credential that the exchange may use, on a surface that its API declares. It
// must be a whole value, and each surface swaps it once. A name that is seen and not swapped is reported. A request is
// refused if it contains a credential's value in any form, or if servers could read the text around a swapped name in
// two ways.
package swap

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/proxy/internal/formdata"
	"github.com/codeforge-mcp/codeforge/proxy/internal/framing"
	"github.com/codeforge-mcp/codeforge/proxy/internal/multisearch"
	"github.com/codeforge-mcp/codeforge/proxy/internal/renewedvalues"
	"github.com/codeforge-mcp/codeforge/proxy/internal/secretvalues"
)

// ErrCarriesValue is the error for a request that contains a credential's value. The proxy refuses such a request. If a
// streamed body contains the value, reading the body fails with this error.
var ErrCarriesValue = errors.New("the request carries a credential's value")

// Swapper knows all token names and values of a catalog. It is immutable and safe for concurrent use.
type Swapper struct {
	all     []catalog.Credential
	byText  map[string]string // token name or placeholder -> token name
	lexicon lexicon
	// placeholders are found like names, in headers and paths.
	placeholders *multisearch.Set

	names  *multisearch.Set // the id is the index in all
	parts  *multisearch.Set // also finds names inside longer words, where an escape may precede them
	values *multisearch.Set
	lower  *multisearch.Set // values in lower case, for host and header names
	owners []int            // by the id of a value: the index in all of the first credential with that value

	minted *renewedvalues.Values
	guards bool // values holds canaries too
}

// Options describe what one exchange may swap.
type Options struct {
	// Allowed are the credentials of the run's APIs that include the host.
	Allowed []catalog.Credential
	// Host is the part of the host name that the code chose.
	Host string
	// Insecure means plain HTTP to a host without allow_http. Names are only reported.
	Insecure bool
	// Obtain returns the value of a credential with a Mint, at the moment of the swap. If it fails, the request fails with
	// the same error. Without Obtain such credentials have no value.
	Obtain func(catalog.Credential) (string, error)
	// Found, if not nil, is called with the forbidden value for which the request is refused. The call may come from
	// another goroutine.
	Found func(CarriedValue)
	// Framing describes how the body is split into messages. With the zero Kind the body is a single text.
	Framing framing.Kind
}

// The codes of Seen tell why a token name was not swapped.
const (
	CodeUndeclared = "not_declared" // the credential does not declare this surface
	CodeSink       = "sink_header"  // the header is never swapped in
	CodeInside     = "inside_value" // the name is not the whole value
	CodeRepeated   = "second_swap"  // it has already been swapped on this surface
	CodeInsecure   = "plain_http"   // plain HTTP without allow_http
	CodeUnknown    = "unknown_name" // a word like a token name, where a token name is expected; Name is empty
	CodeOther      = "other_api"    // the credential belongs to an API that this exchange may not use
)

// Swap is a replaced token name and its place ("header:Authorization", "query:key", "path", "body", "cookie:session").
type Swap struct{ Name, In string }

// SeenName is a token name that was not replaced, its place ("header", "query", "path", "body", "cookie") and the code.
type SeenName struct{ Name, Where, Code string }

// Report lists the swapped and the seen names of a request. It is complete once the body has been read. A nil Report is
// empty.
type Report struct {
	mu      sync.Mutex
	swapped []Swap
	seen    []SeenName
	used    []surfaceUse
}

// Swapped lists the swaps so far.
func (r *Report) Swapped() []Swap {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.swapped)
}

// Seen lists the names that were not replaced so far: each combination of name, place and code once.
func (r *Report) Seen() []SeenName {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen)
}

// maxSeen bounds the list of a report.
const maxSeen = 64

func (r *Report) addSeen(s SeenName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.seen) < maxSeen && !slices.Contains(r.seen, s) {
		r.seen = append(r.seen, s)
	}
}

// AddReport adds the swaps and the seen names of another report, each once.
func (r *Report) AddReport(o *Report) {
	for _, s := range o.Seen() {
		r.addSeen(s)
	}
	more := o.Swapped()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range more {
		if !slices.Contains(r.swapped, s) {
			r.swapped = append(r.swapped, s)
		}
	}
}

// surfaceUse is a token name on a surface of its credential.
type surfaceUse struct {
	name    string
	surface catalog.Surface
}

// recordSwap records a swap. It returns false if the name was already swapped on that surface.
func (r *Report) recordSwap(s Swap, surface catalog.Surface) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	//defence:once permits
	if u := (surfaceUse{s.Name, surface}); !slices.Contains(r.used, u) {
		r.used = append(r.used, u)
		r.swapped = append(r.swapped, s)
		return true
	}
	return false
}

// undoSwap reverts the last swap, because the credential had no value.
func (r *Report) undoSwap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used, r.swapped = r.used[:len(r.used)-1], r.swapped[:len(r.swapped)-1]
}

// countSwaps returns the number of swaps so far.
func (r *Report) countSwaps() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.swapped)
}

// hasSwapOn reports whether any name was swapped on a surface.
func (r *Report) hasSwapOn(surface catalog.Surface) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.used, func(u surfaceUse) bool { return u.surface == surface })
}

// errNotObtained is the error if no source has a value for the credential.
var errNotObtained = errors.New("the credential cannot be obtained")

// New compiles the credentials of the whole catalog, and the secrets inside minted credentials. A request that contains
// any of them is refused.
func New(all []catalog.Credential) *Swapper {
	var list []secret.Value
	for _, c := range all {
		list = append(list, c.AllSecrets()...)
	}
	return NewWithValues(secretvalues.New(list), all)
}

// NewWithValues is New with compiled values. known must contain exactly the values of the credentials and the secrets
// inside them.
func NewWithValues(known *secretvalues.ValueSet, all []catalog.Credential) *Swapper {
	s := &Swapper{all: all, byText: map[string]string{}, values: known.Set, lower: known.Lower}
	s.owners = make([]int, known.Len())
	var names, placeholders, parts []multisearch.Pattern
	for i, c := range slices.Backward(all) {
		for _, v := range c.AllSecrets() {
			if id, ok := known.FindID(v); ok {
				s.owners[id] = i // backwards, so that the first credential remains
			}
		}
	}
	for i, c := range all {
		s.byText[c.Name] = c.Name
		s.lexicon.addName(c.Name)
		names = append(names, multisearch.Pattern{Text: c.Name, ID: i, Word: true})
		if c.Placeholder != "" {
			s.byText[c.Placeholder] = c.Name
			placeholders = append(placeholders, multisearch.Pattern{Text: c.Placeholder, ID: i, Word: true})
		}
		parts = append(parts, multisearch.Pattern{Text: c.Name, ID: i})
	}
	s.placeholders, s.names, s.parts = multisearch.New(placeholders), multisearch.New(names), multisearch.New(parts)
	return s
}

// WithMinted returns a Swapper that also refuses minted values, including those minted while a request is read. Nil
// means that the proxy never mints.
func (s *Swapper) WithMinted(values *renewedvalues.Values) *Swapper {
	w := *s
	w.minted = values
	w.values, w.lower = values.LayerOver(s.values), values.LayerOverLower(s.lower)
	return &w
}

// hasAnyName reports whether a text contains a token name or a placeholder.
func (s *Swapper) hasAnyName(text string) bool {
	return s.names.Contains(text) || s.placeholders.Contains(text)
}

// SwapRequest rewrites the URL, the headers and the body of a request in place. On an error the request must not be
// sent.
func (s *Swapper) SwapRequest(req *http.Request, o Options) (*Report, error) {
	x := &requestRewrite{s: s, o: o, req: req, report: &Report{}}
	if s.isIdle() {
		return x.report, nil
	}
	// Search before anything is swapped: afterwards the head contains values legitimately.
	if c, ok := s.searchHead(req, o.Host); ok {
		return x.report, x.refuseCarried(c)
	}
	// The scrubber cannot search messages that are compressed inside a body.
	req.Header.Del("Grpc-Accept-Encoding")
	req.Header.Del("Connect-Accept-Encoding")
	if err := x.swapHeaders(); err != nil {
		return x.report, err
	}
	before := x.report.countSwaps()
	if err := x.swapPath(); err != nil {
		return x.report, err
	}
	if err := x.swapQuery(); err != nil {
		return x.report, err
	}
	if x.failed != nil {
		return x.report, x.failed
	}
	// Some servers decode the URL by the charset of the body's type.
	//defence:one-reading
	if _, bad := bodyKind(x.req.Header); bad != nil && x.report.countSwaps() > before {
		return x.report, bad
	}
	if x.report.countSwaps() > 0 {
		DropRange(x.req)
	}
	return x.report, x.rewriteBody()
}

// SwapMessage rewrites one WebSocket message. In text, it swaps names for credentials that declare the body. On an
// error the message must not be sent.
func (s *Swapper) SwapMessage(data string, text bool, o Options) (string, *Report, error) {
	x := &requestRewrite{s: s, o: o, report: &Report{}}
	if s.isIdle() {
		return data, x.report, nil
	}
	if c, ok := s.SearchText(data, "message"); ok {
		return "", x.report, x.refuseCarried(c)
	}
	// Most messages have no name and need no writer.
	if !text || !s.parts.Contains(data) {
		return data, x.report, nil
	}
	w := x.newBodyWriter(kindText, nil)
	out := w.finishText(w.pushText(nil, []byte(data)))
	if err := w.findFault(); err != nil {
		return "", x.report, err
	}
	return string(out), x.report, nil
}

// requestRewrite is the rewriting of one request or one WebSocket message.
type requestRewrite struct {
	s      *Swapper
	o      Options
	req    *http.Request
	report *Report
	// from is the Content-Type of a body that is rewritten; to is the new type of a multipart body.
	from, to formdata.Type
	// failed is the error of Obtain. After it, no more of the request may leave.
	failed error
}

func (x *requestRewrite) refuseCarried(c CarriedValue) error {
	if x.o.Found != nil {
		x.o.Found(c)
	}
	return ErrCarriesValue
}

// requestSpot is a place in a request where a token name was found.
type requestSpot struct {
	kind  catalog.SurfaceKind
	field string // the header's, parameter's or field's name
	whole bool   // the name is the whole value, in the sense of the kind
}

// useName returns the value for a name at a spot. If the name may not be swapped there, useName reports the code.
func (x *requestRewrite) useName(name string, at requestSpot) (string, bool) {
	code := CodeOther
	for _, c := range x.o.Allowed {
		if c.Name != name {
			continue
		}
		surface, ok := findSurface(c, at)
		switch {
		case x.o.Insecure:
			code = CodeInsecure
		//defence:surface
		case !ok && at.whole:
			code = CodeUndeclared
		//defence:surface
		case !ok:
			// The surface is right, but the name is only a part of the value.
			if code = CodeUndeclared; canCover(c, at) {
				code = CodeInside
			}
		case !x.report.recordSwap(Swap{name, at.receiptName(surface)}, surface):
			code = CodeRepeated
		default:
			return x.credentialValue(c)
		}
		break
	}
	x.report.addSeen(SeenName{name, at.hintName(), code})
	return "", false
}

// credentialValue returns the value of a credential. On an error it sets failed, and the request must not be sent.
func (x *requestRewrite) credentialValue(c catalog.Credential) (string, bool) {
	if c.Mint == nil {
		return c.Value.Reveal(), true
	}
	v, err := "", x.failed
	switch {
	// After one error, do not try to obtain another credential for the same request.
	case err != nil:
	case x.o.Obtain == nil:
		err = errNotObtained
	default:
		v, err = x.o.Obtain(c)
	}
	if err == nil && v == "" {
		err = errNotObtained
	}
	if err != nil {
		x.failed = err
		// The name counts as swapped only if there is a value.
		x.report.undoSwap()
		return "", false
	}
	return v, true
}

// findSurface finds the surface of a credential that covers a spot. It prefers a surface with the field's name to one
// for any field. Inside a longer value, only the surfaces "query" and "body" cover a name.
func findSurface(c catalog.Credential, at requestSpot) (catalog.Surface, bool) {
	loose := at.kind == catalog.SurfaceQuery || at.kind == catalog.SurfaceBody
	for _, s := range c.Surfaces {
		if at.whole && s.Field != "" && at.matchesSurface(s) {
			return s, true
		}
	}
	for _, s := range c.Surfaces {
		if s.Kind == at.kind && s.Field == "" && (at.whole || loose) {
			return s, true
		}
	}
	return catalog.Surface{}, false
}

// canCover reports whether a surface of the credential would cover the spot if the name were the whole value.
func canCover(c catalog.Credential, at requestSpot) bool {
	at.whole = true
	_, ok := findSurface(c, at)
	return ok
}

// matchesSurface reports whether a surface names the spot's field. Header names are case-insensitive.
func (at requestSpot) matchesSurface(s catalog.Surface) bool {
	sameField := s.Field == at.field || s.Kind == catalog.SurfaceHeader && strings.EqualFold(s.Field, at.field)
	return s.Kind == at.kind && sameField
}

// maxShown bounds the name of a header in a report, in bytes.
const maxShown = 64

// receiptName returns the name of a spot for receipts.
func (at requestSpot) receiptName(s catalog.Surface) string {
	if at.kind == catalog.SurfaceHeader && len(at.field) <= maxShown {
		return "header:" + at.field
	}
	return s.String()
}

// hintName returns the name of a spot for hints. It contains no text of the request.
func (at requestSpot) hintName() string { return catalog.Surface{Kind: at.kind}.String() }

// reportNames reports all names in a text that is not rewritten. code is the reason for the names that the exchange may
// use.
func (x *requestRewrite) reportNames(text, code string, at requestSpot) {
	for _, id := range x.s.names.FindAll(text) {
		name := x.s.all[id].Name
		if !slices.ContainsFunc(x.o.Allowed, func(c catalog.Credential) bool { return c.Name == name }) {
			x.report.addSeen(SeenName{name, at.hintName(), CodeOther})
			continue
		}
		x.report.addSeen(SeenName{name, at.hintName(), code})
	}
}

package swap

import (
	"errors"
	"io"
	"math"
	"net/http"
	"strings"

	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/multisearch"
)

// CarriedValue describes a forbidden value in a request.
type CarriedValue struct {
	// Canary means that the value is a canary: only code that searches for credentials finds one.
	Canary bool
	// Name is the token name of the credential. It is empty for a canary and for a secret that only obtains credentials.
	Name string
	// In is the place: "host", "method", "path", "query", "header", "body", "message" or "name" (of a DNS query).
	In string
}

// Canaries are the compiled canaries of one run. A nil *Canaries has no values.
type Canaries struct{ values, lower *multisearch.Set }

// canaryID is the id of every match of a canary. No credential has this id.
const canaryID = math.MinInt

// NewCanaries compiles canaries.
func NewCanaries(values []string) *Canaries {
	var all, lower []multisearch.Pattern
	for _, v := range values {
		all = append(all, multisearch.ListForms(v, canaryID)...)
		lower = append(lower, multisearch.ListLowerForms(v, canaryID)...)
	}
	return &Canaries{values: multisearch.New(all), lower: multisearch.New(lower)}
}

// WithCanaries returns a Swapper that also refuses a request that contains one of the canaries.
func (s *Swapper) WithCanaries(c *Canaries) *Swapper {
	if s == nil || c == nil {
		return s
	}
	w := *s
	w.values, w.lower, w.guards = s.values.JoinSet(c.values), s.lower.JoinSet(c.lower), true
	return &w
}

// isIdle reports whether the Swapper has no text to search for.
func (s *Swapper) isIdle() bool { return s == nil || s.names == nil && !s.guards }

// describeMatch describes the match with an id: a canary, a value of the catalog (id >= 0), or a minted value.
func (s *Swapper) describeMatch(id int, in string) CarriedValue {
	switch {
	case id == canaryID:
		return CarriedValue{Canary: true, In: in}
	case id >= 0:
		return CarriedValue{Name: s.all[s.owners[id]].Name, In: in}
	}
	name, _ := s.minted.ReplacementFor(id)
	return CarriedValue{Name: name, In: in}
}

// SearchText searches a text, for example the text of an approval.
func (s *Swapper) SearchText(text, in string) (CarriedValue, bool) {
	if s == nil {
		return CarriedValue{}, false
	}
	id, ok := s.values.FindFirst(text)
	return s.describeIfFound(id, ok, in)
}

func (s *Swapper) describeIfFound(id int, ok bool, in string) (CarriedValue, bool) {
	if !ok {
		return CarriedValue{}, false
	}
	return s.describeMatch(id, in), true
}

// SearchName searches a host name that code looks up or connects to. It ignores letter case and also joins the labels.
func (s *Swapper) SearchName(name, in string) (CarriedValue, bool) {
	if s == nil {
		return CarriedValue{}, false
	}
	id, ok := s.lower.FindFold(name)
	if !ok {
		// Code can spread a value over several labels of a DNS name.
		id, ok = s.lower.FindFold(strings.ReplaceAll(name, ".", ""))
	}
	return s.describeIfFound(id, ok, in)
}

// searchHead searches everything but the body.
func (s *Swapper) searchHead(req *http.Request, host string) (CarriedValue, bool) {
	if c, ok := s.SearchName(host, "host"); ok {
		return c, true
	}
	for _, part := range [...]struct{ text, in string }{
		{req.URL.EscapedPath(), "path"}, {req.URL.RawQuery, "query"}, {req.Method, "method"},
	} {
		if c, ok := s.SearchText(part.text, part.in); ok {
			return c, true
		}
	}
	for name, values := range req.Header {
		// A header's name loses its letter case on the way, so the search ignores it.
		if id, ok := s.lower.FindFold(name); ok {
			return s.describeMatch(id, "header"), true
		}
		for _, v := range values {
			if c, ok := s.SearchText(v, "header"); ok {
				return c, true
			}
		}
	}
	return CarriedValue{}, false
}

// SearchRequest searches a request that the proxy does not send: the head with the host that the code chose, then the
// body. It consumes at most limit bytes of the body.
func (s *Swapper) SearchRequest(req *http.Request, host string, limit int64) (CarriedValue, bool) {
	if s.isIdle() {
		return CarriedValue{}, false
	}
	if c, ok := s.searchHead(req, host); ok || req.Body == nil || req.Body == http.NoBody {
		return c, ok
	}
	encodings, err := coding.Parse(req.Header)
	if err != nil {
		// Code may name an unknown encoding over plain bytes, so the search takes the bytes as they are.
		encodings = nil
	}
	var found CarriedValue
	body := coding.NewBody(io.NopCloser(io.LimitReader(req.Body, limit)))
	body.AddDecoder(encodings)
	body.AddReader(func(r io.Reader) io.Reader { return s.newSearchReader(r, func(c CarriedValue) { found = c }) })
	// The second limit bounds the decoded bytes: a small compressed body may be huge.
	_, err = io.Copy(io.Discard, io.LimitReader(body, limit))
	_ = body.Close()
	return found, errors.Is(err, ErrCarriesValue)
}

// newSearchReader returns a reader that fails with ErrCarriesValue when src contains a value. It calls found first.
func (s *Swapper) newSearchReader(src io.Reader, found func(CarriedValue)) io.Reader {
	return s.values.NewReader(src, func(id int) (string, error) {
		if found != nil {
			found(s.describeMatch(id, "body"))
		}
		return "", ErrCarriesValue
	})
}

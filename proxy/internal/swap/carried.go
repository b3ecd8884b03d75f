package swap

import (
	"errors"
	"io"
	"math"
	"net/http"
	"strings"

	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/engine"
)

// Carried is what a request carries that no request may.
type Carried struct {
	// Canary means that it is a value that only code which searches for credentials finds.
	Canary bool
	// Name is the token name of a credential. It is empty for a secret with which credentials are obtained and for a
	// canary.
	Name string
	// In is where: "host", "method", "path", "query", "header", "body", "message" or "name" (of a DNS query).
	In string
}

// Canaries are the compiled canaries of one run. The nil Canaries are none.
type Canaries struct{ values, lower *engine.Set }

// canaryID is what a match of a canary reports. No credential has it.
const canaryID = math.MinInt

// NewCanaries compiles canaries.
func NewCanaries(values []string) *Canaries {
	var all, lower []engine.Pattern
	for _, v := range values {
		all = append(all, engine.Forms(v, canaryID)...)
		lower = append(lower, engine.LowerForms(v, canaryID)...)
	}
	return &Canaries{values: engine.New(all), lower: engine.New(lower)}
}

// Guarding returns a Swapper that also refuses what carries one of the canaries.
func (s *Swapper) Guarding(c *Canaries) *Swapper {
	if s == nil || c == nil {
		return s
	}
	w := *s
	w.values, w.lower, w.guards = s.values.Beside(c.values), s.lower.Beside(c.lower), true
	return &w
}

// idle reports whether there is nothing that a request could be searched for.
func (s *Swapper) idle() bool { return s == nil || s.names == nil && !s.guards }

// carried describes the match with an id.
func (s *Swapper) carried(id int, in string) Carried {
	switch {
	case id == canaryID:
		return Carried{Canary: true, In: in}
	case id >= 0:
		return Carried{Name: s.all[s.owners[id]].Name, In: in}
	}
	name, _ := s.minted.Name(id)
	return Carried{Name: name, In: in}
}

// Carries searches a text, such as one that a person is asked about.
func (s *Swapper) Carries(text, in string) (Carried, bool) {
	if s == nil {
		return Carried{}, false
	}
	id, ok := s.values.Find(text)
	return s.carriedIf(id, ok, in)
}

func (s *Swapper) carriedIf(id int, ok bool, in string) (Carried, bool) {
	if !ok {
		return Carried{}, false
	}
	return s.carried(id, in), true
}

// NameCarries searches a name that is asked for or connected to: in any case, and also across its labels.
func (s *Swapper) NameCarries(name, in string) (Carried, bool) {
	if s == nil {
		return Carried{}, false
	}
	id, ok := s.lower.FindFold(name)
	if !ok {
		id, ok = s.lower.FindFold(strings.ReplaceAll(name, ".", ""))
	}
	return s.carriedIf(id, ok, in)
}

// head searches everything but the body. Names of hosts and headers are case-insensitive.
func (s *Swapper) head(req *http.Request, host string) (Carried, bool) {
	if c, ok := s.NameCarries(host, "host"); ok {
		return c, true
	}
	for _, part := range [...]struct{ text, in string }{
		{req.URL.EscapedPath(), "path"}, {req.URL.RawQuery, "query"}, {req.Method, "method"},
	} {
		if c, ok := s.Carries(part.text, part.in); ok {
			return c, true
		}
	}
	for name, values := range req.Header {
		if id, ok := s.lower.FindFold(name); ok {
			return s.carried(id, "header"), true
		}
		for _, v := range values {
			if c, ok := s.Carries(v, "header"); ok {
				return c, true
			}
		}
	}
	return Carried{}, false
}

// Search searches a request that goes nowhere: its head with the host that code chose, and if that has nothing, up to
// limit bytes of its body, which it consumes.
func (s *Swapper) Search(req *http.Request, host string, limit int64) (Carried, bool) {
	if s.idle() {
		return Carried{}, false
	}
	if c, ok := s.head(req, host); ok || req.Body == nil || req.Body == http.NoBody {
		return c, ok
	}
	encodings, err := coding.Parse(req.Header)
	if err != nil {
		encodings = nil
	}
	var found Carried
	body := coding.NewBody(io.NopCloser(io.LimitReader(req.Body, limit)))
	body.Decode(encodings)
	body.Through(func(r io.Reader) io.Reader { return s.searched(r, func(c Carried) { found = c }) })
	_, err = io.Copy(io.Discard, io.LimitReader(body, limit))
	_ = body.Close()
	return found, errors.Is(err, ErrCarriesValue)
}

// searched reads src until it carries a value, tells found, and then fails.
func (s *Swapper) searched(src io.Reader, found func(Carried)) io.Reader {
	return s.values.NewReader(src, func(id int) (string, error) {
		if found != nil {
			found(s.carried(id, "body"))
		}
		return "", ErrCarriesValue
	})
}

package mint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/upstream"
)

const (
	// requestTime is the time that a server has for an answer.
	requestTime = 20 * time.Second
	// maxAnswer is the largest answer in bytes.
	maxAnswer = 64 << 10
)

// Transport sends requests to servers that issue credentials. It is an upstream.Pool, with its guard over addresses.
type Transport interface {
	Check(ctx context.Context, w upstream.Want, u *url.URL) error
	RoundTrip(req *http.Request, w upstream.Want) (*http.Response, error)
}

// owner owns the connections to such servers. Runs do not share them.
type owner struct{ ctx context.Context }

func (o *owner) Context() context.Context { return o.ctx }

// Answer is the answer of a server.
type Answer struct {
	Status int
	Body   []byte
}

// requester sends the requests of one credential.
type requester struct {
	transport Transport
	owner     *owner
	api       *catalog.API
	userAgent string
}

// send sends a request and reads the whole answer. It never follows a redirect, which would send the client's secret
// and codes elsewhere. Errors contain no text that a server chose.
func (r *requester) send(req *http.Request) (*Answer, error) {
	if req.URL.Scheme != "https" || req.URL.User != nil {
		return nil, unavailable(detailUnreachable)
	}
	req.Header.Set("User-Agent", r.userAgent)
	// The answer is read without a decoder, so it must not be compressed.
	req.Header.Set("Accept-Encoding", "identity")
	w := upstream.Want{APIs: []*catalog.API{r.reaching(req.URL)}, Version: "mint", Owner: r.owner}
	if err := r.transport.Check(req.Context(), w, req.URL); err != nil {
		return nil, unavailable(detailUnreachable)
	}
	resp, err := r.transport.RoundTrip(req, w)
	if err != nil {
		return nil, unavailable(detailUnreachable)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return nil, unavailable(detailRedirect)
	}
	// The server has ignored Accept-Encoding.
	if resp.Header.Get("Content-Encoding") != "" {
		return nil, unavailable(detailNotJSON)
	}
	// One byte more than allowed shows that the answer is too long.
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, unavailable(detailUnreachable)
	case len(body) > maxAnswer:
		return nil, unavailable(detailTooLarge)
	}
	return &Answer{Status: resp.StatusCode, Body: body}, nil
}

// reaching returns the API to use for an address. The API's client certificate is only for its own hosts, not for token
// servers.
func (r *requester) reaching(u *url.URL) *catalog.API {
	if r.api == nil || r.api.ClientCert == nil {
		return r.api
	}
	port, _ := strconv.ParseUint(u.Port(), 10, 16) // no port is 0
	if h, err := catalog.ParseHost(u.Hostname()); err == nil {
		h = h.At(uint16(port))
		if slices.Contains(r.api.Hosts, h.Exact()) || slices.Contains(r.api.Hosts, h.Wildcard()) {
			return r.api
		}
	}
	without := *r.api
	// Connections are shared by name, so the copy needs another name.
	without.Name, without.ClientCert = without.Name+" without its certificate", nil
	return &without
}

// post sends a form.
func (r *requester) post(ctx context.Context, to string, form url.Values, user, password string) (*Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, unavailable(detailUnreachable)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	if user != "" {
		// RFC 6749, section 2.3.1: id and secret are form-encoded first.
		req.SetBasicAuth(url.QueryEscape(user), url.QueryEscape(password))
	}
	return r.send(req)
}

// postJSON sends a JSON text.
func (r *requester) postJSON(ctx context.Context, to string, v any) (*Answer, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, unavailable(detailNotJSON)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return nil, unavailable(detailUnreachable)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	return r.send(req)
}

// get requests a JSON text.
func (r *requester) get(ctx context.Context, from string) (*Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, unavailable(detailUnreachable)
	}
	req.Header.Set("Accept", "application/json")
	return r.send(req)
}

var errNotJSON = errors.New("not one JSON object")

// decode reads an answer that is one JSON object.
func decode(body []byte, v any) error {
	// Unmarshal rejects text after the object.
	if json.Unmarshal(body, v) != nil {
		return errNotJSON
	}
	return nil
}

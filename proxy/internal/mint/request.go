package mint

import (
	"context"
	"encoding/json"
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
	CheckTarget(ctx context.Context, w upstream.Want, u *url.URL) error
	RoundTrip(req *http.Request, w upstream.Want) (*http.Response, error)
}

// Answer is the answer of a server.
type Answer struct {
	Status int
	Body   []byte
	// Challenges are the values of WWW-Authenticate.
	Challenges []string
}

// requester sends the requests of one credential.
type requester struct {
	transport Transport
	owner     *upstream.ContextOwner // runs do not share its connections
	api       *catalog.API
	userAgent string
}

// sendForAnswer sends a request and reads the whole answer. It never follows a redirect, which would send the client's
// secret and codes elsewhere. Errors contain no text that a server chose.
func (r *requester) sendForAnswer(req *http.Request) (*Answer, error) {
	if req.URL.Scheme != "https" || req.URL.User != nil {
		return nil, newUnavailable(detailUnreachable)
	}
	req.Header.Set("User-Agent", r.userAgent)
	// The answer is read without a decoder, so it must not be compressed.
	req.Header.Set("Accept-Encoding", "identity")
	w := upstream.Want{APIs: []*catalog.API{r.chooseAPI(req.URL)}, Version: "mint", Owner: r.owner}
	if err := r.transport.CheckTarget(req.Context(), w, req.URL); err != nil {
		return nil, newUnavailable(detailUnreachable)
	}
	resp, err := r.transport.RoundTrip(req, w)
	if err != nil {
		return nil, newUnavailable(detailUnreachable)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return nil, newUnavailable(detailRedirect)
	}
	// The server has ignored Accept-Encoding.
	if resp.Header.Get("Content-Encoding") != "" {
		return nil, newUnavailable(detailNotJSON)
	}
	// One byte more than allowed shows that the answer is too long.
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, newUnavailable(detailUnreachable)
	case len(body) > maxAnswer:
		return nil, newUnavailable(detailTooLarge)
	}
	return &Answer{resp.StatusCode, body, resp.Header.Values("WWW-Authenticate")}, nil
}

// chooseAPI returns the API to use for an address.
func (r *requester) chooseAPI(u *url.URL) *catalog.API {
	if r.api == nil || r.api.ClientCert == nil {
		return r.api
	}
	port, _ := strconv.ParseUint(u.Port(), 10, 16) // no port is 0
	if h, err := catalog.ParseHost(u.Hostname()); err == nil {
		h = h.AtPort(uint16(port))
		if slices.Contains(r.api.Hosts, h.ExactPattern()) || slices.Contains(r.api.Hosts, h.WildcardPattern()) {
			return r.api
		}
	}
	return upstream.DropCertificate(r.api)
}

func (r *requester) postForm(ctx context.Context, to string, form url.Values, user, password string) (*Answer, error) {
	req, err := newRequest(ctx, http.MethodPost, to, "application/x-www-form-urlencoded", form.Encode())
	if err != nil {
		return nil, err
	}
	if user != "" {
		// RFC 6749, section 2.3.1: id and secret are form-encoded first.
		req.SetBasicAuth(url.QueryEscape(user), url.QueryEscape(password))
	}
	return r.sendForAnswer(req)
}

// postJSON sends a JSON text.
func (r *requester) postJSON(ctx context.Context, to string, v any) (*Answer, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, newUnavailable(detailNotJSON)
	}
	req, err := newRequest(ctx, http.MethodPost, to, "application/json", string(body))
	if err != nil {
		return nil, err
	}
	return r.sendForAnswer(req)
}

func (r *requester) getJSON(ctx context.Context, from string) (*Answer, error) {
	req, err := newRequest(ctx, http.MethodGet, from, "", "")
	if err != nil {
		return nil, err
	}
	return r.sendForAnswer(req)
}

// newRequest returns a request for a JSON text. The content type is that of a body, which may be missing.
func newRequest(ctx context.Context, method, to, contentType, body string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, to, strings.NewReader(body))
	if err != nil {
		return nil, newUnavailable(detailUnreachable)
	}
	req.Header.Set("Accept", "application/json")
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	return req, nil
}

// decodeObject reads an answer that is one JSON object.
func decodeObject(body []byte, v any) error {
	// Unmarshal rejects text after the object.
	if json.Unmarshal(body, v) != nil {
		return newUnavailable(detailNotJSON)
	}
	return nil
}

package egress

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"io"
	"net/http"
	"strconv"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/attempt"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/formdata"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
)

// attempt gives a request that writes the idempotency key of its API, unless code has set one. Repetitions of a body of
// unknown or great length are not recognised: each has a key of its own.
func (x *exchange) attempt(q policy.Request, out *http.Request) error {
	names := x.keyed(x.verdict.APIs, q, out)
	if len(names) == 0 {
		return nil
	}
	group, err := groupOf(out)
	if err != nil {
		return err
	}
	key, ended := x.conf.Keys.Begin(x.lease.Tenant, group)
	for _, name := range names {
		out.Header.Set(name, key)
	}
	x.attempted = ended
	return nil
}

// keyed are the headers in which a request gets a key.
func (x *exchange) keyed(apis []*catalog.API, q policy.Request, out *http.Request) (names []string) {
	if !q.Writes() || q.Upgrade != "" || x.conf.Keys == nil {
		return nil
	}
	for _, a := range apis {
		if a.Idempotency != "" && out.Header.Get(a.Idempotency) == "" {
			names = append(names, a.Idempotency)
		}
	}
	return names
}

// groupOf identifies a request as code wrote it, with names in the place of credentials. It reads a short body, which
// then leaves as it was read.
func groupOf(out *http.Request) (attempt.Group, error) {
	h := sha256.New()
	part := func(s string) { _, _ = io.WriteString(h, strconv.Itoa(len(s))+":"+s) }
	part(out.Method)
	part(out.URL.String())
	headers := shownHeaders(out.Header) // any of them may say for whom it is
	body := ""
	if out.Body != nil && out.Body != http.NoBody {
		text, err := io.ReadAll(io.LimitReader(out.Body, coding.ExactUpTo+1))
		if err != nil {
			return attempt.Group{}, err
		}
		var rest io.Reader = bytes.NewReader(text)
		if len(text) > coding.ExactUpTo {
			rest = io.MultiReader(rest, out.Body)
			part(rand.Text())
		}
		out.Body = struct {
			io.Reader
			io.Closer
		}{rest, out.Body}
		headers, body = formdata.Unbound(headers, string(text))
	}
	for _, line := range headers {
		part(line)
	}
	part("")
	part(body)
	return attempt.Group(h.Sum(nil)), nil
}

// endAttempt says whether the request may be repeated with its key: only when nobody knows how it ended. What a gateway
// says of a server that it did not reach, or that did not answer in time, is not an answer of the server.
func (x *exchange) endAttempt() {
	if x.attempted == nil {
		return
	}
	//defence:idempotency permits
	known := x.answered != 0 || x.unsent()
	switch x.answered {
	case http.StatusRequestTimeout, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		//defence:idempotency
		known = false
	}
	x.attempted(known)
}

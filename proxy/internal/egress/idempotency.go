package egress

import (
	"crypto/rand"
	"crypto/sha256"
	"net/http"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/approval"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/formdata"
	"github.com/codeforge-mcp/codeforge/proxy/internal/idempotency"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
)

// setKey sets the idempotency key of a request that writes, in the header of its API, unless code has set one. A body
// of unknown length, or of more than coding.ExactUpTo bytes, always gets a new key.
func (s *settlement) setKey(
	keys *idempotency.Keys, tenant string, q policy.Request, apis []*catalog.API, out *http.Request,
) error {
	names := listKeyHeaders(apis, q, out)
	if len(names) == 0 {
		return nil
	}
	group, err := hashGroup(out)
	if err != nil {
		return err
	}
	key, ended := keys.BeginAttempt(tenant, group)
	for _, name := range names {
		out.Header.Set(name, key)
	}
	s.attempted = ended
	return nil
}

// listKeyHeaders returns the headers in which a request gets a key.
func listKeyHeaders(apis []*catalog.API, q policy.Request, out *http.Request) (names []string) {
	if !q.CanWrite() || q.Upgrade != "" {
		return nil
	}
	for _, a := range apis {
		if a.Idempotency != "" && out.Header.Get(a.Idempotency) == "" {
			names = append(names, a.Idempotency)
		}
	}
	return names
}

// hashGroup identifies a request as code wrote it, with token names for credentials. It reads up to coding.ExactUpTo
// bytes of the body and puts them back.
func hashGroup(out *http.Request) (idempotency.Group, error) {
	h := sha256.New()
	headers := listShownHeaders(out.Header) // any header may name the account that the request is for
	text, whole, err := coding.PeekBody(out, coding.ExactUpTo, 0)
	if err != nil {
		return idempotency.Group{}, err
	}
	if !whole {
		// The rest of a long body is unknown, so no two such requests may count as the same.
		approval.WriteParts(h, rand.Text())
	}
	// fetch() chooses a new multipart boundary for each request, also for a repetition.
	headers, body := formdata.StripBoundary(headers, string(text))
	approval.WriteParts(h, append([]string{out.Method, out.URL.String(), body}, headers...)...)
	return idempotency.Group(h.Sum(nil)), nil
}

// endAttempt reports whether the outcome is known. Code may repeat the request with the same key only if it is not.
// status is that of the upstream's answer, or 0. left means that a part of the request may have left.
func (s *settlement) endAttempt(status int, left bool) {
	if s.attempted == nil {
		return
	}
	//defence:idempotency permits
	known := status != 0 || !left
	// A gateway sends these for a server that it did not reach, or that did not answer in time: the write may still have
	// happened.
	switch status {
	case http.StatusRequestTimeout, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		//defence:idempotency
		known = false
	}
	s.attempted(known)
}

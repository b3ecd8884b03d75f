package mint

import (
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/sigv4"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
)

// The details of policy.CodeNotSignable.
const (
	detailScope     = "another_host_region_or_service"
	detailTooLong   = "body_too_long"
	detailAlgorithm = "another_algorithm"
	detailPath      = "ambiguous_path_or_query"
	detailNoValue   = "signs_and_is_no_value"
)

var errScope = errors.New("another host, region or service than config.json has")

// Claim finds the credential with whose key a request asks to be signed, and takes out what asks for it, so that
// nothing is swapped there. allowed are the credentials that the request may use. Nil means that none is asked for.
//
// It is called before anything is swapped, and Sign after everything else.
func Claim(req *http.Request, allowed []catalog.Credential) *catalog.Credential {
	for i, c := range allowed {
		claimed := false
		switch how := c.Mint.(type) {
		case *catalog.AWS:
			claimed = claimAWS(req, c.Name)
		case *catalog.HMAC:
			claimed = claimHMAC(req, c, how)
		}
		if claimed {
			return &allowed[i]
		}
	}
	return nil
}

func claimAWS(req *http.Request, name string) bool {
	asked, asks := sigv4.Asks(req.Header)
	if !asks || asked != name || len(req.Header["Authorization"]) != 1 {
		return false
	}
	// The algorithm stays, for Sign to judge. The session token is one that an SDK made up.
	word, _, _ := strings.Cut(strings.TrimSpace(req.Header.Get("Authorization")), " ")
	req.Header.Set("Authorization", word)
	req.Header.Del("X-Amz-Security-Token")
	return true
}

func claimHMAC(req *http.Request, c catalog.Credential, h *catalog.HMAC) bool {
	asks := slices.ContainsFunc(c.Surfaces, func(s catalog.Surface) bool {
		v := req.Header[s.Field]
		return len(v) == 1 && v[0] == c.Name
	})
	if asks {
		for name := range h.Headers {
			req.Header.Del(name)
		}
	}
	return asks
}

// Sign signs a request with a credential that Claim found, and returns the signature for scrubbing: it is good for some
// minutes, and for more than the request where a server does not check all of it. host is the one that the request goes
// to, without its port. Errors are an *Error, or that of reading the body.
func (m *Minter) Sign(ctx context.Context, c catalog.Credential, req *http.Request, host string) ([]byte, error) {
	var signature []byte
	var err error
	switch how := c.Mint.(type) {
	case *catalog.HMAC:
		signature, err = signHMAC(req, how, m.now())
	case *catalog.AWS:
		k, failed := m.keys(ctx, c, how)
		if failed != nil {
			return nil, failed
		}
		if err = signAWS(req, host, how, k, m.now()); err == nil {
			_, digits, _ := strings.Cut(req.Header.Get("Authorization"), "Signature=")
			signature, err = hex.DecodeString(digits)
		}
	}
	for _, known := range []struct {
		err          error
		code, detail string
	}{
		{sigv4.ErrChunks, policy.CodeChunkSigned, ""}, {sigv4.ErrPresigned, policy.CodePresigned, ""},
		{sigv4.ErrAlgorithm, policy.CodeNotSignable, detailAlgorithm}, {sigv4.ErrPath, policy.CodeNotSignable, detailPath},
		{errScope, policy.CodeNotSignable, detailScope}, {errTooLong, policy.CodeNotSignable, detailTooLong},
		{errKey, policy.CodeNotSignable, detailKey},
	} {
		if errors.Is(err, known.err) {
			return nil, &Error{Name: c.Name, Code: known.code, Detail: known.detail}
		}
	}
	return signature, err
}

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

// The errors for a request that this package does not sign.
var (
	errScope   = &Error{Code: policy.CodeNotSignable, Detail: detailScope}
	errTooLong = &Error{Code: policy.CodeNotSignable, Detail: detailTooLong}
	errKey     = &Error{Code: policy.CodeNotSignable, Detail: detailKey}
)

// signatureErrors are the errors for those of package sigv4.
var signatureErrors = map[error]*Error{
	sigv4.ErrChunks: {Code: policy.CodeChunkSigned}, sigv4.ErrPresigned: {Code: policy.CodePresigned},
	sigv4.ErrAlgorithm: {Code: policy.CodeNotSignable, Detail: detailAlgorithm},
	sigv4.ErrPath:      {Code: policy.CodeNotSignable, Detail: detailPath},
}

// ClaimSigner finds the credential whose key should sign the request. It removes the token name from the request, so
// that swap does not replace it. allowed are the credentials that the request may use. Nil means that the request asks
// for no signature.
//
// Call ClaimSigner before anything is swapped, and SignRequest after all other changes.
func ClaimSigner(req *http.Request, allowed []catalog.Credential) *catalog.Credential {
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
	asked, asks := sigv4.FindKeyName(req.Header)
	// Servers join or pick from two Authorization headers.
	if !asks || asked != name || len(req.Header["Authorization"]) != 1 {
		return false
	}
	// SignRequest checks the algorithm, so the first word stays. The session token is invented by an SDK.
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

// SignRequest signs a request with a credential that ClaimSigner found. It returns the signature for scrubbing, because
// the signature is valid for some minutes. If the server does not check every part of the request, the signature is
// also valid for other requests. host is the host of the request, without the port. The error is an *Error, or the
// error of reading the body.
func (m *Minter) SignRequest(ctx context.Context, c catalog.Credential, req *http.Request, host string) ([]byte,
	error) {
	var signature []byte
	var err error
	switch how := c.Mint.(type) {
	case *catalog.HMAC:
		signature, err = signHMAC(req, how, m.wallTime())
	case *catalog.AWS:
		k, failed := m.obtainKeys(ctx, c, how)
		if failed != nil {
			return nil, failed
		}
		if err = signAWS(req, host, how, k, m.wallTime()); err == nil {
			_, digits, _ := strings.Cut(req.Header.Get("Authorization"), "Signature=")
			signature, err = hex.DecodeString(digits)
		}
	}
	for known, why := range signatureErrors {
		if errors.Is(err, known) {
			err = why
		}
	}
	if _, ok := errors.AsType[*Error](err); ok {
		err = asError(c.Name, err)
	}
	return signature, err
}

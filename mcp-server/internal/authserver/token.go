package authserver

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
)

// newSecret returns a random text of 130 bits.
func newSecret() string { return rand.Text() }

// hashSecret returns the form in which the database has a secret. Its comparison reveals no part of the secret by its
// time, because a guess with a similar hash cannot be made.
func hashSecret(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// newOneTimeCode returns a code of 60 bits that a person can type: three groups of four letters and digits.
func newOneTimeCode() string {
	t := rand.Text()
	return t[:4] + "-" + t[4:8] + "-" + t[8:12]
}

// foldOneTimeCode returns a code as it was made. A person may type it in another case and without groups.
func foldOneTimeCode(text string) string {
	t := strings.ToUpper(strings.NewReplacer("-", "", " ", "").Replace(text))
	if len(t) != 12 {
		return ""
	}
	return t[:4] + "-" + t[4:8] + "-" + t[8:]
}

// readForm returns the parameters of a body. A parameter must not occur twice, and an empty one counts as omitted (RFC
// 6749, section 3.2). It answers the request and returns false if it cannot.
func readForm(w http.ResponseWriter, r *http.Request) (url.Values, bool) {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	// Only the body counts, because addresses end up in logs.
	if err := r.ParseForm(); err != nil || kind != "application/x-www-form-urlencoded" || hasRepeated(r.PostForm) {
		refuseRequest(w, http.StatusBadRequest, "invalid_request", "want a form of at most 16 KiB, and each parameter once")
		return nil, false
	}
	//defence:client-body instead r.Form, true
	return r.PostForm, true
}

func hasRepeated(v url.Values) bool {
	for _, list := range v {
		//defence:client-repeated
		if len(list) > 1 {
			return true
		}
	}
	return false
}

// tokens are the tokens of an answer.
type tokens struct{ access, refresh string }

// issueToken is the token endpoint.
func (s *Server) issueToken(w http.ResponseWriter, r *http.Request) {
	v, ok := readForm(w, r)
	if !ok {
		return
	}
	//defence:client-resource
	if s.isOtherResource(v) {
		refuseRequest(w, http.StatusBadRequest, "invalid_target", "this server has tokens for "+s.resourceURL()+" only")
		return
	}
	var t tokens
	var err error
	switch v.Get("grant_type") {
	case grantTypes[0]:
		t, err = s.exchangeCode(r, v)
	case grantTypes[1]:
		t, err = s.renewToken(r, v)
	default:
		refuseRequest(w, http.StatusBadRequest, "unsupported_grant_type", "want "+strings.Join(grantTypes, " or "))
		return
	}
	switch {
	case errors.Is(err, errUnknown):
		refuseRequest(w, http.StatusBadRequest, "invalid_grant", "log in again")
	case err != nil:
		s.refuseForFailure(w, err)
	default:
		rpc.WriteAnswer(w, http.StatusOK, map[string]any{
			"access_token": t.access, "token_type": "Bearer", "expires_in": int(accessTime / time.Second),
			"refresh_token": t.refresh,
		})
	}
}

// exchangeCode makes a login of a code. The first attempt uses up the code, whether it succeeds or not. A second one
// ends the login, because one of the two senders has stolen the code.
func (s *Server) exchangeCode(r *http.Request, v url.Values) (tokens, error) {
	t, err := s.store.exchangeCode(r.Context(), v.Get("code"), func(p request) bool { return s.isExchangeAllowed(p, v) })
	if !errors.Is(err, errUnknown) {
		return t, err
	}
	ended := false
	//defence:client-replay
	ended, err = s.store.endLoginOfCode(r.Context(), v.Get("code"))
	if ended {
		s.logLogin(slog.LevelWarn, "ended a login, because its code was used twice")
	}
	return tokens{}, errors.Join(errUnknown, err)
}

// isExchangeAllowed reports whether the parameters for the token endpoint fit to the request of a code.
func (s *Server) isExchangeAllowed(p request, v url.Values) bool {
	//defence:client-code
	if p.client != v.Get("client_id") {
		return false
	}
	//defence:client-redirect
	if cmp.Or(v.Get("redirect_uri"), p.redirect) != p.redirect {
		return false
	}
	//defence:client-verifier
	if !isVerifierOf(v.Get("code_verifier"), p.challenge) {
		return false
	}
	return s.cfg.HasTenant(p.tenant, p.proof)
}

// isVerifierOf reports whether a verifier belongs to a challenge of the method S256 (RFC 7636).
func isVerifierOf(verifier, challenge string) bool {
	sum := sha256.Sum256([]byte(verifier))
	want := base64.RawURLEncoding.EncodeToString(sum[:])
	return len(verifier) >= 43 && len(verifier) <= 128 && subtle.ConstantTimeCompare([]byte(want), []byte(challenge)) == 1
}

// renewToken replaces a refresh token. A replaced one ends its login, because one of its two users has stolen it.
func (s *Server) renewToken(r *http.Request, v url.Values) (tokens, error) {
	t, l, err := s.store.renewLogin(r.Context(), v.Get("refresh_token"), v.Get("client_id"))
	if errors.Is(err, errReused) {
		s.logLogin(slog.LevelWarn, "ended a login, because a refresh token was used twice")
		return tokens{}, errUnknown
	}
	if err != nil {
		return tokens{}, err
	}
	//defence:client-tenant
	if !s.cfg.HasTenant(l.Tenant, l.proof) {
		return tokens{}, errors.Join(errUnknown, s.store.removeLogin(r.Context(), l.ID))
	}
	return t, nil
}

// revokeToken ends the login of a token (RFC 7009). The answer does not tell whether the token was known.
func (s *Server) revokeToken(w http.ResponseWriter, r *http.Request) {
	v, ok := readForm(w, r)
	if !ok {
		return
	}
	if err := s.store.endLoginOfToken(r.Context(), v.Get("token"), v.Get("client_id")); err != nil {
		s.refuseForFailure(w, err)
		return
	}
	rpc.WriteAnswer(w, http.StatusOK, struct{}{})
}

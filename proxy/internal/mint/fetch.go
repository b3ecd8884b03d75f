package mint

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/jsonpointer"
	"github.com/codeforge-mcp/codeforge/proxy/internal/scrub"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
)

// The details of a source without a usable value.
const (
	detailDenied   = "source_refused"
	detailAbsent   = "source_has_no_such_secret"
	detailSealed   = "source_is_sealed_or_down"
	detailPointer  = "nothing_at_json"
	detailBase64   = "not_base64"
	detailUnfit    = "value_is_unusable"
	detailNoFile   = "file_is_unusable"
	detailNeedless = "source_needs_another_credential"
)

// fetchSecret gets the value that a secret manager returns for a request with other credentials.
func (m *Minter) fetchSecret(ctx context.Context, f *catalog.Fetch, r *requester) (grant, error) {
	req, err := http.NewRequestWithContext(ctx, f.Method, f.URL, strings.NewReader(f.Body))
	if err != nil {
		return grant{}, newUnavailable(detailUnreachable)
	}
	if f.Body == "" {
		req.Body = http.NoBody
	}
	for name, value := range f.Headers {
		req.Header.Set(name, value)
	}
	r, sent, err := m.authenticateRequest(ctx, f, r, req)
	if err != nil {
		return grant{}, err
	}
	a, err := r.sendForAnswer(req)
	if err != nil {
		return grant{}, err
	}
	switch {
	case a.Status == http.StatusOK || a.Status == http.StatusCreated:
	case a.Status == http.StatusUnauthorized, a.Status == http.StatusForbidden:
		return grant{}, newUnavailable(detailDenied)
	case a.Status == http.StatusNotFound:
		return grant{}, newUnavailable(detailAbsent)
	// Vault answers with 503 while it is sealed.
	case a.Status >= http.StatusInternalServerError:
		return grant{}, newUnavailable(detailSealed)
	default:
		return grant{}, newUnavailable(detailStatus)
	}
	text, err := readSecret(f, a.Body)
	if err != nil {
		return grant{}, err
	}
	// The answer must not contain a credential that changes. acceptToken checks the fixed ones of config.json.
	if scrub.New(sent).Contains(text) {
		return grant{}, newUnavailable(detailEcho)
	}
	return grant{Access: text, Life: f.TTL.Duration(), Stale: staleSource}, nil
}

// readSecret reads the secret from an answer.
func readSecret(f *catalog.Fetch, body []byte) (string, error) {
	text, err := jsonpointer.Find(body, f.Pointer)
	switch {
	case errors.Is(err, jsonpointer.ErrNotJSON):
		return "", newUnavailable(detailNotJSON)
	case err != nil:
		return "", newUnavailable(detailPointer)
	}
	if f.Base64 {
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return "", newUnavailable(detailBase64)
		}
		text = string(data)
	}
	v, err := catalog.ParseSourceText(strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r"))
	if err != nil {
		return "", newUnavailable(detailUnfit)
	}
	return v.Reveal(), nil
}

// authenticateRequest swaps in the credentials that the headers name, and signs the request, with the same code as for
// runs. It returns the requester for the API of the first such credential, and the changing credentials that were
// swapped in.
func (m *Minter) authenticateRequest(
	ctx context.Context, f *catalog.Fetch, r *requester, req *http.Request,
) (_ *requester, sent []catalog.Credential, err error) {
	var used []catalog.Credential
	for _, name := range f.Uses {
		c, api := m.findCredential(name)
		// A word that only looks like a token name.
		if api == nil {
			continue
		}
		if used == nil {
			// The API of the credential decides how its host is reached.
			other := *r
			other.api, r = api, &other
		}
		used = append(used, c)
	}
	if used == nil {
		return r, nil, nil
	}
	// Before the swap: a name that asks for a signature must not be replaced.
	signer := ClaimSigner(req, used)
	var failed *Error
	o := swap.Options{Allowed: used, Obtain: func(c catalog.Credential) (string, error) {
		v, err := m.ObtainValue(ctx, c)
		if err == nil {
			sent = append(sent, maskSecret(v))
		}
		return v, err
	}}
	if _, err := swap.New(used).SwapRequest(req, o); err != nil {
		if errors.As(err, &failed) {
			return nil, nil, &Error{Code: failed.Code, Detail: detailNeedless}
		}
		return nil, nil, newUnavailable(detailNeedless)
	}
	if signer == nil {
		return r, sent, nil
	}
	host, err := url.Parse(f.URL)
	if err != nil {
		return nil, nil, newUnavailable(detailUnreachable)
	}
	if _, err := m.SignRequest(ctx, *signer, req, host.Hostname()); err != nil {
		return nil, nil, newUnavailable(detailNeedless)
	}
	return r, sent, nil
}

// readFile reads the value of a file that another program rewrites. dir is the folder apis/.
func readFile(f *catalog.File, dir string) (grant, error) {
	v, err := f.ReadCredential(dir)
	if err != nil {
		return grant{}, newUnavailable(detailNoFile)
	}
	return grant{Access: v.Reveal(), Life: f.TTL.Duration(), Stale: staleSource}, nil
}

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
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
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

// fetchSource is a value that a secret manager returns for a request with other credentials.
type fetchSource struct {
	*catalog.Fetch
	m *Minter
}

// canBeStored implements kind. Answers of a secret manager are not copied to a disk.
func (f *fetchSource) canBeStored() bool { return false }

// obtainGrant implements kind.
func (f *fetchSource) obtainGrant(ctx context.Context, r *requester, _ storedToken) (grant, error) {
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
	r, sent, err := f.authenticateRequest(ctx, r, req)
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
	text, err := f.readSecret(a.Body)
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
func (f *fetchSource) readSecret(body []byte) (string, error) {
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
func (f *fetchSource) authenticateRequest(
	ctx context.Context, r *requester, req *http.Request,
) (_ *requester, sent []catalog.Credential, err error) {
	var used []catalog.Credential
	for _, name := range f.Uses {
		c, api := f.m.findCredential(name)
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
		v, err := f.m.ObtainValue(ctx, c)
		if err == nil {
			sent = append(sent, maskSecret(v))
		}
		return v, err
	}}
	if _, err := swap.New(used).SwapRequest(req, o); err != nil {
		if errors.As(err, &failed) {
			return nil, nil, &failure{failed.Code, detailNeedless}
		}
		return nil, nil, &failure{policy.CodeTokenUnavailable, detailNeedless}
	}
	if signer == nil {
		return r, sent, nil
	}
	host, err := url.Parse(f.URL)
	if err != nil {
		return nil, nil, newUnavailable(detailUnreachable)
	}
	if _, err := f.m.SignRequest(ctx, *signer, req, host.Hostname()); err != nil {
		return nil, nil, &failure{policy.CodeTokenUnavailable, detailNeedless}
	}
	return r, sent, nil
}

// fileSource is a file that another program rewrites.
type fileSource struct {
	*catalog.File
	dir string // apis/
}

// canBeStored implements kind.
func (*fileSource) canBeStored() bool { return false }

// obtainGrant implements kind.
func (w *fileSource) obtainGrant(context.Context, *requester, storedToken) (grant, error) {
	v, err := w.ReadCredential(w.dir)
	if err != nil {
		return grant{}, newUnavailable(detailNoFile)
	}
	return grant{Access: v.Reveal(), Life: w.TTL.Duration(), Stale: staleSource}, nil
}

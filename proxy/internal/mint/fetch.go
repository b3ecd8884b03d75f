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

// fetched is a value that a secret manager returns for a request with other credentials.
type fetched struct {
	*catalog.Fetch
	m *Minter
}

// stored implements kind. Answers of a secret manager are not copied to a disk.
func (f *fetched) stored() bool { return false }

// obtain implements kind.
func (f *fetched) obtain(ctx context.Context, r *requester, _ kept) (grant, error) {
	req, err := http.NewRequestWithContext(ctx, f.Method, f.URL, strings.NewReader(f.Body))
	if err != nil {
		return grant{}, unavailable(detailUnreachable)
	}
	if f.Body == "" {
		req.Body = http.NoBody
	}
	for name, value := range f.Headers {
		req.Header.Set(name, value)
	}
	r, sent, err := f.authenticate(ctx, r, req)
	if err != nil {
		return grant{}, err
	}
	a, err := r.send(req)
	if err != nil {
		return grant{}, err
	}
	switch {
	case a.Status == http.StatusOK || a.Status == http.StatusCreated:
	case a.Status == http.StatusUnauthorized, a.Status == http.StatusForbidden:
		return grant{}, unavailable(detailDenied)
	case a.Status == http.StatusNotFound:
		return grant{}, unavailable(detailAbsent)
	case a.Status >= http.StatusInternalServerError:
		return grant{}, unavailable(detailSealed)
	default:
		return grant{}, unavailable(detailStatus)
	}
	text, err := f.find(a.Body)
	if err != nil {
		return grant{}, err
	}
	// The answer must not contain a credential that changes. judge checks the fixed ones of config.json.
	if scrub.New(sent).Contains(text) {
		return grant{}, unavailable(detailEcho)
	}
	return grant{Access: text, Life: f.TTL.Duration(), Stale: staleSource}, nil
}

// find reads the secret from an answer.
func (f *fetched) find(body []byte) (string, error) {
	text, err := jsonpointer.Find(body, f.Pointer)
	switch {
	case errors.Is(err, jsonpointer.ErrNotJSON):
		return "", unavailable(detailNotJSON)
	case err != nil:
		return "", unavailable(detailPointer)
	}
	if f.Base64 {
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return "", unavailable(detailBase64)
		}
		text = string(data)
	}
	v, err := catalog.Value(strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r"))
	if err != nil {
		return "", unavailable(detailUnfit)
	}
	return v.Reveal(), nil
}

// authenticate swaps in the credentials that the headers name, and signs the request, with the same code as for runs.
// It returns the requester for the API of the first such credential, and the changing credentials that were swapped in.
func (f *fetched) authenticate(
	ctx context.Context, r *requester, req *http.Request,
) (_ *requester, sent []catalog.Credential, err error) {
	var used []catalog.Credential
	for _, name := range f.Uses {
		c, api := f.m.credential(name)
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
	signer := Claim(req, used)
	var failed *Error
	o := swap.Options{Allowed: used, Obtain: func(c catalog.Credential) (string, error) {
		v, err := f.m.Value(ctx, c)
		if err == nil {
			sent = append(sent, mask(v))
		}
		return v, err
	}}
	if _, err := swap.New(used).Request(req, o); err != nil {
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
		return nil, nil, unavailable(detailUnreachable)
	}
	if _, err := f.m.Sign(ctx, *signer, req, host.Hostname()); err != nil {
		return nil, nil, &failure{policy.CodeTokenUnavailable, detailNeedless}
	}
	return r, sent, nil
}

// watched is a file that another program rewrites.
type watched struct {
	*catalog.File
	dir string // apis/
}

// stored implements kind.
func (*watched) stored() bool { return false }

// obtain implements kind.
func (w *watched) obtain(context.Context, *requester, kept) (grant, error) {
	v, err := w.Read(w.dir)
	if err != nil {
		return grant{}, unavailable(detailNoFile)
	}
	return grant{Access: v.Reveal(), Life: w.TTL.Duration(), Stale: staleSource}, nil
}

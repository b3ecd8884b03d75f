package egress

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/proxy/internal/scrub"
)

// errNoMinter is for a credential that changes where nothing obtains any.
var errNoMinter = errors.New("nothing obtains credentials here")

// mintedUse is what an exchange did with credentials that were obtained for it.
type mintedUse struct {
	mu     sync.Mutex
	values []mintedValue
	// again is the request as it was before names were swapped, if it may be sent a second time. Nil means that it may
	// not.
	again *http.Request
	// signed is the signature as the value of the token name that the request is signed for, in each notation. Empty: it
	// is not signed.
	signed []catalog.Credential
	// token is true if a session token left with the signature.
	token bool
}

// mintedValue is a credential, and the value that it had.
type mintedValue struct {
	catalog.Credential
	value string
}

// keep keeps a request that may be repeated: a GET or HEAD without a body in which a credential that changes may be
// swapped. Whatever else it is, the server may have acted on it; and what a person approved is sent once.
func (u *mintedUse) keep(x *exchange, out *http.Request) {
	if x.approved || out.Method != http.MethodGet && out.Method != http.MethodHead ||
		out.Body != nil && out.Body != http.NoBody || out.Header.Get("Upgrade") != "" {
		return
	}
	for _, a := range x.verdict.APIs {
		for _, c := range a.Credentials {
			if c.Mint != nil {
				u.again = out.Clone(out.Context())
				return
			}
		}
	}
}

// obtain returns the value of a credential that changes, for swap.
func (x *exchange) obtain(c catalog.Credential) (string, error) {
	if x.conf.Mint == nil {
		return "", errNoMinter
	}
	v, err := x.conf.Mint.Value(x.ctx, c)
	if err == nil {
		x.minted.mu.Lock()
		defer x.minted.mu.Unlock()
		x.minted.values = append(x.minted.values, mintedValue{c, v})
	}
	return v, err
}

// sign notes the signature of the request.
func (u *mintedUse) sign(name string, signature []byte) {
	digits := hex.EncodeToString(signature)
	u.signed = nil
	for _, notation := range []string{digits, strings.ToUpper(digits), base64.StdEncoding.EncodeToString(signature)} {
		u.signed = append(u.signed, catalog.Credential{Name: name, Value: secret.New(notation)})
	}
}

// ownSignature finds the signature of the request. Nil means none.
func (x *exchange) ownSignature() *scrub.Scrubber {
	//defence:signature permits
	if len(x.minted.signed) == 0 {
		return nil
	}
	return scrub.New(x.minted.signed)
}

// scrubSignature replaces the request's own signature in its response by the token name, after everything else was
// scrubbed. Nothing has to be decoded again. A search of its own costs less than a new one for everything.
func (x *exchange) scrubSignature(resp *http.Response, o scrub.Options) error {
	s := x.ownSignature()
	if s == nil {
		return nil
	}
	var err error
	x.unsigned, err = s.Response(resp, o)
	return err
}

// renew has the credentials of a request renewed that a server refused. With wait it is true once one of them has
// another value.
func (x *exchange) renew(wait bool) bool {
	x.minted.mu.Lock()
	values := x.minted.values
	x.minted.values = nil
	x.minted.mu.Unlock()
	ctx := x.ctx
	if !wait {
		done, cancel := context.WithCancel(ctx)
		cancel()
		ctx = done
	}
	renewed := false
	for _, v := range values {
		renewed = x.conf.Mint.Renewed(ctx, v.Credential, v.value) || renewed
	}
	return renewed
}

// unauthorized takes a 401. If a credential in the request has another value since, or gets one, the request is sent
// once more, if that is safe.
func (x *exchange) unauthorized(resp *http.Response) (*http.Response, error) {
	again := x.minted.again
	x.minted.again = nil
	if !x.renew(again != nil) || again == nil {
		return resp, nil
	}
	_ = resp.Body.Close()
	if err := x.complete(again); err != nil {
		return nil, err
	}
	return x.toUpstream(again)
}

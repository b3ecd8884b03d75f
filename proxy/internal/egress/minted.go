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

// errNoMinter is for a minted credential in a proxy without a Minter.
var errNoMinter = errors.New("this proxy cannot obtain credentials")

// mintedUse records how an exchange used minted credentials.
type mintedUse struct {
	mu     sync.Mutex
	values []mintedValue
	// again is a copy of the request from before the swap, for one retry. Nil means that the request must not be sent
	// again.
	again *http.Request
	// signed holds the request's signature as the value of its token name, in each notation. It is empty for an unsigned
	// request.
	signed []catalog.Credential
	// token is true if a session token left with the signature.
	token bool
}

// mintedValue is a credential with the value that it had when the request was sent.
type mintedValue struct {
	catalog.Credential
	value string
}

// keep keeps a copy of a request that is safe to repeat: a GET or HEAD without a body, for an API with a minted
// credential. A server may have acted on any other request. An approved request is sent only once.
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

// obtain returns the current value of a minted credential, for package swap.
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

// sign notes the signature of the request, in the notations that an answer may repeat.
func (u *mintedUse) sign(name string, signature []byte) {
	digits := hex.EncodeToString(signature)
	u.signed = nil
	for _, notation := range []string{digits, strings.ToUpper(digits), base64.StdEncoding.EncodeToString(signature)} {
		u.signed = append(u.signed, catalog.Credential{Name: name, Value: secret.New(notation)})
	}
}

// ownSignature returns a scrubber for the request's signature, or nil if the request is not signed.
func (x *exchange) ownSignature() *scrub.Scrubber {
	//defence:signature permits
	if len(x.minted.signed) == 0 {
		return nil
	}
	return scrub.New(x.minted.signed)
}

// scrubSignature replaces the request's signature in its response by the token name. It runs after the general scrub,
// on a decoded body. A second search costs less than a new scrubber for all credentials.
func (x *exchange) scrubSignature(resp *http.Response, o scrub.Options) error {
	s := x.ownSignature()
	if s == nil {
		return nil
	}
	var err error
	x.unsigned, err = s.Response(resp, o)
	return err
}

// renew renews the minted credentials of a request that a server refused. With wait, it returns true if a credential
// has a new value.
func (x *exchange) renew(wait bool) bool {
	// Each value is reported once: a second 401 must not renew a value that is already replaced.
	x.minted.mu.Lock()
	values := x.minted.values
	x.minted.values = nil
	x.minted.mu.Unlock()
	ctx := x.ctx
	// Without wait the renewal runs in the background, because a cancelled context only starts it.
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

// unauthorized handles a 401. If a credential in the request has changed since, or can be renewed, and the request is
// safe to repeat, it sends the request once more.
func (x *exchange) unauthorized(resp *http.Response) (*http.Response, error) {
	// At most one retry.
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

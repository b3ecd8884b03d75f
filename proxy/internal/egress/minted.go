package egress

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/proxy/internal/scrub"
)

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

// keepForRetry keeps a copy of a request that is safe to repeat: a GET or HEAD without a body, for an API with a minted
// credential. A server may have acted on any other request. An approved request is sent only once.
func (x *exchange) keepForRetry() error {
	out := x.out
	if x.approved || out.Method != http.MethodGet && out.Method != http.MethodHead ||
		out.Body != nil && out.Body != http.NoBody || out.Header.Get("Upgrade") != "" {
		return nil
	}
	for _, a := range x.verdict.APIs {
		for _, c := range a.Credentials {
			if c.Mint != nil {
				// A deep copy, because the swap writes credentials into the URL and the headers in place.
				x.minted.again = out.Clone(out.Context())
				return nil
			}
		}
	}
	return nil
}

// obtainValue returns the current value of a minted credential, for package swap.
func (x *exchange) obtainValue(c catalog.Credential) (string, error) {
	v, err := x.conf.Mint.ObtainValue(x.ctx, c)
	if err == nil {
		x.minted.mu.Lock()
		defer x.minted.mu.Unlock()
		x.minted.values = append(x.minted.values, mintedValue{c, v})
	}
	return v, err
}

// noteSignature notes the signature of the request, in the notations that an answer may repeat.
func (u *mintedUse) noteSignature(name string, signature []byte) {
	digits := hex.EncodeToString(signature)
	u.signed = nil
	for _, notation := range []string{digits, strings.ToUpper(digits), base64.StdEncoding.EncodeToString(signature)} {
		u.signed = append(u.signed, catalog.Credential{Name: name, Value: secret.New(notation)})
	}
}

// newSignatureScrubber returns a scrubber for the request's signature, or nil if the request is not signed.
func (x *exchange) newSignatureScrubber() *scrub.Scrubber {
	//defence:signature permits
	if len(x.minted.signed) == 0 {
		return nil
	}
	return scrub.New(x.minted.signed)
}

// scrubSignature replaces the request's signature in its response by the token name. It runs after the general scrub,
// on a decoded body. A second search costs less than a new scrubber for all credentials.
func (x *exchange) scrubSignature(resp *http.Response) error {
	s := x.newSignatureScrubber()
	if s == nil {
		return nil
	}
	var err error
	x.unsigned, err = s.ScrubResponse(resp, scrub.Options{
		Method: x.out.Method, KeepETag: canKeepETag(x.holders()), Framing: x.framingOf(resp.Header),
	})
	return err
}

// renewMinted renews the minted credentials of a request that a server refused. With wait, it returns true if a
// credential has a new value.
func (x *exchange) renewMinted(wait bool) bool {
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
		renewed = x.conf.Mint.RenewValue(ctx, v.Credential, v.value) || renewed
	}
	return renewed
}

// retryUnauthorized handles a 401. If a credential in the request has changed since, or can be renewed, and the request
// is safe to repeat, it sends the request once more.
func (x *exchange) retryUnauthorized(resp *http.Response) (*http.Response, error) {
	// At most one retry.
	again := x.minted.again
	x.minted.again = nil
	if !x.renewMinted(again != nil) || again == nil {
		return resp, nil
	}
	_ = resp.Body.Close()
	x.out = again
	if err := x.putCredentials(); err != nil {
		return nil, err
	}
	return x.sendUpstream(again)
}

package egress

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/mint"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/scrub"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
	"github.com/codeforge-mcp/codeforge/proxy/internal/upstream"
)

// credentialUse records which credentials an exchange put into its request.
type credentialUse struct {
	rest        *coding.Body  // below the search for values: the part of the body that it has not read; may be nil
	swapped     *swap.Report  // nil until the request was searched for values, and may have got credentials
	messages    swap.Options  // for the messages of a WebSocket
	ranged      bool          // a Range header was removed
	want        upstream.Want // the connection that the request needs
	compression compression
	minted      mintedUse
	signature   requestSignature
}

// listSent lists the token names whose credentials have left so far. A signing key does not leave, but a session token
// beside the signature does.
func (u *credentialUse) listSent() []string {
	var out []string
	if u.signature.hasToken {
		out = append(out, u.signature.name)
	}
	for _, s := range u.swapped.Swapped() {
		out = append(out, s.Name)
	}
	return out
}

// requestSignature is the signature of a request. It is zero for an unsigned request.
type requestSignature struct {
	name     string // of the key
	hasToken bool   // a session token left with the signature
	values   []catalog.Credential
}

// newRequestSignature returns a signature with its values in the notations that an answer may repeat.
func newRequestSignature(name string, signature []byte, hasToken bool) requestSignature {
	digits := hex.EncodeToString(signature)
	s := requestSignature{name: name, hasToken: hasToken}
	for _, notation := range []string{digits, strings.ToUpper(digits), base64.StdEncoding.EncodeToString(signature)} {
		s.values = append(s.values, catalog.Credential{Name: name, Value: secret.New(notation)})
	}
	return s
}

// newScrubber returns a scrubber for the signature, or nil for an unsigned request.
func (s requestSignature) newScrubber() *scrub.Scrubber {
	//defence:signature permits
	if len(s.values) == 0 {
		return nil
	}
	return scrub.New(s.values)
}

// mintedUse records the minted credentials of an exchange.
type mintedUse struct {
	mu     sync.Mutex
	values []mintedValue // each once
	// again is a copy of the request from before the swap, for one retry. Nil means that the request must not be sent
	// again.
	again *http.Request
}

// mintedValue is a credential with the value that it had when the request was sent.
type mintedValue struct {
	catalog.Credential
	value string
}

// keepForRetry keeps a copy of a request that is safe to repeat: one without a body that only reads, for an API with a
// minted credential. A server may have acted on any other request. An approved request is sent only once.
func (u *mintedUse) keepForRetry(out *http.Request, q policy.Request, apis []*catalog.API, approved bool) error {
	if approved || q.CanWrite() || coding.BodyOf(out) != nil {
		return nil
	}
	for _, a := range apis {
		for _, c := range a.Credentials {
			if c.Mint != nil {
				// A deep copy, because the swap writes credentials into the URL and the headers in place.
				u.again = out.Clone(out.Context())
				return nil
			}
		}
	}
	return nil
}

// newObtainer returns a function that returns the current value of a minted credential, for package swap.
func (u *mintedUse) newObtainer(ctx context.Context, m *mint.Minter) func(catalog.Credential) (string, error) {
	return func(c catalog.Credential) (string, error) {
		v, err := m.ObtainValue(ctx, c)
		u.mu.Lock()
		defer u.mu.Unlock()
		// The messages of a WebSocket may use a name without end.
		known := func(o mintedValue) bool { return o.Name == c.Name && o.value == v }
		if err == nil && !slices.ContainsFunc(u.values, known) {
			u.values = append(u.values, mintedValue{c, v})
		}
		return v, err
	}
}

// renewValues renews the minted credentials of a request that a server refused. With wait, it returns true if a
// credential has a new value.
func (u *mintedUse) renewValues(ctx context.Context, m *mint.Minter, wait bool) bool {
	// Each value is reported once: a second 401 must not renew a value that is already replaced.
	u.mu.Lock()
	values := u.values
	u.values = nil
	u.mu.Unlock()
	// Without wait the renewal runs in the background, because a cancelled context only starts it.
	if !wait {
		done, cancel := context.WithCancel(ctx)
		cancel()
		ctx = done
	}
	renewed := false
	for _, v := range values {
		renewed = m.RenewValue(ctx, v.Credential, v.value) || renewed
	}
	return renewed
}

// takeRetry returns the request to send once more after a 401, or nil. The request must be safe to repeat. A credential
// in it must have changed since, or been renewed.
func (u *mintedUse) takeRetry(ctx context.Context, m *mint.Minter) *http.Request {
	// At most one retry.
	again := u.again
	u.again = nil
	if !u.renewValues(ctx, m, again != nil) {
		return nil
	}
	return again
}

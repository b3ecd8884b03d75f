package egress

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/proxy/internal/mint"
	"github.com/codeforge-mcp/codeforge/proxy/internal/scrub"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
	"github.com/codeforge-mcp/codeforge/proxy/internal/upstream"
)

// credentialUse records which credentials an exchange put into its request.
type credentialUse struct {
	searched bool          // the request was searched for values, and may have got credentials
	rest     io.ReadCloser // below that search: the part of the body that it has not read
	messages swap.Options  // for the messages of a WebSocket
	swapped  *swap.Report
	ranged   bool          // a Range header was removed
	want     upstream.Want // the connection that the request needs

	compression compression

	mu     sync.Mutex
	minted []mintedValue
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
func (u *credentialUse) keepForRetry(out *http.Request, apis []*catalog.API, approved bool) error {
	if approved || out.Method != http.MethodGet && out.Method != http.MethodHead ||
		out.Body != nil && out.Body != http.NoBody || out.Header.Get("Upgrade") != "" {
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
func (u *credentialUse) newObtainer(ctx context.Context, m *mint.Minter) func(catalog.Credential) (string, error) {
	return func(c catalog.Credential) (string, error) {
		v, err := m.ObtainValue(ctx, c)
		if err == nil {
			u.mu.Lock()
			defer u.mu.Unlock()
			u.minted = append(u.minted, mintedValue{c, v})
		}
		return v, err
	}
}

// noteSignature notes the signature of the request, in the notations that an answer may repeat.
func (u *credentialUse) noteSignature(name string, signature []byte) {
	digits := hex.EncodeToString(signature)
	u.signed = nil
	for _, notation := range []string{digits, strings.ToUpper(digits), base64.StdEncoding.EncodeToString(signature)} {
		u.signed = append(u.signed, catalog.Credential{Name: name, Value: secret.New(notation)})
	}
}

// newSignatureScrubber returns a scrubber for the request's signature, or nil if the request is not signed.
func (u *credentialUse) newSignatureScrubber() *scrub.Scrubber {
	//defence:signature permits
	if len(u.signed) == 0 {
		return nil
	}
	return scrub.New(u.signed)
}

// listSent lists the token names whose credentials have left so far. A signing key does not leave, but a session token
// beside the signature does.
func (u *credentialUse) listSent() []string {
	var out []string
	if u.token {
		out = append(out, u.signed[0].Name)
	}
	for _, s := range u.swapped.Swapped() {
		out = append(out, s.Name)
	}
	return out
}

// renewMinted renews the minted credentials of a request that a server refused. With wait, it returns true if a
// credential has a new value.
func (u *credentialUse) renewMinted(ctx context.Context, m *mint.Minter, wait bool) bool {
	// Each value is reported once: a second 401 must not renew a value that is already replaced.
	u.mu.Lock()
	values := u.minted
	u.minted = nil
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
func (u *credentialUse) takeRetry(ctx context.Context, m *mint.Minter) *http.Request {
	// At most one retry.
	again := u.again
	u.again = nil
	if !u.renewMinted(ctx, m, again != nil) {
		return nil
	}
	return again
}

package wsrelay

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/internal/renewedvalues"
	"github.com/codeforge-mcp/codeforge/proxy/internal/scrub"
	"github.com/codeforge-mcp/codeforge/proxy/internal/swap"
)

// TestMinted: what was minted after a connection was opened is swapped into its messages, does not come back on it, and
// cannot be sent on it; a value that cannot be had ends it.
// Promise: scrubbed-before-use
func TestMinted(t *testing.T) {
	values := renewedvalues.New(nil)
	creds := []catalog.Credential{{
		Name: "CRM_ACCESS_TOKEN", Mint: &catalog.OAuth2{},
		Surfaces: []catalog.Surface{{Kind: catalog.SurfaceBody, Field: "key"}},
	}}
	const token = "minted-canary-0123456789"
	var fails error
	o := Options{
		Scrub: scrub.New(nil).WithMinted(values), Swap: swap.New(creds).WithMinted(values), Report: &Report{},
		SwapOptions: swap.Options{Allowed: creds, Obtain: func(catalog.Credential) (string, error) {
			return token, errors.Join(fails, values.AddValues(renewedvalues.Value{Name: "CRM_ACCESS_TOKEN", Text: token, Until: time.Now().Add(time.Hour)}))
		}},
	}
	got := make(chan string, 1)
	c, ends := connect(t, o, func(ctx context.Context, c *websocket.Conn) {
		for {
			kind, data, err := c.Read(ctx)
			if err != nil {
				return
			}
			got <- string(data)
			if c.Write(ctx, kind, append([]byte("you said "), data...)) != nil {
				return
			}
		}
	})
	say := func(text string) string {
		t.Helper()
		testkit.Must(t, c.Write(t.Context(), websocket.MessageText, []byte(text)))
		_, data, err := c.Read(t.Context())
		testkit.Must(t, err)
		return string(data)
	}
	if answer := say("before"); answer != "you said before" || <-got != "before" {
		t.Errorf("got %q", answer)
	}
	if answer := say(`{"key": "CRM_ACCESS_TOKEN"}`); answer != `you said {"key": "CRM_ACCESS_TOKEN"}` || <-got != `{"key": "`+token+`"}` {
		t.Errorf("got %q", answer)
	}
	fails = errors.New("no token")
	testkit.Must(t, c.Write(t.Context(), websocket.MessageText, []byte(`{"key": "CRM_ACCESS_TOKEN"}`)))
	if err := <-ends; !errors.Is(err, fails) {
		t.Errorf("without a token the connection ended with %v", err)
	}
	fails = nil
	again, ends := connect(t, o, func(ctx context.Context, c *websocket.Conn) { _, _, _ = c.Read(ctx) })
	testkit.Must(t, again.Write(t.Context(), websocket.MessageText, []byte("it is "+token)))
	if err := <-ends; !errors.Is(err, swap.ErrCarriesValue) {
		t.Errorf("a message with the token ended the connection with %v", err)
	}
}

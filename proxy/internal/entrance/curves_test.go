package entrance_test

import (
	"crypto/tls"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestCurves: no client gets a HelloRetryRequest. Deno sends a key share for X25519 and also lists a post-quantum
// curve, which a server that supports it would request.
func TestCurves(t *testing.T) {
	d := newDoor(t)
	c, err := (&tls.Dialer{Config: &tls.Config{RootCAs: d.roots, ServerName: host}}).DialContext(t.Context(), "tcp", d.https[0])
	testkit.Must(t, err)
	defer c.Close()
	state := c.(*tls.Conn).ConnectionState()
	if state.CurveID != tls.X25519 || state.HelloRetryRequest {
		t.Errorf("curve %v, asked again %v", state.CurveID, state.HelloRetryRequest)
	}
}

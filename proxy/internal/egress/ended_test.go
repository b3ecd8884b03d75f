package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

// TestEndedExchange: no byte that arrives after the end of an exchange reaches code. Its scrubber does not know the values
// of the reload that ended it.
// Promise: scrubbed-responses
func TestEndedExchange(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	go func() { _, _ = io.WriteString(far, "message") }()
	cancel(errReloaded)
	for name, r := range map[string]io.Reader{
		"a body": &observedBody{ReadCloser: io.NopCloser(strings.NewReader("body")), ctx: ctx, answer: &upstreamAnswer{}}, "a message": &liveConn{near, ctx},
	} {
		if n, err := r.Read(make([]byte, 100)); n > 0 || !errors.Is(err, errReloaded) {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
	}
}

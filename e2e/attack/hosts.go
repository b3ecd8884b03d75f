package attack

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// hosts are attempts to get a credential, or a request, to another host than the connection's: a handshake that no
// client makes, and settings that no operator should.
func hosts() []Attack {
	return []Attack{
		{
			Section: "A", Name: "control: a ClientHello with SNI is answered", Expected: "ServerHello",
			Judge: verdicts(), Code: hello("httpbin.test", "==="),
		},
		{Section: "A", Name: "no SNI at all", Expected: "no handshake", Judge: verdicts(), Code: hello("", "!==")},
		{Section: "A", Name: "domains that are public suffixes", Expected: "refused at load", Do: suffixes},
	}
}

// hello is code that opens TLS with a ClientHello for a server name, or none: a record of type 22 is a ServerHello.
func hello(name, operator string) string {
	return fmt.Sprintf(`const hello = Uint8Array.from(atob(%q), (c) => c.charCodeAt(0)); const c = await Deno.connect({ hostname: "httpbin.test", port: 443 }); await c.write(hello); const got = await readAll(c, 2000); out({ held: got.charCodeAt(0) %s 22, seen: got === "" ? "cut" : "record of type " + got.charCodeAt(0) });`,
		base64.StdEncoding.EncodeToString(clientHello(name)), operator)
}

// clientHello is the first flight of a TLS client.
func clientHello(name string) []byte {
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		client := tls.Client(theirs, &tls.Config{ServerName: name, InsecureSkipVerify: true}) //nolint:gosec // its handshake never ends
		_ = client.HandshakeContext(context.Background())
		_ = theirs.Close()
	}()
	b := make([]byte, 16<<10)
	n, err := ours.Read(b)
	if err != nil {
		return nil
	}
	return b[:n]
}

// suffixes asks `codeforge check` for domains that belong to many.
func suffixes(ctx context.Context, w *world.World) (string, bool) {
	if w.Mode != world.Embedded {
		return "the same check runs in embedded mode", true
	}
	var bad []string
	for _, domain := range []string{"*.github.io", "*.com", "*.co.uk", "*.s3.amazonaws.com", "*.herokuapp.com", "*", "*.*.example.com", "a.*.example.com", "*.test"} {
		dir, err := world.NewDir(world.Self, []world.API{{Name: "wide", Config: map[string]any{
			"description": "x", "domains": []string{domain}, "credentials": map[string]any{"WIDE_TOKEN": "a-long-credential"},
		}}}, nil)
		if err != nil {
			return err.Error(), false
		}
		out, code, err := world.Tool(ctx, world.Command{Dir: dir, Args: []string{"check", "--apis", filepath.Join(dir, "apis")}})
		_ = os.RemoveAll(dir)
		if err != nil || code != 1 || !strings.Contains(out, "domains") {
			bad = append(bad, domain)
		}
	}
	if len(bad) > 0 {
		return "accepted: " + strings.Join(bad, " "), false
	}
	return "nine of nine refused at load", true
}

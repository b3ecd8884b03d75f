package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestDebugScrubs: DEBUG_MODE logs code and output with token names in place of credentials, or not at all.
// Promise: never-printed
func TestDebugScrubs(t *testing.T) {
	const literal = "sk_live_0123456789abcdef"
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var texts []string
		if err := json.NewDecoder(r.Body).Decode(&texts); err != nil {
			t.Error(err)
		}
		texts[0] = strings.ReplaceAll(texts[0], literal, "STRIPE_TOKEN")
		_ = json.NewEncoder(w).Encode(texts)
	}))
	defer proxy.Close()
	dial := func(address string) *proxyapi.Client {
		return proxyapi.NewClientOver(func(context.Context) (net.Conn, error) { return net.Dial("tcp", address) })
	}
	var log bytes.Buffer
	cfg := Config{
		Debug: true, Control: dial(proxy.Listener.Addr().String()),
		Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	(&Surface{cfg: cfg}).logText(t.Context(), ">>> ", "key = "+literal)
	if text := log.String(); strings.Contains(text, literal) || !strings.Contains(text, ">>> key = STRIPE_TOKEN") {
		t.Errorf("logged %s", text)
	}
	log.Reset()
	cfg.Control = dial("127.0.0.1:1")
	(&Surface{cfg: cfg}).logText(t.Context(), ">>> ", "key = "+literal)
	if text := log.String(); strings.Contains(text, literal) || !strings.Contains(text, "not logged") {
		t.Errorf("without a proxy: logged %s", text)
	}
}

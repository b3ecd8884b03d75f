package mcpclient

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestStranger: what every command says when another program answers on CodeForge's port: one line.
func TestStranger(t *testing.T) {
	page := strings.Repeat("<html>\n", 1000)
	rows := map[string]struct {
		handler http.HandlerFunc
		want    string // in the error of Ready
	}{
		"a web server": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, page, http.StatusNotFound) }, "another program answers at URL (GET /healthz: 404)"},
		"an app":       {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, page) }, "another program answers at URL (GET /healthz: 200)"},
		"a redirect":   {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) }, "another program answers at URL (GET /healthz: 302)"},
		"CodeForge, not ready": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/healthz" {
				fmt.Fprint(w, `{"ok":true}`)
				return
			}
			http.Error(w, `{"problem":"starting"}`, http.StatusServiceUnavailable)
		}, "not ready"},
		"CodeForge, another host": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "Forbidden: this Host is not allowed; MCP_ALLOWED_HOSTS can allow it", http.StatusForbidden)
		}, "MCP_ALLOWED_HOSTS"},
	}
	for name, r := range rows {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(r.handler)
			defer s.Close()
			check(t, s.URL+"/mcp", r.want)
		})
	}
	t.Run("no HTTP", func(t *testing.T) {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
		testkit.Must(t, err)
		defer l.Close()
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Read(make([]byte, 1<<10))
				_, _ = io.WriteString(conn, "SSH-2.0-OpenSSH_9.2\r\n")
				_ = conn.Close()
			}
		}()
		check(t, "http://"+l.Addr().String()+"/mcp", "another program answers at URL (it does not speak HTTP)")
	})
}

// check asks in both ways: as status and doctor do, and as run does.
func check(t *testing.T, url, want string) {
	t.Helper()
	want = strings.ReplaceAll(want, "URL", url)
	for _, c := range []Config{{URL: url}, {Fallback: url}} {
		place := Place{URL: url}
		err := CheckReady(context.Background(), c, place)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("Ready: %v; want %s in a line", err, want)
		}
		if !strings.HasPrefix(want, "another") {
			continue
		}
		c.URL = url
		if _, err = Connect(context.Background(), c, Options{}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("Connect: %v; want %s in a line", err, want)
		}
	}
}

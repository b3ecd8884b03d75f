package broker

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// TestTidies: packages are tidied once after each change of the catalog, and again while that is asked for.
func TestTidies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var version atomic.Value
		var calls atomic.Int32
		var again atomic.Bool
		version.Store("1")
		b := newQuiet(Config{
			Catalog: func() proxyapi.Catalog { return proxyapi.Catalog{Version: version.Load().(string)} },
			Tidy:    func(context.Context) bool { calls.Add(1); return again.Load() },
			Log:     logline.New(t.Output(), "text", nil),
		})
		defer b.Close(context.WithoutCancel(t.Context()))
		after := func(want int32) {
			t.Helper()
			time.Sleep(3*tidyTime + time.Millisecond)
			synctest.Wait()
			if calls.Load() != want {
				t.Errorf("tidied %d times, want %d", calls.Load(), want)
			}
		}
		after(1)
		version.Store("2")
		after(2)
		version.Store("3")
		again.Store(true)
		after(5)
		again.Store(false)
		after(6)
	})
}

// TestTidyFails: without an answer of the proxy or of sandboxd, packages are tidied again later.
func TestTidyFails(t *testing.T) {
	serve := func(answer string) func(context.Context) (net.Conn, error) {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
		t.Cleanup(s.Close)
		return func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", s.Listener.Addr().String())
		}
	}
	gone := func(context.Context) (net.Conn, error) { return nil, errors.New("gone") }
	for name, c := range map[string]struct {
		dial  func(context.Context) (net.Conn, error)
		again bool
	}{
		"no proxy": {gone, true}, "no API": {serve(`{"apis":[]}`), false}, "no sandbox": {serve(`{"apis":[{"name":"a"}]}`), true},
	} {
		l := &BridgeLauncher{Control: proxyapi.NewClientOver(c.dial), Client: sandboxapi.NewClient(sandboxapi.ClientConfig{Dial: gone})}
		if again := l.RemoveUnused(t.Context(), logline.New(t.Output(), "text", nil)); again != c.again {
			t.Errorf("%s: again %v", name, again)
		}
	}
}

func TestWanted(t *testing.T) {
	api := func(pkg string, active bool) proxyapi.InspectedAPI {
		return proxyapi.InspectedAPI{API: proxyapi.API{Name: "x", Server: &mcpserver.Settings{Package: pkg}}, Active: active}
	}
	plain := proxyapi.InspectedAPI{API: proxyapi.API{Name: "plain"}}
	for name, c := range map[string]struct {
		found proxyapi.Inspection
		want  []string
		ok    bool
	}{
		"inactive, twice, one program of it": {proxyapi.Inspection{APIs: []proxyapi.InspectedAPI{
			plain, api("npm:b@1.0.0", false), api("npm:a@1.0.0/tool", true), api("npm:a@1.0.0", true),
		}}, []string{"npm:a@1.0.0", "npm:b@1.0.0"}, true},
		"none is named": {proxyapi.Inspection{APIs: []proxyapi.InspectedAPI{plain}}, []string{}, true},
		"no folder":     {proxyapi.Inspection{}, []string{}, false},
		"a folder is broken": {proxyapi.Inspection{
			APIs: []proxyapi.InspectedAPI{plain}, Problems: []proxyapi.InspectedProblem{{Severity: "error"}},
		}, nil, false},
		"a warning": {proxyapi.Inspection{
			APIs: []proxyapi.InspectedAPI{plain}, Problems: []proxyapi.InspectedProblem{{Severity: "warning"}},
		}, []string{}, true},
	} {
		if got, ok := listWantedPackages(c.found); !slices.Equal(got, c.want) || ok != c.ok {
			t.Errorf("%s: %q %v, want %q %v", name, got, ok, c.want, c.ok)
		}
	}
}

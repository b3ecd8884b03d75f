package catalogwatch_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/catalogwatch"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// A catalog that changes while the watcher starts is seen, however the change falls between fetch and subscription.
func TestChangeAtStart(t *testing.T) {
	for range 5 {
		p, s := fakepeers.NewProxy(t), fakepeers.NewSandbox(t, 1)
		p.Subscribing = func() { p.SetCatalog(proxyapi.Catalog{APIs: []proxyapi.API{{Name: "a"}}}) }
		sandbox, control := sandboxapi.NewClient(sandboxapi.ClientConfig{Dial: s.Dial}), proxyapi.NewClient(p.Socket)
		w := catalogwatch.New(catalogwatch.Config{Control: control, Sandbox: sandbox, Log: logline.New(t.Output(), "text", nil)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.Run(ctx)
		}()
		testkit.WaitFor(t, func() bool { return len(w.Catalog().APIs) == 1 })
		cancel()
		<-done
		control.Close()
		_ = sandbox.Close()
	}
}

// TestFetchCatalog: after a client has read a new catalog, calls see it, although its event is still on the way.
func TestFetchCatalog(t *testing.T) {
	p, s := fakepeers.NewProxy(t), fakepeers.NewSandbox(t, 1)
	sandbox, control := sandboxapi.NewClient(sandboxapi.ClientConfig{Dial: s.Dial}), proxyapi.NewClient(p.Socket)
	defer control.Close()
	defer sandbox.Close()
	w := catalogwatch.New(catalogwatch.Config{Control: control, Sandbox: sandbox, Log: logline.New(t.Output(), "text", nil)})
	testkit.Must(t, w.UpdateCatalog(t.Context()))
	p.SetCatalog(proxyapi.Catalog{APIs: []proxyapi.API{{Name: "a"}}}) // Run, which would see the event, does not run
	cat, err := w.FetchCatalog(t.Context())
	if err != nil || len(cat.APIs) != 1 || len(w.Catalog().APIs) != 1 {
		t.Errorf("read %+v, %v; calls see %+v", cat, err, w.Catalog())
	}
}

// TestCatalogWhileSandboxHangs: a client gets the catalog although the sandbox does not answer the renewal that runs.
func TestCatalogWhileSandboxHangs(t *testing.T) {
	p := fakepeers.NewProxy(t)
	control := proxyapi.NewClient(p.Socket)
	defer control.Close()
	hangs, release, ended := make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	sandbox := sandboxapi.NewClient(sandboxapi.ClientConfig{Dial: func(context.Context) (net.Conn, error) {
		hangs <- struct{}{}
		<-release // also after its context has ended
		return nil, errors.New("released")
	}})
	defer sandbox.Close()
	w := catalogwatch.New(catalogwatch.Config{Control: control, Sandbox: sandbox, Log: logline.New(t.Output(), "text", nil)})
	go func() {
		defer close(ended)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-release; cancel() }()
		_ = w.UpdateCatalog(ctx)
	}()
	defer func() { close(release); <-ended }()
	<-hangs
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := w.UpdateCatalog(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second renewal: %v", err)
	}
}

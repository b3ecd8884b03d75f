package catalogwatch_test

import (
	"context"
	"testing"

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

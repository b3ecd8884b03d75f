package catalogwatch_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/catalogwatch"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// TestPackages: the catalog has packages once they are installed. A failed installation has a reason, and leaves the
// catalog and the packages in force.
func TestPackages(t *testing.T) {
	p, s := fakepeers.NewProxy(t), fakepeers.NewSandbox(t, 1)
	one, two := []string{"npm:x@1.0.0"}, []string{"npm:x@1.0.0", "npm:y@1.0.0"}
	api := []proxyapi.API{{Name: "a"}}
	p.SetCatalog(proxyapi.Catalog{APIs: api, Packages: one, PackageRegistry: "https://packages.example.com/"})
	sandbox := sandboxapi.NewClient(sandboxapi.ClientConfig{Dial: s.Dial})
	w := catalogwatch.New(catalogwatch.Config{
		Control: proxyapi.NewClient(p.Socket), Sandbox: sandbox, Log: logline.New(t.Output(), "text", nil),
		Install: func(_ context.Context, pins []string, registry string) error {
			if !slices.Equal(pins, one) || registry != "https://packages.example.com/" {
				return errors.New("the registry has no such package")
			}
			s.InstallPackages(pins)
			return nil
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	testkit.WaitFor(t, func() bool { return slices.Equal(w.Catalog().Packages, one) && len(w.Packages().Wanted) == 0 })
	p.SetCatalog(proxyapi.Catalog{APIs: append(api, proxyapi.API{Name: "b"}), Packages: two})
	testkit.WaitFor(t, func() bool { return w.Packages().Problem == "the registry has no such package" })
	if c, state := w.Catalog(), w.Packages(); len(c.APIs) != 2 || !slices.Equal(c.Packages, one) || !slices.Equal(state.Wanted, two) {
		t.Errorf("%+v %+v", c, state)
	}
	cancel()
	<-done
}

// TestPackagesOfTwoKinds: if the packages of one kind cannot be installed, code has those of the other kind.
func TestPackagesOfTwoKinds(t *testing.T) {
	p, s := fakepeers.NewProxy(t), fakepeers.NewSandbox(t, 1)
	p.SetCatalog(proxyapi.Catalog{
		APIs: []proxyapi.API{{Name: "a"}}, Packages: []string{"pypi:x@1.0", "npm:x@1.0.0"},
		PackageRegistry: "https://packages.example.com/", PackageIndex: "https://index.example.com/simple",
	})
	var indexes []string
	w := catalogwatch.New(catalogwatch.Config{
		Control: proxyapi.NewClient(p.Socket), Sandbox: sandboxapi.NewClient(sandboxapi.ClientConfig{Dial: s.Dial}),
		Log: logline.New(t.Output(), "text", nil),
		Install: func(_ context.Context, pins []string, registry string) error {
			if slices.Equal(pins, []string{"npm:x@1.0.0"}) {
				return errors.New("the registry has no such package")
			}
			indexes = append(indexes, registry)
			s.InstallPackages(pins)
			return nil
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	testkit.WaitFor(t, func() bool {
		return slices.Equal(w.Catalog().Packages, []string{"pypi:x@1.0"}) && w.Packages().Problem != ""
	})
	cancel()
	<-done
	if !slices.Equal(indexes, []string{"https://index.example.com/simple"}) {
		t.Errorf("installed from %q", indexes)
	}
}

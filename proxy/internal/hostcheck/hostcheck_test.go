package hostcheck

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/testca"
	"github.com/codeforge-mcp/codeforge/proxy/internal/upstream"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestHosts: hosts are checked as the proxy reaches them: by its own resolver, guard and authorities, without a
// credential.
func TestHosts(t *testing.T) {
	ca, err := testca.New("people")
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Method+" "+r.Host+" "+r.Header.Get("Authorization")+r.Header.Get("User-Agent"))
		w.WriteHeader(http.StatusUnauthorized)
	}))
	leaf, err := ca.IssueLeaf("good.test", "good.test", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{*leaf}} //nolint:gosec // of the test
	srv.StartTLS()
	defer srv.Close()
	pool, err := upstream.New(upstream.Config{
		CAs: ca.PEM(),
		Resolve: func(_ context.Context, host string) ([]netip.Addr, error) {
			switch {
			case strings.HasPrefix(host, "private"):
				return []netip.Addr{netip.MustParseAddr("10.1.2.3")}, nil
			case strings.HasPrefix(host, "gone"):
				return nil, &net.DNSError{IsNotFound: true, Name: host}
			}
			return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
		},
		Connect: func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", srv.Listener.Addr().String())
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	api := func(name string, active bool, hosts ...string) *catalog.API {
		a := &catalog.API{Name: name, Active: active}
		for _, h := range hosts {
			p, err := catalog.ParseHostPattern(h)
			if err != nil {
				t.Fatal(err)
			}
			a.Hosts = append(a.Hosts, p)
		}
		return a
	}
	cat := catalog.NewNamesOnly([]*catalog.API{
		api("a", true, "good.test", "*.good.test", "private.test", "gone.test", "other.test"), api("b", true, "good.test"), api("c", false, "off.test"),
	})
	c := &Checker{Pool: pool, Catalog: func() *catalog.Catalog { return cat }, UserAgent: "CodeForge/1"}
	got := map[string]proxyapi.HostCheck{}
	for _, h := range c.CheckHosts(t.Context()) {
		got[h.Host] = h
	}
	if len(got) != 4 || got["good.test"].Status != http.StatusUnauthorized || got["good.test"].SkewMilliseconds == nil {
		t.Errorf("%+v", got)
	}
	for host, code := range map[string]string{
		"private.test": upstream.CodeAddress, "gone.test": upstream.CodeResolve, "other.test": upstream.CodeTLS,
	} {
		if h := got[host]; h.Code != code || h.Problem == "" || h.Hint == "" {
			t.Errorf("%s: %+v", host, h)
		}
	}
	if len(seen) != 1 || seen[0] != "HEAD good.test CodeForge/1" {
		t.Errorf("sent: %q", seen)
	}
}

//go:build disarm

package upstream

import (
	"context"
	"net/netip"
	"net/url"
	"testing"
)

// TestDisarmed: without its defence the attack succeeds. e2e/negative runs it, under the tag disarm.
func TestDisarmed(t *testing.T) {
	t.Run("proxied-address", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "proxied-address")
		p := newPool(t, Config{Proxy: &url.URL{Scheme: "http", Host: "127.0.0.1:3128"}, Resolve: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("93.184.216.34"), netip.MustParseAddr("169.254.169.254")}, nil
		}})
		if err := p.CheckTarget(t.Context(), Want{}, &url.URL{Scheme: "http", Host: "both.test"}); err != nil {
			t.Errorf("without its defence the attack was held all the same: %v", err)
		}
	})
}

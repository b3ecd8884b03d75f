//go:build disarm

package dialguard

import (
	"net/netip"
	"testing"
)

// TestDisarmed switches the defence off, and then its attack succeeds: e2e/negative.
func TestDisarmed(t *testing.T) {
	t.Run("database-address", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "database-address")
		to := netip.MustParseAddrPort("10.0.0.7:5432")
		defer openDatabases()
		CloseDatabase([]netip.AddrPort{to})
		if err := guardOfAll().CheckPort(to); err != nil {
			t.Error(err)
		}
	})
}

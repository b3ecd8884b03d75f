package doctor

import (
	"slices"
	"testing"
)

// TestOtherSettings: settings are not called valid when check has found something else wrong with them.
func TestOtherSettings(t *testing.T) {
	bad := fail("settings", ".env: UPSTREAM_CA_FILE: no such file or folder", "")
	found := configuration(t.Context(), Config{APIs: t.TempDir(), OtherSettings: []Finding{bad}})
	if !slices.Contains(found, bad) || slices.ContainsFunc(found, func(f Finding) bool { return f.Check == "settings" && f.Status == OK }) {
		t.Errorf("found %+v", found)
	}
}

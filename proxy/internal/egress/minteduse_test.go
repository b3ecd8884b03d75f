package egress

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/internal/mint"
	"github.com/codeforge-mcp/codeforge/proxy/internal/renewedvalues"
)

// TestMintedOfMessages: the messages of a WebSocket, whose number has no bound, do not grow the record of the minted
// values that they used.
// Promise: one-memory-budget
func TestMintedOfMessages(t *testing.T) {
	dir := t.TempDir()
	testkit.Must(t, os.Mkdir(filepath.Join(dir, "db"), 0o700))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "db", "token"), []byte("hunter2-password"), 0o600))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "db", "config.json"), []byte(`{"description": "d",
		"domains": ["db.example.com"], "credentials": {"DB_TOKEN": {"file": "token", "ttl": "1h", "in": ["body:key"]}}}`), 0o600))
	c, problems := catalog.Load(dir, catalog.Options{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	m := mint.New(mint.Config{Values: renewedvalues.New(nil), Dir: t.TempDir(), APIs: dir, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(m.Close)
	testkit.Must(t, m.Configure(c))
	var u mintedUse
	obtain := u.newObtainer(t.Context(), m)
	for range 1000 {
		if v, err := obtain(c.API("db").Credentials[0]); v != "hunter2-password" || err != nil {
			t.Fatalf("%q, %v", v, err)
		}
	}
	if len(u.values) != 1 {
		t.Errorf("%d values for one credential", len(u.values))
	}
}

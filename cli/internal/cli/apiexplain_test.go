package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// TestExplain: an explanation names the rule that decides, of requests and of calls of tools.
func TestExplain(t *testing.T) {
	dir := t.TempDir()
	text := `{"description": "d", "domains": ["pay.test"], "allowed_methods": ["GET", "POST"],
		"mcp": {"command": ["program"], "tools": {"deny": ["wipe"]}}, "rules": [
		{"methods": ["GET"], "then": "allow"}, {"tools": ["pay"], "body": {"amount": {"max": 5}}, "then": "allow"},
		{"tools": ["pay", "get_*"], "then": "approve"}, {"tools": ["old"], "then": "refuse"}]}`
	if err := os.Mkdir(filepath.Join(dir, "pay"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pay", "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cat, problems := catalog.Load(dir, catalog.Options{})
	if cat.API("pay") == nil {
		t.Fatal(problems)
	}
	for _, row := range []struct{ method, path, verdict, why string }{
		{"GET", "/x", "allowed", "rule 1: allow GET"}, {"POST", "/x", "refused", "no rule matches"},
		{"PUT", "/x", "refused", "allowed_methods has no PUT"},
		{"CALL", "pay", dependsOnBody, "allow calls of pay if amount <= 5; without it: waits for approval, rule 2: approve calls of pay|get_*"},
		{"CALL", "get-x", "waits for approval", "rule 2: approve"}, {"CALL", "old", "refused", "rule 3: refuse"},
		{"CALL", "other", "refused", "no rule matches"}, {"CALL", "wipe", "refused", "mcp.tools.deny has it"},
	} {
		x := newExplanation(cat.API("pay"), row.method, row.path)
		if x.Verdict != row.verdict || !strings.Contains(x.Why, row.why) {
			t.Errorf("%s %s: %s: %s", row.method, row.path, x.Verdict, x.Why)
		}
	}
}

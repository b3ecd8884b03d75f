package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/settings"
)

// TestOtherSettings: settings are not called valid when check has found something else wrong with them.
func TestOtherSettings(t *testing.T) {
	bad := newFailure("settings", ".env: UPSTREAM_CA_FILE: no such file or folder", "")
	found := checkConfiguration(t.Context(), Config{APIs: t.TempDir(), OtherSettings: []Finding{bad}})
	if !slices.Contains(found, bad) || slices.ContainsFunc(found, func(f Finding) bool { return f.Check == "settings" && f.Status == OK }) {
		t.Errorf("found %+v", found)
	}
}

// TestTenants: one line says how many tenants there are, or what is wrong with their file.
func TestTenants(t *testing.T) {
	const operator = "operator-0123456789"
	path := filepath.Join(t.TempDir(), "tenants.json")
	for text, want := range map[string]Finding{
		`{"tenants": {"a": {"tokens": ["token-0123456789"], "apis": ["*"]}, "b": {"tokens": ["token-9876543210"], "apis": ["*"]}}}`: newOK("tenants", "2 in "+path),
		`{"tenants": {"a": {"tokens": ["token-0123456789"], "apis": ["gone"]}}}`:                                                    newWarning("tenants", "1; "+path+`: tenants.a.apis: "gone", which is not an API`, ""),
		`{"tenants": {"a": {"tokens": ["` + operator + `"], "apis": ["gone"]}}}`:                                                    newFailure("tenants", path+": tenants.a.tokens: the value of MCP_AUTH_TOKEN; want another token: that one is the operator's", "codeforge check lists all mistakes: 1"),
		`{"tenants": {"a": {"tokens": ["short"], "apis": []}}}`:                                                                     newFailure("tenants", path+": tenants.a.tokens[0]: a token that is too short", "codeforge check lists all mistakes: 2"),
		"": newFailure("tenants", "MCP_TOKENS_FILE: ", ""),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if text == "" {
			_ = os.Remove(path)
		}
		found := checkConfiguration(t.Context(), Config{APIs: t.TempDir(), Settings: settings.Settings{MCPTokensFile: path, MCPAuthToken: secret.New(operator)}})
		i := slices.IndexFunc(found, func(f Finding) bool { return f.Check == "tenants" })
		if i < 0 || found[i].Status != want.Status || found[i].Fix != want.Fix || !strings.HasPrefix(found[i].Text, want.Text) {
			t.Errorf("%s\n found %+v\n want  %+v", text, found, want)
		}
	}
}

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// environTenants are tenants with one API each.
const environTenants = `{"tenants": {
  "one": {"tokens": ["token-of-tenant-one-0"], "apis": ["httpbin"]},
  "two": {"tokens": ["token-of-tenant-two-0"], "apis": ["other"]}}}`

// TestEnvironment: code finds the token names of the APIs that its run may use in its environment, in both languages.
// The upstream gets the credential. A narrowed run, and a tenant, find no names of other APIs.
// Promise: tenant-apis
func TestEnvironment(t *testing.T) {
	const typescript = `const r = await fetch("https://httpbin.test/bearer?t=ID", { headers: { Authorization: "Bearer " + process.env.HTTPBIN_SDK_KEY } });
console.log(r.status, (await r.json()).token);`
	const python = `import json, os, urllib.request
request = urllib.request.Request("https://httpbin.test/bearer?t=ID", headers={"Authorization": "Bearer " + os.environ["HTTPBIN_SDK_KEY"]})
with urllib.request.urlopen(request) as r:
    print(r.status, json.load(r)["token"])`
	names := map[string]string{
		"typescript": `console.log(Object.entries(process.env).filter(([k, v]) => v.includes(k) && /_(TOKEN|HARD|KEY)$/.test(k)).map(([k]) => k).sort().join(" "), process.env.HTTPBIN_SDK_KEY ?? "-");`,
		"python": `import os, re
print(" ".join(sorted(k for k, v in os.environ.items() if k in v and re.search("_(TOKEN|HARD|KEY)$", k))), os.getenv("HTTPBIN_SDK_KEY", "-"))`,
	}
	dir, err := os.MkdirTemp("", "environ-tenants-")
	testkit.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	testkit.Must(t, os.Chmod(dir, 0o755))
	write(t, dir, "tokens.json", environTenants)
	w := world.Start(t, world.Config{
		Slots: 2, // so that runs follow others
		Env:   map[string]string{"MCP_AUTH_TOKEN": "token-of-operator-0", "MCP_TOKENS_FILE": filepath.Join(dir, "tokens.json")},
		Change: func(apis []world.API) []world.API {
			for _, a := range apis {
				if credentials, ok := a.Config["credentials"].(map[string]any); ok && a.Name == "httpbin" {
					credentials["HTTPBIN_TOKEN"] = map[string]any{"value": credentials["HTTPBIN_TOKEN"], "variable": "HTTPBIN_SDK_KEY"}
				}
			}
			return apis
		},
	})
	for language, code := range map[string]string{"typescript": typescript, "python": python} {
		r, err := w.Do(within(t, 60), w.Session(), world.Run{Code: strings.ReplaceAll(code, "ID", language), Language: language, APIs: []string{"httpbin"}})
		if err != nil || r.Out != "200 HTTPBIN_TOKEN\n" || r.Notes != "" || w.Leak(r.JSON) != "" {
			t.Fatalf("%s: %v %q %q", language, err, r.Out, r.Notes)
		}
		if seen := w.Upstream.Seen(language); len(seen) != 1 || seen[0].Header.Get("Authorization") != "Bearer "+w.Canaries["HTTPBIN_TOKEN"].Value() {
			t.Errorf("%s: the upstream saw %+v", language, seen)
		}
	}
	for _, row := range []struct {
		token string
		apis  []string
		want  []string
		not   []string
	}{
		{"token-of-operator-0", nil, []string{"HTTPBIN_TOKEN", "OTHER_TOKEN", "STRICT_TOKEN", " HTTPBIN_TOKEN\n"}, nil},
		{"token-of-operator-0", []string{"other"}, []string{"OTHER_TOKEN -\n"}, []string{"HTTPBIN", "STRICT"}},
		{"token-of-tenant-one-0", nil, []string{"HTTPBIN_HARD HTTPBIN_TOKEN HTTPBIN_TOKEN\n"}, []string{"OTHER", "STRICT"}},
		{"token-of-tenant-two-0", nil, []string{"OTHER_TOKEN -\n"}, []string{"HTTPBIN", "STRICT"}},
	} {
		w.Token = row.token
		session, err := w.Connect(within(t, 60))
		testkit.Must(t, err)
		for language, code := range names {
			r, err := w.Do(within(t, 60), session, world.Run{Code: code, Language: language, APIs: row.apis})
			if err != nil || r.IsError {
				t.Errorf("%s, %v: %v %q", row.token, row.apis, err, r.JSON)
			}
			for _, s := range row.want {
				if !strings.Contains(r.Out, s) {
					t.Errorf("%s, %v, %s: %q lacks %q", row.token, row.apis, language, r.Out, s)
				}
			}
			for _, s := range row.not {
				if strings.Contains(r.Out, s) {
					t.Errorf("%s, %v, %s: %q has %q", row.token, row.apis, language, r.Out, s)
				}
			}
		}
		_ = session.Close()
	}
}

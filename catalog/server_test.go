package catalog_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
)

func server(t *testing.T, config string) *catalog.API {
	t.Helper()
	return clean(t, writeTree(t, map[string]string{"acme/config.json": config}), nil).API("acme")
}

// TestServerDefaults: what a server is when its settings are left out.
func TestServerDefaults(t *testing.T) {
	got := server(t, `{"description": "A", "mcp": {"command": ["acme", "stdio"]}}`).Server
	want := &mcpserver.Settings{
		Command: []string{"acme", "stdio"}, Transport: "auto", State: "shared", MaxConcurrent: 8,
		TimeoutMS: 60_000, ConnectTimeoutMS: 30_000, IdleMS: 600_000,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestServerSettings: every setting arrives.
// Promise: no-credential-in-server-settings
func TestServerSettings(t *testing.T) {
	a := server(t, `{"description": "A", "credentials": {"ACME_TOKEN": "dummy-0123456789"}, "mcp": {
		"url": "https://MCP.acme.com/mcp?project=4af1-22&key=ACME_TOKEN", "headers": {"Authorization": "Bearer ACME_TOKEN", "X-Team": "core"},
		"transport": "sse", "protocol": "2025-06-18", "tools": {"allow": ["get_*"], "deny": ["get_all"]}, "timeout": 1.5,
		"connect_timeout": "2m", "idle": "1h", "state": "session", "max_concurrent": 3, "exclusive_with": [], "retry": true}}`)
	want := &mcpserver.Settings{
		URL: "https://MCP.acme.com/mcp?project=4af1-22&key=ACME_TOKEN", Headers: map[string]string{"Authorization": "Bearer ACME_TOKEN", "X-Team": "core"},
		Transport: "sse", Protocol: "2025-06-18", Allow: []string{"get_*"}, Deny: []string{"get_all"}, TimeoutMS: 1500,
		ConnectTimeoutMS: 120_000, IdleMS: 3_600_000, State: "session", MaxConcurrent: 3, ExclusiveWith: []string{}, Retry: true,
	}
	if diff := cmp.Diff(want, a.Server); diff != "" {
		t.Error(diff)
	}
	if len(a.Hosts) != 1 || a.Hosts[0].String() != "mcp.acme.com" || a.ServerHost != "mcp.acme.com" {
		t.Errorf("hosts: %v, of the server: %q", a.Hosts, a.ServerHost)
	}
	p := server(t, `{"description": "A", "domains": ["*.acme.com"], "credentials": {"ACME_TOKEN": "dummy-0123456789"},
		"mcp": {"url": "https://mcp.acme.com/"}}`)
	if len(p.Hosts) != 1 {
		t.Errorf("a host that domains hold already is there twice: %v", p.Hosts)
	}
	k := server(t, `{"description": "A", "credentials": {"ACME_TOKEN": "dummy-0123456789"}, "mcp": {
		"package": "npm:@acme/mcp-server@1.2.3-beta.1/acme", "args": ["--read-only"], "permissions": ["run"],
		"env": {"ACME_API_KEY": "sk_test_ACME_TOKEN", "MAX_TOKEN": "4096", "DB": "9f86d081884c7d659a2feaa0c55ad015",
			"ID": "0b7c1f5e-1f0a-4a55-9ad5-2f4b1f6a7c11", "URL": "https://api.acme.com/v1/projects/alpha-beta", "sk_mode": "on"}}}`)
	if k.Server.Env["ACME_API_KEY"] != "sk_test_ACME_TOKEN" || k.Server.Permissions[0] != "run" {
		t.Errorf("%+v", k.Server)
	}
}

// TestServerWithoutHost: the load warns of fields about requests if a server has no host, because they have no effect.
func TestServerWithoutHost(t *testing.T) {
	for field, value := range map[string]string{
		"limits": `{"calls": "10/h"}`, "rules": `[{"methods": ["GET"], "then": "allow"}]`, "restricted_methods": `["DELETE"]`,
		"allowed_methods": `["GET"]`, "idempotency": `"Idempotency-Key"`,
	} {
		for _, more := range []string{"", `"domains": ["api.acme.com"], `} {
			text := `{"description": "A", ` + more + `"` + field + `": ` + value + `, "mcp": {"command": ["acme"]}}`
			_, problems := catalog.Load(writeTree(t, map[string]string{"acme/config.json": text}), catalog.Options{})
			found := problems.String()
			if warns := strings.Contains(found, field+": without effect"); warns != (more == "") || !warns && found != "" {
				t.Errorf("%s: %s", text, found)
			}
		}
	}
	server(t, `{"description": "A", "rules": [{"tools": ["get_*"], "then": "allow"}], "mcp": {"command": ["acme"]}}`) // no warning
}

// TestServerVersion: a change of any setting is another version of the catalog.
func TestServerVersion(t *testing.T) {
	seen := map[string]string{}
	for _, mcp := range []string{
		`{"command": ["acme"]}`, `{"command": ["acme", "x"]}`, `{"package": "npm:acme@1.2.3"}`, `{"package": "npm:acme@1.2.4"}`,
		`{"command": ["acme"], "timeout": 5}`, `{"command": ["acme"], "env": {"A": "b"}}`, `{"command": ["acme"], "env": {"A": "c"}}`,
		`{"command": ["acme"], "tools": {"deny": ["x"]}}`, `{"command": ["acme"], "state": "run"}`,
		`{"command": ["acme"], "tools": {"deny": ["x y"]}}`, `{"command": ["acme"], "tools": {"deny": ["x", "y"]}}`,
		`{"command": ["acme x"]}`, `{"package": "npm:acme@1.2.3", "args": ["a b"]}`, `{"package": "npm:acme@1.2.3", "args": ["a", "b"]}`,
	} {
		v := clean(t, writeTree(t, map[string]string{"acme/config.json": `{"description": "A", "mcp": ` + mcp + `}`}), nil).Version()
		if other := seen[v]; other != "" {
			t.Errorf("%s and %s are one version", mcp, other)
		}
		seen[v] = mcp
	}
}

// TestTwoRegistries: two servers that share an installation should name one registry. The program of a package does not
// matter, and another version or constraint is another installation.
func TestTwoRegistries(t *testing.T) {
	config := func(pkg, registry, more string) string {
		return `{"description": "A", "mcp": {"package": "` + pkg + `", "registry": "https://` + registry + `"` + more + `}}`
	}
	first := config("npm:x@1.0.0/a", "one.example.com/npm", "")
	for name, c := range map[string]struct {
		second string
		warns  bool
	}{
		"another registry":   {config("npm:x@1.0.0/b", "two.example.com/npm", ""), true},
		"the same":           {config("npm:x@1.0.0/b", "one.example.com/npm/", ""), false},
		"another version":    {config("npm:x@1.0.1/a", "two.example.com/npm", ""), false},
		"the usual registry": {`{"description": "A", "mcp": {"package": "npm:x@1.0.0/a"}}`, false},
	} {
		_, problems := catalog.Load(writeTree(t, map[string]string{"a/config.json": first, "b/config.json": c.second}), catalog.Options{})
		text := problems.String()
		if got := strings.Contains(text, "another registry for npm:x@1.0.0 than in apis/a"); got != c.warns || !c.warns && len(problems) > 0 {
			t.Errorf("%s: %s", name, text)
		}
	}
	_, problems := catalog.Load(writeTree(t, map[string]string{
		"a/config.json": config("pypi:x@1.0.0", "one.example.com/simple", `, "constraints": ["y<3"]`),
		"b/config.json": config("pypi:x@1.0.0", "two.example.com/simple", `, "constraints": ["y<2"]`)}), catalog.Options{})
	if len(problems) > 0 {
		t.Error(problems.String())
	}
}

package embedded

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// TestCommandLines compares the daemons' command lines with a golden file.
func TestCommandLines(t *testing.T) {
	p := supervisorSetup{State: "/home/me/.codeforge", APIs: "/home/me/apis", Port: 8080, Slots: 8, Warm: 2, WarmPython: 1, Pythons: []string{"/usr/bin/python3"}, Memory: 1 << 30, Servers: 8, ServerMemory: 512 << 20, Programs: "/opt/servers", OwnerUID: 1000, SkillsReadonly: true}
	var v hostView
	var b strings.Builder
	for _, row := range []struct {
		name string
		args []string
	}{{"egress-proxy", proxyArgs(p, v)}, {"sandboxd", sandboxArgs(p, v)}, {"mcp-server", serverArgs(p, v)}} {
		b.WriteString(row.name + "\n")
		for _, a := range row.args {
			b.WriteString("  " + a + "\n")
		}
	}
	path := filepath.Join("testdata", "commandlines.golden")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("the command lines changed (-update writes them):\n%s", diff)
	}
}

// TestEnvironments: each daemon gets what it needs. Only the proxy gets what could be a credential, and only mcp-server
// gets the token of the MCP endpoint and the settings of buckets.
// Promise: shared-skills
func TestEnvironments(t *testing.T) {
	proxy, sandbox, server := daemonEnvirons(supervisorSetup{Slots: 4, Warm: 1}.withSlotCounts([]string{
		"PATH=/bin", "HOME=/root", "MY_API_KEY=secret", "MCP_AUTH_TOKEN=token", "MCP_AUTH_TOKEN_FILE=/token", "DATABASE_URL=postgres://a", "DATABASE_URL_FILE=/url", "DATABASE_CA_FILE=/ca", "PROXY_DATABASE_URL=postgres://b", "PROXY_DATABASE_URL_FILE=/b", "REDACTING_STRINGS=a,b", "SANDBOX_WARM=9", "SANDBOX_SLOTS=8",
		"UPSTREAM_PROXY=http://u:p@h", "TZ=UTC", "MCP_PORT=1", "LISTEN_FDS=1", "LISTEN_FDNAMES=x", "LD_PRELOAD=x",
	}))
	for _, kv := range []string{"SANDBOX_SLOTS=4", "SANDBOX_WARM=1"} {
		if !slices.Contains(server, kv) || !slices.Contains(sandbox, kv) {
			t.Errorf("without %s: %v", kv, server)
		}
	}
	if slices.Contains(server, "SANDBOX_SLOTS=8") || slices.Contains(server, "SANDBOX_WARM=9") {
		t.Errorf("what --slots replaces is there: %v", server)
	}
	ofDatabase, ofProxies := []string{"DATABASE_URL", "DATABASE_URL_FILE"}, []string{"PROXY_DATABASE_URL", "PROXY_DATABASE_URL_FILE"}
	for _, row := range []struct {
		daemon        string
		env           []string
		must, mustNot []string
	}{
		{"egress-proxy", proxy, append(ofProxies, "DATABASE_CA_FILE", "MY_API_KEY", "REDACTING_STRINGS", "UPSTREAM_PROXY", "PATH"), append(ofDatabase, "MCP_AUTH_TOKEN", "MCP_AUTH_TOKEN_FILE", "LISTEN_FDS", "LISTEN_FDNAMES")},
		{"sandboxd", sandbox, []string{"PATH", "TZ", "SANDBOX_WARM"}, slices.Concat(ofDatabase, ofProxies, []string{"DATABASE_CA_FILE", "MY_API_KEY", "MCP_AUTH_TOKEN", "REDACTING_STRINGS", "UPSTREAM_PROXY", "HOME", "LD_PRELOAD"})},
		{"mcp-server", server, append(ofDatabase, "DATABASE_CA_FILE", "PATH", "MCP_AUTH_TOKEN", "MCP_PORT", "REDACTING_STRINGS"), append(ofProxies, "MY_API_KEY", "UPSTREAM_PROXY", "HOME", "LD_PRELOAD")},
	} {
		has := func(name string) bool {
			return slices.ContainsFunc(row.env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
		}
		for _, name := range row.must {
			if !has(name) {
				t.Errorf("%s does not get %s", row.daemon, name)
			}
		}
		for _, name := range row.mustNot {
			if has(name) {
				t.Errorf("%s gets %s", row.daemon, name)
			}
		}
	}
}

func TestOwnerUID(t *testing.T) {
	for _, row := range []struct {
		privileged bool
		sudo       string
		want       int
	}{{true, "1000", 1000}, {true, "", 0}, {true, "0", 0}, {true, "-5", 0}, {true, "me", 0}, {false, "1000", 0}} {
		if got := operatorUID(row.privileged, func(string) string { return row.sudo }); got != row.want {
			t.Errorf("ownerUID(%v, SUDO_UID=%q) = %d, want %d", row.privileged, row.sudo, got, row.want)
		}
	}
}

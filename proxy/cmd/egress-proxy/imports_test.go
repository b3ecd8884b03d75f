package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestImports holds the rules of what the proxy may be made of.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	testkit.Must(t, err)
	deps := strings.Fields(string(out))
	for prefix, why := range map[string]string{
		"github.com/moby/":                                 "only docker-shim talks to the engine",
		"github.com/docker/":                               "only docker-shim talks to the engine",
		"github.com/codeforge-mcp/codeforge/mcp-server":    "the proxy knows nothing of MCP",
		"github.com/codeforge-mcp/codeforge/sandbox-image": "the proxy knows nothing of how code runs",
	} {
		for _, d := range deps {
			if strings.HasPrefix(d, prefix) {
				t.Errorf("imports %s: %s", d, why)
			}
		}
	}
	direct, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "../../...").Output()
	testkit.Must(t, err)
	for _, line := range strings.Split(string(direct), "\n") {
		pkg, imports, _ := strings.Cut(line, " ")
		if !slices.Contains(deps, pkg) { // only tests use it
			continue
		}
		for _, i := range strings.Fields(imports) {
			switch {
			case i == "os/exec":
				t.Errorf("%s imports os/exec: the proxy starts no process of its own", pkg)
			case strings.HasPrefix(i, "github.com/elazarl/goproxy") && !strings.HasSuffix(pkg, "/internal/egress"):
				t.Errorf("%s imports goproxy, which is egress's alone", pkg)
			}
		}
	}
}

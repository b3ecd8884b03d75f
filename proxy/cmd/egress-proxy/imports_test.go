package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestImports checks which packages the proxy may import.
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
			if i == "os/exec" {
				t.Errorf("%s imports os/exec: the proxy starts no process of its own", pkg)
			}
		}
	}
}

// TestGoproxyInOneFile: one file knows goproxy, so that it can be replaced.
func TestGoproxyInOneFile(t *testing.T) {
	var users []string
	testkit.Must(t, filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, i := range file.Imports {
			if strings.Contains(i.Path.Value, "/goproxy") {
				users = append(users, path)
			}
		}
		return nil
	}))
	if want := []string{"../../internal/egress/goproxy.go"}; !slices.Equal(users, want) {
		t.Errorf("goproxy is imported by %q, want %q", users, want)
	}
}

package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestImports holds what mcp-server may not reach: it has no credential, so it does not load apis/; the engine is the
// business of two packages; fixtures and test peers are not shipped.
func TestImports(t *testing.T) {
	const module = "github.com/codeforge-mcp/codeforge/"
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "../...", "../../internal/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	engine := []string{module + "mcp-server/cmd/mcp-server", module + "mcp-server/internal/shim", module + "mcp-server/cmd/docker-shim"}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		for _, imported := range words[1:] {
			switch {
			case imported == module+"catalog":
				t.Errorf("%s imports %s, which holds credentials", words[0], imported)
			case strings.HasPrefix(imported, "github.com/moby/") && !slices.Contains(engine, words[0]):
				t.Errorf("%s imports %s; only %v may", words[0], imported, engine)
			case strings.HasPrefix(imported, "github.com/jackc/") && words[0] != module+"internal/database":
				t.Errorf("%s imports %s: only the package database may", words[0], imported)
			case imported == "os/exec" && !strings.HasSuffix(words[0], "/fakepeers") && words[0] != module+"mcp-server/internal/bridge":
				t.Errorf("%s imports os/exec: mcp-server starts no program; the bridge does, in its slot", words[0])
			}
		}
	}
	out, err = exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.Lines(string(out)) {
		if dep = strings.TrimSpace(dep); strings.HasSuffix(dep, "/internal/bridge") || strings.HasSuffix(dep, "/internal/fakepeers") || dep == "testing" {
			t.Errorf("the program holds %s", dep)
		}
	}
}

package catalog_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const (
	root   = "github.com/codeforge-mcp/codeforge/"
	module = root + "catalog"
)

func deps(t *testing.T, pkg string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", pkg).Output()
	if err != nil {
		t.Fatalf("go list -deps %s: %v", pkg, err)
	}
	return strings.Fields(string(out))
}

// TestForbiddenImports: the packages that every daemon uses must not bring the catalog into daemons that have no
// business with credentials; and the catalog itself starts nothing and depends on little.
func TestForbiddenImports(t *testing.T) {
	for _, pkg := range []string{"catalog/strictjson", "catalog/tokenfile", "internal/..."} {
		if slices.Contains(deps(t, root+pkg), module) {
			t.Errorf("%s imports the catalog", pkg)
		}
	}
	for _, dep := range deps(t, module) {
		if dep == "os/exec" || dep == "plugin" {
			t.Errorf("the catalog imports %s", dep)
		}
		own := strings.HasPrefix(dep, module) || strings.HasPrefix(dep, root+"internal/") || strings.HasPrefix(dep, "golang.org/x/net/") || strings.HasPrefix(dep, "golang.org/x/text/")
		if first, _, _ := strings.Cut(dep, "/"); strings.Contains(first, ".") && !own {
			t.Errorf("the catalog imports %s, which the holder of credentials does not need", dep)
		}
	}
}

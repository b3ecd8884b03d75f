package embedded

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/settings"
)

// TestRegistry: npm is asked only if some API is a package and PACKAGE_REGISTRY is not set, and its answer is checked.
func TestRegistry(t *testing.T) {
	const address = "https://packages.example.com/npm/"
	for _, row := range []struct {
		name, config, set, npm, want, warning string
	}{
		{"not needed", `{"domains": ["example.com"]}`, "", "exit 1", "", ""},
		{"of PyPI", `{"mcp": {"package": "pypi:x@1"}}`, "", "exit 1", "", ""},
		{"set", `{"mcp": {"package": "npm:x@1.0.0"}}`, "https://other.example.com/", "exit 1", "", ""},
		{"asked", `{"mcp": {"package": "npm:x@1.0.0"}}`, "", "[ \"$*\" = 'config get registry' ] && echo " + address, address, ""},
		{"silent", `{"mcp": {"package": "npm:x@1.0.0"}}`, "", "exit 1", "", "does not print its registry"},
		{"no TLS", `{"mcp": {"package": "npm:x@1.0.0"}}`, "", "echo http://packages.example.com/", "", "is not an https URL"},
		{"missing", `{"mcp": {"package": "npm:x@1.0.0"}}`, "", "", "", "npm is not installed"},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, "apis", "x"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "apis", "x", "config.json"), []byte(row.config), 0o600); err != nil {
				t.Fatal(err)
			}
			if row.npm != "" {
				script := "#!/bin/sh\n" + row.npm + "\n"
				if err := os.WriteFile(filepath.Join(dir, "npm"), []byte(script), 0o700); err != nil { //nolint:gosec // a program
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", dir)
			s, err := settings.Parse(func(name string) string { return map[string]string{"PACKAGE_REGISTRY": row.set}[name] })
			if err != nil {
				t.Fatal(err)
			}
			environ, warning := withRegistry(t.Context(), Config{Settings: s, Environ: []string{"A=B"}}, filepath.Join(dir, "apis"))
			want := []string{"A=B"}
			if row.want != "" {
				want = append(want, "PACKAGE_REGISTRY="+row.want)
			}
			if !slices.Equal(environ, want) || (warning == "") != (row.warning == "") || !strings.Contains(warning, row.warning) {
				t.Errorf("%q %q", environ, warning)
			}
		})
	}
}

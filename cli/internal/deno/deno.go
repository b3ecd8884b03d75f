// Package deno finds the Deno executable and checks its version.
package deno

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/semver"

	sandboximage "github.com/codeforge-mcp/codeforge/sandbox-image"
)

// Version returns the version that CodeForge is built and tested with.
func Version() string { return sandboximage.DenoVersion() }

// oldest is the first version that has every flag the sandbox uses.
const oldest = "2.4.0"

// FindDeno returns the executable: path if it is not empty, else .tools/deno next to the folder bin, else deno in bin.
// If it is not the pinned version, Find also returns a warning.
func FindDeno(ctx context.Context, path, bin string) (real, warning string, err error) {
	candidates := []string{path}
	if path == "" {
		candidates = []string{filepath.Join(filepath.Dir(bin), ".tools", "deno"), filepath.Join(bin, "deno")}
	}
	for _, c := range candidates {
		if info, err := os.Stat(c); err == nil && info.Mode().IsRegular() {
			real = c
			break
		}
	}
	switch {
	case real == "" && path != "":
		return "", "", fmt.Errorf("there is no Deno at %s: correct DENO_PATH (or --deno)", path)
	case real == "":
		return "", "", fmt.Errorf("there is no Deno %s (looked for %s): make deno fetches it, or set DENO_PATH to your own",
			Version(), strings.Join(candidates, " and "))
	}
	if real, err = filepath.Abs(real); err == nil {
		real, err = filepath.EvalSymlinks(real)
	}
	if err != nil {
		return "", "", fmt.Errorf("finding Deno: %w", err)
	}
	have, err := sandboximage.AskDeno(ctx, real)
	if err != nil {
		return "", "", err
	}
	warning, err = CheckVersion(have)
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", real, err)
	}
	return real, warning, nil
}

// CheckVersion compares a version with the pinned one. If the sandbox cannot use the version, it returns an error. If
// CodeForge was tested with another one, it returns a warning.
func CheckVersion(version string) (warning string, err error) {
	have, pinned := "v"+version, "v"+Version()
	switch {
	case !semver.IsValid(have):
		return "", fmt.Errorf("version %q of Deno: want three numbers", version)
	case semver.Compare(have, "v"+oldest) < 0:
		return "", fmt.Errorf("version %s of Deno is too old: CodeForge needs %s (make deno fetches it)", version, Version())
	case semver.Compare(have, pinned) < 0:
		return fmt.Sprintf("Deno %s is older than %s, which CodeForge is tested with: security fixes may be missing",
			version, Version()), nil
	case semver.Compare(have, pinned) > 0:
		return fmt.Sprintf("Deno %s is not %s, which CodeForge is tested with", version, Version()), nil
	}
	return "", nil
}

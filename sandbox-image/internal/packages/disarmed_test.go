//go:build disarm

package packages

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// TestDisarmed: without the lock of the first installation, a later one brings what it likes. e2e/negative runs it.
func TestDisarmed(t *testing.T) {
	t.Run("package-lock", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "package-lock")
		s, dir := open(t)
		const dependency = `"dependency@1.0.0":{"integrity":"sha512-2"}`
		other := `{"version":"5","specifiers":{},"npm":{` + dependency + `}}`
		must(t, s.SealPackage(pkg, registry, installed(t, denoLock("sha512-1"))))
		must(t, os.RemoveAll(filepath.Join(dir, sandboxapi.PackageKey(pkg))))
		folder := t.TempDir()
		if given, err := s.GiveLock(pkg, "", folder); given || err != nil {
			t.Errorf("%v %v", given, err)
		}
		must(t, s.SealPackage(pkg, registry, installed(t, other)))
		data, err := os.ReadFile(filepath.Join(dir, sandboxapi.PackageKey(pkg), "deno.lock"))
		if !strings.Contains(string(data), dependency) || err != nil {
			t.Errorf("the attack is stopped by something else: %q %v", data, err)
		}
	})
	t.Run("package-files", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "package-files")
		s, _ := open(t)
		must(t, s.SealPackage(pypi, registry, installedWheels(t)))
		folder := installedWheels(t)
		must(t, os.WriteFile(filepath.Join(folder, "requirements.lock"), []byte("name==1.2.3 \\\n    --hash=sha256:66\n"), 0o600))
		if err := s.SealPackage("pypi:name@1.2.3", registry, folder); err != nil {
			t.Errorf("the attack is stopped by something else: %v", err)
		}
	})
	t.Run("package-checksums", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "package-checksums")
		s, dir := open(t)
		must(t, s.SealPackage(pkg, registry, installed(t, denoLock(""))))
		must(t, os.RemoveAll(filepath.Join(dir, sandboxapi.PackageKey(pkg))))
		if err := s.SealPackage(pkg, registry, installed(t, denoLock("")+"\n")); err != nil {
			t.Errorf("the attack is stopped by something else: %v", err)
		}
	})
	t.Run("package-hooks", func(t *testing.T) {
		t.Setenv("CODEFORGE_DISARM", "package-hooks")
		s, dir := open(t)
		must(t, s.SealPackage(pypi, registry, installedWheels(t)))
		if _, err := os.Stat(filepath.Join(dir, sandboxapi.PackageKey(pypi), "python", "hook.pth")); err != nil {
			t.Errorf("the attack is stopped by something else: %v", err)
		}
	})
}

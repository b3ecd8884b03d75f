package packages

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// TestTidy: a package goes when nobody wants or uses it. Its lock file and everything else stays.
func TestTidy(t *testing.T) {
	s, dir := open(t)
	const wanted, used, other = "npm:wanted@1.0.0", "npm:used@1.0.0", "npm:other@1.0.0"
	for _, pkg := range []string{wanted, used, other} {
		must(t, s.SealPackage(pkg, registry, installed(t, denoLock("sha512-1"))))
	}
	must(t, os.Mkdir(filepath.Join(dir, "lost+found"), 0o700))
	release := s.HoldPackage(used)
	again := s.HoldPackage(used)
	got, err := s.RemoveUnused([]string{wanted, "npm:never-installed@1.0.0"})
	if err != nil || len(got.Removed) != 1 || got.Removed[0].Package != other || got.Removed[0].Bytes < 10 || got.InUse != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	left := func(want ...string) {
		t.Helper()
		for _, pkg := range []string{wanted, used, other} {
			_, err := s.RegistryOf(pkg)
			stays := false
			for _, w := range want {
				stays = stays || w == pkg
			}
			if stays != (err == nil) || (!stays && !errors.Is(err, sandboxapi.ErrNotInstalled)) {
				t.Errorf("%s: %v", pkg, err)
			}
			if given, err := s.GiveLock(pkg, "", t.TempDir()); !given || err != nil {
				t.Errorf("the lock of %s: %v, %v", pkg, given, err)
			}
		}
		if names, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(names) != len(want)+3 { // install, locks, lost+found
			t.Errorf("left: %q, %v", names, err)
		}
	}
	left(wanted, used)
	release()
	release()
	if got, _ := s.RemoveUnused([]string{wanted}); got.InUse != 1 {
		t.Errorf("released twice by one, and in use by another: %+v", got)
	}
	again()
	if got, err := s.RemoveUnused([]string{wanted}); err != nil || len(got.Removed) != 1 || got.InUse != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	left(wanted)
	must(t, s.SealPackage(other, registry, installed(t, denoLock("sha512-1"))))
	left(wanted, other)
}

package packages

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

const (
	pkg      = "npm:@scope/name@1.2.3"
	registry = "https://packages.example.com/npm/"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// denoLock is a lock file of Deno with one version of pkg's name, or without a checksum.
func denoLock(integrity string) string {
	return `{"version":"5","specifiers":{},"npm":{"@scope/name@1.2.3":{"integrity":"` + integrity + `"}}}`
}

// installed makes a folder as Deno leaves it.
func installed(t *testing.T, lock string) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "npm", "packages.example.com", "name", "1.2.3"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "npm", "packages.example.com", "name", "1.2.3", "index.js"), []byte("code"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "npm", "packages.example.com", "name", "1.2.3", "tool"), []byte("#!"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "deno.lock"), []byte(lock), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "node_analysis_cache_v2"), []byte("a cache"), 0o600))
	return dir
}

func open(t *testing.T) (*Store, string) {
	t.Helper()
	dir := t.TempDir()
	s, err := OpenStore(dir, "3.11")
	must(t, err)
	return s, dir
}

// TestDropListings: no list of versions is sealed, but a file of the same name in a package is.
func TestDropListings(t *testing.T) {
	s, dir := open(t)
	folder := installed(t, `{"version":"5","specifiers":{},"npm":{"name@1.2.3":{"integrity":"sha512-1"},"@s/n@1.0.0_name@1.2.3":{"integrity":"sha512-2"}}}`)
	kept := map[string]bool{
		"name/registry.json": false, "name/1.2.3/registry.json": true, "name/1.2.3/a/registry.json": true, "name/1.2.3_1/registry.json": true,
		"@s/n/registry.json": false, "@s/n/1.0.0/registry.json": true,
	}
	for name := range kept {
		path := filepath.Join(folder, "npm", "packages.example.com", name)
		must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("{}"), 0o600)))
	}
	must(t, s.SealPackage(pkg, registry, folder))
	for name, want := range kept {
		_, err := os.Stat(filepath.Join(dir, sandboxapi.PackageKey(pkg), "npm", "packages.example.com", name))
		if (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSeal: of a package everything that Deno needs is copied, and nothing of it can be written.
// Promise: first-installed-package
func TestSeal(t *testing.T) {
	s, dir := open(t)
	if _, err := s.RegistryOf(pkg); !errors.Is(err, sandboxapi.ErrNotInstalled) {
		t.Error(err)
	}
	must(t, s.SealPackage(pkg, registry, installed(t, denoLock("sha512-1"))))
	if got, err := s.RegistryOf(pkg); got != registry || err != nil {
		t.Errorf("%q %v", got, err)
	}
	base := filepath.Join(dir, sandboxapi.PackageKey(pkg))
	for name, mode := range map[string]os.FileMode{
		"deno.lock": 0o444, "registry": 0o444, "npm/packages.example.com/name/1.2.3/index.js": 0o444,
		"npm/packages.example.com/name/1.2.3/tool": 0o544,
	} {
		info, err := os.Stat(filepath.Join(base, name))
		if err != nil || info.Mode() != mode {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
	if _, err := os.Stat(filepath.Join(base, "node_analysis_cache_v2")); err == nil {
		t.Error("a cache was copied")
	}
	must(t, s.SealPackage(pkg, "https://other.example.com/", installed(t, denoLock("sha512-1"))))
	if got, _ := s.RegistryOf(pkg); got != registry {
		t.Errorf("a sealed package was replaced: %q", got)
	}
}

const pypi = "pypi:name[extra]@1.2.3 mcp<2 pydantic>=2,<2.12"

// wheelLock is the lock file of pypi.
const wheelLock = "name==1.2.3 \\\n    --hash=sha256:00\n"

// installedWheels makes a folder as the installer of packages of PyPI leaves it.
func installedWheels(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"python/name/__init__.py", "python/name/data.pth", "python/hook.pth", "requirements.lock", "cache/x"} {
		must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
	}
	must(t, os.WriteFile(filepath.Join(dir, "requirements.lock"), []byte(wheelLock), 0o600))
	return dir
}

// TestSealWheels: of a package of PyPI the lock file and the folder of packages are copied, without files that run when
// Python starts. It is for one version of Python.
// Promise: first-installed-package
func TestSealWheels(t *testing.T) {
	s, dir := open(t)
	must(t, s.SealPackage(pypi, registry, installedWheels(t)))
	base := filepath.Join(dir, sandboxapi.PackageKey(pypi))
	for name, want := range map[string]bool{
		"python/name/__init__.py": true, "python/name/data.pth": true, "requirements.lock": true,
		"python/hook.pth": false, "cache": false,
	} {
		if _, err := os.Stat(filepath.Join(base, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	folder := t.TempDir()
	if given, err := s.GiveLock(pypi, "npm:other@1.0.0", folder); !given || err != nil {
		t.Errorf("%v %v", given, err)
	}
	if data, err := os.ReadFile(filepath.Join(folder, "requirements.lock")); string(data) != wheelLock {
		t.Errorf("%q %v", data, err)
	}
	same, err := OpenStore(dir, "3.11")
	must(t, err)
	if got, err := same.RegistryOf(pypi); got != registry || err != nil {
		t.Errorf("%q %v", got, err)
	}
	without, err := OpenStore(dir, "")
	must(t, err)
	if got, err := without.RegistryOf(pypi); got != registry || err != nil {
		t.Errorf("without Python: %q %v", got, err)
	}
	newer, err := OpenStore(dir, "3.13")
	must(t, err)
	if _, err := newer.RegistryOf(pypi); !errors.Is(err, sandboxapi.ErrNotInstalled) {
		t.Errorf("with another Python: %v", err)
	}
	if given, err := newer.GiveLock(pypi, "npm:other@1.0.0", t.TempDir()); given || err != nil {
		t.Errorf("the lock for another Python: %v %v", given, err)
	}
	must(t, newer.SealPackage(pypi, registry, installedWheels(t)))
	if got, err := newer.RegistryOf(pypi); got != registry || err != nil {
		t.Errorf("%q %v", got, err)
	}
}

// TestWheelSet: packages of PyPI for code are one package. The lock file of a set that grew is the draft of the new one's,
// and no package of the set may have other files than before.
// Promise: first-installed-package
func TestWheelSet(t *testing.T) {
	s, _ := open(t)
	one, both := "pypi:name@1.2.3", "pypi:b@1.0 pypi:name@1.2.3"
	must(t, s.SealPackage(one, registry, installedWheels(t)))
	folder := t.TempDir()
	if frozen, err := s.GiveLock(both, one, folder); frozen || err != nil {
		t.Errorf("%v %v", frozen, err)
	}
	if data, err := os.ReadFile(filepath.Join(folder, "requirements.lock.new")); string(data) != wheelLock {
		t.Errorf("%q %v", data, err)
	}
	if _, err := os.Stat(filepath.Join(folder, "requirements.lock")); err == nil {
		t.Error("an incomplete lock file would be installed")
	}
	for lock, want := range map[string]string{
		"b==1.0 \\\n    --hash=sha256:11\nname==1.2.3 \\\n    --hash=sha256:99\n": "other files for name==1.2.3",
		"name==1.2.3 \\\n    --hash=sha256:00\n":                                  "does not name b",
	} {
		draft := installedWheels(t)
		must(t, os.WriteFile(filepath.Join(draft, "requirements.lock"), []byte(lock), 0o600))
		if err := s.SealPackage(both, registry, draft); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", lock, err)
		}
	}
}

// TestCABundles: files with the authorities of TLS libraries lead to those of the sandbox. Others with their names stay.
func TestCABundles(t *testing.T) {
	s, dir := open(t)
	folder := installedWheels(t)
	for name, want := range map[string]bool{
		"certifi/cacert.pem": true, "pip/_vendor/certifi/cacert.pem": true, "stripe/data/ca-certificates.crt": true,
		"botocore/cacert.pem": true, "httplib2/cacerts.txt": true, "grpc/_cython/_credentials/roots.pem": true,
		"braintree/ssl/api_braintreegateway_com.ca.crt": true, "name/cacert.pem": false, "mycertifi/cacert.pem": false,
	} {
		path := filepath.Join(folder, "python", name)
		must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("x"), 0o600)))
		defer func() {
			target, _ := os.Readlink(filepath.Join(dir, sandboxapi.PackageKey(pypi), "python", name))
			if (target == "/etc/ssl/certs/ca-certificates.crt") != want {
				t.Errorf("%s leads to %q", name, target)
			}
		}()
	}
	must(t, s.SealPackage(pypi, registry, folder))
}

// TestKnownFiles: a version that was installed once has no other files with other constraints, extras or Python.
// Promise: first-installed-package
func TestKnownFiles(t *testing.T) {
	s, dir := open(t)
	newer, err := OpenStore(dir, "3.13")
	must(t, err)
	seal := func(s *Store, pkg, lock string) error {
		folder := installedWheels(t)
		must(t, os.WriteFile(filepath.Join(folder, "requirements.lock"), []byte(lock), 0o600))
		return s.SealPackage(pkg, registry, folder)
	}
	const first = "a==1 \\\n    --hash=sha256:00\nmy-name==1.2.3 \\\n    --hash=sha256:11 \\\n    --hash=sha256:22\nz==1 \\\n    --hash=sha256:33\n"
	must(t, seal(s, "pypi:My_name@1.2.3", first))
	must(t, seal(s, "pypi:my.name@1.2.3 mcp<2", "my-name==1.2.3 \\\n    --hash=sha256:22\nz==2 \\\n    --hash=sha256:44\n"))
	must(t, seal(s, "pypi:my-name@1.2.30", "my-name==1.2.30 \\\n    --hash=sha256:55\n"))
	for pkg, store := range map[string]*Store{
		"pypi:my-name@1.2.3 mcp<3": s, "pypi:my-name[x]@1.2.3": s, "pypi:my-name@1.2.3": newer,
	} {
		if err := seal(store, pkg, "my-name==1.2.3 \\\n    --hash=sha256:11 \\\n    --hash=sha256:66\n"); err == nil ||
			!strings.Contains(err.Error(), "other files for my-name==1.2.3") {
			t.Errorf("%s: %v", pkg, err)
		}
		if _, err := store.RegistryOf(pkg); !errors.Is(err, sandboxapi.ErrNotInstalled) {
			t.Errorf("%s: %v", pkg, err)
		}
	}
	// The same holds for dependencies.
	if err := seal(s, "pypi:b@1.0", "b==1.0 \\\n    --hash=sha256:77\nz==1 \\\n    --hash=sha256:88\n"); err == nil ||
		!strings.Contains(err.Error(), "other files for z==1 ") {
		t.Errorf("another file of a dependency: %v", err)
	}
	folder := t.TempDir()
	_, err = s.GiveLock("pypi:b@1.0", "", folder)
	must(t, err)
	known, err := os.ReadFile(filepath.Join(folder, "known"))
	must(t, err)
	if !strings.Contains(string(known), "\nz==1 --hash=sha256:33\nz==2 --hash=sha256:44\n") {
		t.Errorf("known files: %q", known)
	}
	if err := seal(s, "pypi:unnamed@1.0", first); err == nil || !strings.Contains(err.Error(), "does not name unnamed") {
		t.Errorf("a lock file without the package: %v", err)
	}
	if err := seal(s, "pypi:h@1.0", "h==1.0\n"); err == nil || !strings.Contains(err.Error(), "no SHA-256 checksum of h==1.0,") {
		t.Errorf("a lock file without a checksum: %v", err)
	}
}

// TestKnownTarballs: a version of npm that was installed once has no other bytes in another list of packages, as a server,
// or as a dependency. A version without a SHA-512 is not installed, because its later bytes could not be compared.
// Promise: first-installed-package
func TestKnownTarballs(t *testing.T) {
	s, dir := open(t)
	lock := func(entries string) string { return `{"version":"5","specifiers":{},"npm":{` + entries + `}}` }
	must(t, s.SealPackage("npm:a@1.0.0 npm:b@1.0.0", registry, installed(t, lock(
		`"a@1.0.0":{"integrity":"sha512-a"},"b@1.0.0":{"integrity":"sha512-b"},"@s/c_d@2.0.0_a@1.0.0":{"integrity":"sha512-c"}`))))
	for set, row := range map[string]struct{ lock, want string }{
		"npm:a@1.0.0 npm:b@1.1.0": {lock(`"a@1.0.0":{"integrity":"sha512-x"},"b@1.1.0":{"integrity":"sha512-y"}`), "other files for a@1.0.0 "},
		"npm:b@1.0.0":             {lock(`"b@1.0.0":{"integrity":"sha512-x"}`), "other files for b@1.0.0 "},
		"npm:d@1.0.0": {lock(`"d@1.0.0":{"integrity":"sha512-d"},"@s/c_d@2.0.0_@x/y@1.0.0":{"integrity":"sha512-x"}`),
			"other files for @s/c_d@2.0.0 "},
		"npm:e@1.0.0": {lock(`"e@1.0.0":{"tarball":"https://packages.example.com/e.tgz"}`), "no SHA-512 checksum of e@1.0.0,"},
		"npm:f@1.0.0": {lock(`"f@1.0.0":{"integrity":"42786f4bb4a2f55418e65e488d1b986b63ba4fa5"}`), "no SHA-512 checksum of f@1.0.0,"},
		"npm:g@1.0.0": {`{"npm":[]}`, "not Deno's"},
		"npm:a@1.0.0": {lock(`"a@1.0.0":{"integrity":"sha512-a"},"@s/c_d@2.0.0_@x/y@1.0.0":{"integrity":"sha512-c"}`), ""},
	} {
		err := s.SealPackage(set, registry, installed(t, row.lock))
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", set, err, row.want)
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, locksDir, "0.lock"), []byte("{"), 0o600))
	if err := s.SealPackage("npm:h@1.0.0", registry, installed(t, lock(`"h@1.0.0":{"integrity":"sha512-h"}`))); err == nil ||
		!strings.Contains(err.Error(), "0.lock") {
		t.Errorf("beside a lock file that cannot be read: %v", err)
	}
}

// TestSealRefuses: a folder with anything but files and directories is not sealed, and no part of it stays.
// Promise: first-installed-package
func TestSealRefuses(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"a link to a file": func(dir string) error {
			return os.Symlink("/etc/passwd", filepath.Join(dir, "npm", "x"))
		},
		"a link to a folder": func(dir string) error { return os.Symlink("/etc", filepath.Join(dir, "npm", "x")) },
		"the folder itself": func(dir string) error {
			return errors.Join(os.RemoveAll(filepath.Join(dir, "npm")), os.Symlink("/etc", filepath.Join(dir, "npm")))
		},
		"the lock": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "deno.lock")), os.Symlink("/etc/passwd", filepath.Join(dir, "deno.lock")))
		},
		"no lock":     func(dir string) error { return os.Remove(filepath.Join(dir, "deno.lock")) },
		"no packages": func(dir string) error { return os.RemoveAll(filepath.Join(dir, "npm")) },
		"a pipe":      func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "npm", "x"), 0o600) },
		"a large lock": func(dir string) error {
			return os.Truncate(filepath.Join(dir, "deno.lock"), maxLock+1)
		},
		"too many bytes": func(dir string) error {
			return errors.Join(os.WriteFile(filepath.Join(dir, "npm", "x"), nil, 0o600), os.Truncate(filepath.Join(dir, "npm", "x"), MaxBytes))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := open(t)
			folder := installed(t, denoLock("sha512-1"))
			must(t, change(folder))
			if err := s.SealPackage(pkg, registry, folder); err == nil {
				t.Error("it was sealed")
			}
			left, err := filepath.Glob(filepath.Join(dir, sandboxapi.PackageKey(pkg)+"*"))
			if len(left) > 0 || err != nil {
				t.Errorf("%v %v", left, err)
			}
			if given, _ := s.GiveLock(pkg, "", t.TempDir()); given {
				t.Error("its lock was kept")
			}
		})
	}
}

// TestLock: the lock file of the first installation is given to later ones, also when the package was removed.
// Promise: first-installed-package
func TestLock(t *testing.T) {
	s, dir := open(t)
	first := denoLock("sha512-1")
	if given, err := s.GiveLock(pkg, "", t.TempDir()); given || err != nil {
		t.Errorf("%v %v", given, err)
	}
	must(t, s.SealPackage(pkg, registry, installed(t, first)))
	must(t, os.RemoveAll(filepath.Join(dir, sandboxapi.PackageKey(pkg))))
	must(t, s.SealPackage(pkg, registry, installed(t, denoLock("sha512-1")+"\n")))
	folder := t.TempDir()
	given, err := s.GiveLock(pkg, "", folder)
	if data, readErr := os.ReadFile(filepath.Join(folder, "deno.lock")); !given || err != nil || string(data) != first {
		t.Errorf("%v %v %q %v", given, err, data, readErr)
	}
}

// TestOpenTidies: what an interrupted installation left is removed, and sealed packages stay.
func TestOpenTidies(t *testing.T) {
	s, dir := open(t)
	must(t, s.SealPackage(pkg, registry, installed(t, denoLock("sha512-1"))))
	must(t, os.MkdirAll(filepath.Join(dir, "0123.new", "npm"), 0o700))
	s, err := OpenStore(dir, "3.11")
	must(t, err)
	if _, err := s.RegistryOf(pkg); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "0123.new")); err == nil {
		t.Error("a draft stays")
	}
}

// Promise: first-installed-package
func TestCheck(t *testing.T) {
	for _, good := range []string{"npm:x@1.0.0", "npm:@scope/server-name@2026.8.31", "npm:a.b_c~d@1.2.3-beta.1+build", "npm:X@0.0.0",
		pypi, "pypi:a@1", "pypi:A.b_c@2025.4.7.post1", "pypi:x@1!2.0rc1+local.1"} {
		if err := CheckName(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{
		"", "x@1.0.0", "npm:x", "npm:x@latest", "npm:x@^1.0.0", "npm:x@1", "npm:x@1.0", "npm:x@1.0.0/bin", "npm:../x@1.0.0",
		"npm:@scope@1.0.0", "npm:x@1.0.0 --allow-all", "npm:x@1.0.0\n", "--reload", "npm:.x@1.0.0", "jsr:@a/b@1.0.0",
		"pypi:x", "pypi:x@", "pypi:x@latest", "pypi:-x@1", "pypi:x@1 --option", "pypi:x@1 y", "pypi:x@1 y @ file:///z", "pypi:x@1/../y",
		"pypi:x@1  y<2", "pypi:x@1 y<2\n-r z", "pypi:x[]@1", "pypi:../x@1", "pypi:x@1 y<2;os_name", "npm:x@1.0.0 y<2",
		"https://packages.example.com/x.js", "npm:x@1.0.0,y", "npm:" + strings.Repeat("x", 300) + "@1.0.0",
	} {
		if CheckName(bad) == nil {
			t.Errorf("%q is a package", bad)
		}
	}
	for _, bad := range []string{"", "http://packages.example.com/", "packages.example.com", "https://u:p@packages.example.com/", "file:///etc"} {
		if CheckRegistry(bad) == nil {
			t.Errorf("%q is a registry", bad)
		}
	}
	if err := CheckRegistry(registry); err != nil {
		t.Error(err)
	}
}

// TestSet: a set is several packages and nothing else. The lock file of a set that grew is the start of the new one's,
// and Deno finds the short spellings in the sealed one only.
// Promise: first-installed-package
func TestSet(t *testing.T) {
	set := sandboxapi.PackageSet([]string{"npm:b@2.0.0-rc.1", pkg})
	if err := CheckSet(set); err != nil || set != pkg+" npm:b@2.0.0-rc.1" {
		t.Errorf("%q %v", set, err)
	}
	for _, bad := range []string{"", pkg + " ", pkg + " --reload", pkg + "  npm:b@2.0.0", pkg + " ../x", strings.Repeat(pkg+" ", 50) + pkg} {
		if CheckSet(bad) == nil {
			t.Errorf("%q is a set", bad)
		}
	}
	mixed := []string{"npm:b@2.0.0-rc.1", "pypi:b@1.0", "pypi:A_x[y]@2.0rc1"}
	_, wheels := sandboxapi.SplitPackages(mixed)
	for set, want := range map[string]bool{
		"pypi:b@1.0": true, sandboxapi.PackageSet(wheels): true, sandboxapi.PackageSet(mixed): false, "pypi:b@1.0 b<2": false,
		"pypi:b@1.0 --option": false, "pypi:b@1.0 -r": false, "pypi:b@latest": false, "pypi:b@1.0  pypi:c@1": false,
	} {
		if err := CheckSet(set); (err == nil) != want {
			t.Errorf("%q: %v", set, err)
		}
	}
	s, dir := open(t)
	const lock = `{"version":"5","specifiers":{"npm:@scope/name@1.2.3":"1.2.3_x@1.0.0"},"npm":{"x@1.0.0":{"integrity":"sha512-1"}}}`
	must(t, s.SealPackage(pkg, registry, installed(t, lock)))
	folder := t.TempDir()
	frozen, err := s.GiveLock(set, pkg, folder)
	given, readErr := os.ReadFile(filepath.Join(folder, "deno.lock"))
	if frozen || err != nil || readErr != nil || string(given) != lock {
		t.Errorf("%v %v %s", frozen, err, given)
	}
	if frozen, err := s.GiveLock("npm:other@1.0.0", pkg, folder); frozen || err != nil {
		t.Errorf("a set that lacks the package: %v %v", frozen, err)
	}
	sealed, err := os.ReadFile(filepath.Join(dir, sandboxapi.PackageKey(pkg), "deno.lock"))
	for _, want := range []string{"*", "latest", "1", "1.2", "^1", "^1.2", "^1.2.3", "~1.2.3", "1.2.3"} {
		if err != nil || !strings.Contains(string(sealed), `"npm:@scope/name@`+want+`":"1.2.3_x@1.0.0"`) {
			t.Errorf("%s: %s %v", want, sealed, err)
		}
	}
}

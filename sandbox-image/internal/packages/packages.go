// Package packages keeps the installed packages of MCP servers and of code. Packages of code are installed together as
// a sandboxapi.PackageSet, and count as one package here.
//
// Threat: a package or registry that delivers other bytes than at the first installation, or that leaves links and
// special files which sandboxd and other servers would follow. Contract: a slot installs into a separate folder. When
// no process of the slot is left, sandboxd copies only regular files into a folder that no slot can write. The lock
// file of the first installation stays when a package is removed, and later installations must agree with it.
package packages

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// Bounds of one package with all its dependencies.
const (
	MaxBytes = 1 << 30
	MaxFiles = 100_000
	maxLock  = 8 << 20
)

// Names in a package's folder. The installer writes a lock file, and the folder npmName or sandboxapi.PythonDir.
const (
	npmLock      = "deno.lock"
	pythonLock   = "requirements.lock"
	knownName    = "known"
	pythonDraft  = "requirements.lock.new" // the installer extends it to pythonLock
	npmName      = "npm"
	registryName = "registry"
	packageName  = "package"
	// pythonName is the file with the version of Python for which a package of PyPI was installed.
	pythonName = "version"
)

// layoutOf returns the names of a package's lock file and folder.
func layoutOf(pkg string) (lock, folder string) {
	if sandboxapi.IsPyPI(pkg) {
		return pythonLock, sandboxapi.PythonDir
	}
	return npmLock, npmName
}

// locksDir is the folder of the lock files.
const locksDir = "locks"

// Store is the folder of packages. It is safe for concurrent use.
type Store struct {
	dir string
	// python is the version of Python for packages of PyPI, e.g. "3.11". Empty: there is no Python.
	python string

	sealing sync.Mutex // one package at a time

	mu   sync.Mutex     // held while a package is taken away, and never for long: runs wait for it
	held map[string]int // number of users of a package, by key
}

// HasPackages reports whether something was installed in a folder.
func HasPackages(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, locksDir))
	return err == nil
}

// OpenStore prepares the folder, and removes unfinished installations and packages for other versions of Python. python
// is the major and minor version of the Python that packages of PyPI are for. Without Python it is empty, and all
// packages stay.
func OpenStore(dir, python string) (*Store, error) {
	for _, name := range []string{".", jail.InstallDir, locksDir} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return nil, fmt.Errorf("preparing the folder of packages: %w", err)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "*.new"))
	if err != nil {
		return nil, err
	}
	versions, err := filepath.Glob(filepath.Join(dir, "*", pythonName))
	if err != nil {
		return nil, err
	}
	for _, path := range versions {
		if data, _ := os.ReadFile(path); python != "" && string(data) != python {
			left = append(left, filepath.Dir(path))
		}
	}
	for _, path := range left {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return &Store{dir: dir, python: python, held: map[string]int{}}, err
}

func (s *Store) packagePath(pkg string) string {
	return filepath.Join(s.dir, sandboxapi.PackageKey(pkg))
}

// RegistryOf returns the registry of an installed package, or sandboxapi.ErrNotInstalled.
func (s *Store) RegistryOf(pkg string) (string, error) {
	data, err := os.ReadFile(filepath.Join(s.packagePath(pkg), registryName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: %s", sandboxapi.ErrNotInstalled, pkg)
	}
	return string(data), err
}

// SealPackage copies a package from the folder in which a slot installed it. No process of the slot may be left.
func (s *Store) SealPackage(pkg, registry, folder string) error {
	s.sealing.Lock()
	defer s.sealing.Unlock()
	if _, err := os.Stat(s.packagePath(pkg)); err == nil {
		return nil // another slot has installed it in the meantime
	}
	// A Root does not follow links out of the slot's folder.
	from, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer from.Close()
	draft := s.packagePath(pkg) + ".new"
	err = errors.Join(os.RemoveAll(draft), os.Mkdir(draft, 0o755))
	if err == nil {
		err = fillDraft(draft, pkg, from)
	}
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(draft, registryName), []byte(registry), 0o444),
			os.WriteFile(filepath.Join(draft, packageName), []byte(pkg), 0o444))
	}
	if err == nil {
		err = s.checkFiles(pkg, draft)
	}
	if err == nil {
		err = s.keepLock(pkg, draft)
	}
	switch {
	case err != nil:
	case sandboxapi.IsPyPI(pkg):
		err = os.WriteFile(filepath.Join(draft, pythonName), []byte(s.python), 0o444)
	default:
		err = errors.Join(dropListings(draft), addSpellings(filepath.Join(draft, npmLock), pkg))
	}
	if err == nil {
		err = atomicfile.SyncDir(draft)
	}
	if err == nil {
		// The rename makes the package appear complete or not at all, also after a crash.
		err = os.Rename(draft, s.packagePath(pkg))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("sealing %s: %w", pkg, err), os.RemoveAll(draft))
	}
	return nil
}

// fillDraft copies the lock file and the folder of packages. Other files of the installer are caches.
func fillDraft(draft, pkg string, from *os.Root) error {
	c := treeCopier{from: from, to: draft}
	lock, folder := layoutOf(pkg)
	// Lstat, not Stat: the slot may have left a link.
	if info, err := from.Lstat(lock); err != nil || info.Size() > maxLock {
		return errors.Join(fmt.Errorf("the lock file is missing or larger than %d MiB", maxLock>>20), err)
	}
	if err := c.copyEntry(lock); err != nil {
		return err
	}
	return fs.WalkDir(from.FS(), folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil || isStartHook(pkg, name) {
			return err
		}
		if sandboxapi.IsPyPI(pkg) && d.Type().IsRegular() && isCABundle(name) {
			return os.Symlink(jail.SystemCA, filepath.Join(draft, filepath.FromSlash(name)))
		}
		return c.copyEntry(name)
	})
}

// isStartHook reports whether Python runs a file at its start if the file's folder is a folder of site-packages.
// CodeForge never starts Python like that, but a program that a server starts could.
func isStartHook(pkg, name string) bool {
	//defence:package-hooks
	return sandboxapi.IsPyPI(pkg) && path.Dir(name) == sandboxapi.PythonDir && path.Ext(name) == ".pth"
}

// caBundles are the files of packages with the authorities of their TLS libraries. Not every library has a setting for
// another file: the SDK of Stripe has none in the environment.
var caBundles = []string{
	"/certifi/cacert.pem", "/stripe/data/ca-certificates.crt", "/botocore/cacert.pem", "/httplib2/cacerts.txt",
	"/grpc/_cython/_credentials/roots.pem", "/braintree/ssl/api_braintreegateway_com.ca.crt",
}

// isCABundle reports whether a file of a package is one of caBundles, possibly inside of another package.
func isCABundle(name string) bool {
	return slices.ContainsFunc(caBundles, func(bundle string) bool { return strings.HasSuffix(name, bundle) })
}

// treeCopier copies regular files and directories within the bounds of a package.
type treeCopier struct {
	from  *os.Root
	to    string
	bytes int64
	files int
}

var errTooLarge = fmt.Errorf("it has more than %d MiB", MaxBytes>>20)

func (c *treeCopier) copyEntry(name string) error {
	info, err := c.from.Lstat(name)
	if err != nil {
		return err
	}
	if c.files++; c.files > MaxFiles {
		return fmt.Errorf("it has more than %d files", MaxFiles)
	}
	target := filepath.Join(c.to, filepath.FromSlash(name))
	switch m := info.Mode(); {
	case m.IsDir():
		return os.Mkdir(target, 0o755)
	case m.IsRegular():
		if info.Size() > MaxBytes-c.bytes {
			return errTooLarge
		}
		// No write bits, and no setuid bit: only permission to read and execute.
		return c.copyFile(name, target, 0o444|m&0o111)
	}
	return fmt.Errorf("%q is neither a file nor a directory", name)
}

func (c *treeCopier) copyFile(name, target string, mode fs.FileMode) (err error) {
	in, err := c.from.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	// O_EXCL: two entries must not write one file.
	out, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Chmod(mode), out.Close()) }()
	// The file may be larger than its size says, so count the copied bytes too.
	n, err := io.Copy(out, io.LimitReader(in, MaxBytes-c.bytes+1))
	if c.bytes += n; c.bytes > MaxBytes {
		return errTooLarge
	}
	return err
}

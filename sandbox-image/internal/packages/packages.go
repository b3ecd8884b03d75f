// Package packages keeps the installed packages of MCP servers and of code. Packages of code are installed together as
// a sandboxapi.PackageSet, and count as one package here.
//
// Threat: a package or registry that delivers other bytes than at the first installation, or that leaves links and
// special files which sandboxd and other servers would follow. Contract: a slot installs into a separate folder. When
// no process of the slot is left, sandboxd copies only regular files into a folder that no slot can write. The lock
// file of the first installation stays when a package is removed, and later installations must agree with it.
package packages

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
	"github.com/codeforge-mcp/codeforge/internal/convert"
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

// namePattern matches a package name as npm defines it, with an exact version as semver.org defines it. pypiPin matches
// a name of PyPI with extras, and an exact version as PEP 440 defines it. pypiPattern matches a set, or a pypiPin and
// constraints. A match is never an option or a path.
var (
	pypiPin = `pypi:[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(\[[A-Za-z0-9._,-]+\])?` +
		`@[0-9][0-9A-Za-z.!+-]*`
	pypiPattern = regexp.MustCompile(`^` + pypiPin +
		`(( [A-Za-z0-9][A-Za-z0-9._-]*[<>=!~][<>=!~0-9A-Za-z.*+,-]*)*|( ` + pypiPin + `)*)$`)
	namePattern = regexp.MustCompile(`^npm:(@[A-Za-z0-9~_-][A-Za-z0-9._~-]*/)?[A-Za-z0-9~_-][A-Za-z0-9._~-]*` +
		`@[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
	maxName        = 300
	maxConstrained = 16 << 10 // bytes, for a package of PyPI with its constraints
)

// CheckName returns an error if a text does not name a package and its exact version.
func CheckName(pkg string) error {
	if !sandboxapi.IsPyPI(pkg) {
		return checkNPM(pkg)
	}
	return checkPyPI(pkg)
}

func checkPyPI(pkg string) error {
	if len(pkg) > maxConstrained || !pypiPattern.MatchString(pkg) {
		return fmt.Errorf("package %.80q: want pypi:NAME@VERSION with an exact version", pkg)
	}
	return nil
}

func checkNPM(pkg string) error {
	if len(pkg) > maxName || !namePattern.MatchString(pkg) {
		return fmt.Errorf("package %.80q: want npm:NAME@VERSION with an exact version", pkg)
	}
	return nil
}

// maxSet is the largest number of packages in a set.
const maxSet = 50

// CheckSet returns an error if a text is not a sandboxapi.PackageSet of some packages of one kind.
func CheckSet(set string) error {
	list := strings.Split(set, " ")
	if len(list) > maxSet {
		return fmt.Errorf("%d packages: want at most %d", len(list), maxSet)
	}
	check := checkNPM
	if sandboxapi.IsPyPI(set) {
		check = checkPyPI
	}
	return errors.Join(convert.Each(list, check)...)
}

// CheckRegistry returns an error if a text is not the https address of a registry.
func CheckRegistry(registry string) error {
	u, err := url.Parse(registry)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		return errors.New("registry: want an https URL")
	}
	return nil
}

func (s *Store) packagePath(pkg string) string {
	return filepath.Join(s.dir, sandboxapi.PackageKey(pkg))
}

// lockPath returns the path of a package's lock file. For PyPI there is one lock file for each version of Python,
// because the dependencies can differ.
func (s *Store) lockPath(pkg string) string {
	name := sandboxapi.PackageKey(pkg)
	if sandboxapi.IsPyPI(pkg) {
		name += "-" + s.python
	}
	return filepath.Join(s.dir, locksDir, name+".lock")
}

// RegistryOf returns the registry of an installed package, or sandboxapi.ErrNotInstalled.
func (s *Store) RegistryOf(pkg string) (string, error) {
	data, err := os.ReadFile(filepath.Join(s.packagePath(pkg), registryName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: %s", sandboxapi.ErrNotInstalled, pkg)
	}
	return string(data), err
}

// GiveLock copies the lock file of an earlier installation, if one exists, into the folder in which a slot installs. It
// reports whether the installation must agree with the whole file. For the first installation of a set that grew from
// the set grown, it copies the lock file of the latter, which the installation extends. For a first installation from
// PyPI, it also writes a file with the checksums of all earlier installations, from which the installer chooses.
func (s *Store) GiveLock(pkg, grown, folder string) (frozen bool, err error) {
	data, err := os.ReadFile(s.lockPath(pkg))
	frozen = true
	if errors.Is(err, fs.ErrNotExist) && isSubset(grown, pkg) {
		frozen = false
		data, err = os.ReadFile(s.lockPath(grown))
	}
	lock, _ := layoutOf(pkg)
	if isFirst := !frozen || errors.Is(err, fs.ErrNotExist); isFirst && sandboxapi.IsPyPI(pkg) {
		lock = pythonDraft
		if err := s.giveKnownFiles(folder); err != nil {
			return false, err
		}
	}
	//defence:package-lock permits
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	path := filepath.Join(folder, lock)
	return frozen, os.WriteFile(path, data, 0o644) //nolint:gosec // a folder that no slot has used yet
}

// giveKnownFiles writes a file knownName: the lines NAME==VERSION --hash=... of all lock files of PyPI.
func (s *Store) giveKnownFiles(folder string) error {
	known, err := s.knownFiles()
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, pin := range slices.Sorted(maps.Keys(known)) {
		if strings.Contains(pin, "==") {
			fmt.Fprintln(&text, pin, strings.Join(known[pin], " "))
		}
	}
	//nolint:gosec // a folder that no slot has used yet
	return os.WriteFile(filepath.Join(folder, knownName), text.Bytes(), 0o644)
}

// isSubset reports whether a set that is not empty has only packages of another set.
func isSubset(part, whole string) bool {
	list := strings.Split(whole, " ")
	return part != "" && !slices.ContainsFunc(strings.Split(part, " "), func(pkg string) bool {
		return !slices.Contains(list, pkg)
	})
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
		err = addSpellings(filepath.Join(draft, npmLock), pkg)
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

// separators match characters that PyPI reads as one hyphen in the name of a package (PEP 503).
var separators = regexp.MustCompile(`[-_.]+`)

// checkFiles returns an error if the draft's lock file has no checksum of a version, or a file of a version that
// earlier installations of this version lack. It covers dependencies too. Another list of packages, other constraints
// and another version of Python have another lock file.
func (s *Store) checkFiles(pkg, draft string) error {
	lock, _ := layoutOf(pkg)
	data, err := os.ReadFile(filepath.Join(draft, lock))
	if err != nil {
		return err
	}
	pins, err := readPins(data)
	if err != nil {
		return err
	}
	known, err := s.knownFiles()
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(pins))
	for word := range strings.SplitSeq(pkg, " ") {
		isOwn := func(pin string) bool { return strings.HasPrefix(pin, nameOnPyPI(word)+"==") }
		if sandboxapi.IsPyPI(word) && !slices.ContainsFunc(names, isOwn) {
			return fmt.Errorf("the lock file does not name %s", nameOnPyPI(word))
		}
	}
	for _, pin := range names {
		files := pins[pin]
		isNew := func(file string) bool { return !slices.Contains(known[pin], file) }
		//defence:package-checksums
		if len(files) == 0 {
			return fmt.Errorf("the registry has no SHA-512 checksum of %s, so other bytes could pass for it later", pin)
		}
		//defence:package-files
		if known[pin] != nil && slices.ContainsFunc(files, isNew) {
			return fmt.Errorf("the registry has other files for %s than at its first installation: find the cause before you "+
				"trust them", pin)
		}
	}
	return nil
}

// nameOnPyPI returns the name by which a lock file lists a package of PyPI.
func nameOnPyPI(pkg string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(pkg, "pypi:"), "@")
	name, _, _ = strings.Cut(name, "[")
	return strings.ToLower(separators.ReplaceAllString(name, "-"))
}

// knownFiles returns the result of readPins for all lock files together.
func (s *Store) knownFiles() (map[string][]string, error) {
	locks, err := filepath.Glob(filepath.Join(s.dir, locksDir, "*.lock"))
	if err != nil {
		return nil, err
	}
	known := map[string][]string{}
	for _, path := range locks {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		pins, err := readPins(data)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		for pin, files := range pins {
			known[pin] = append(known[pin], files...)
		}
	}
	return known, nil
}

// readPins returns the checksums of each version's files in a lock file: by NAME@VERSION in one of Deno, which is JSON,
// and by NAME==VERSION in one of uv.
func readPins(lock []byte) (map[string][]string, error) {
	if bytes.HasPrefix(lock, []byte("{")) {
		return readDenoPins(lock)
	}
	pins, pin := map[string][]string{}, ""
	for line := range strings.Lines(string(lock)) {
		words := strings.Fields(line)
		if len(words) > 0 && !strings.HasPrefix(line, " ") {
			pin, words = words[0], words[1:]
			pins[pin] = nil
		}
		for _, word := range words {
			if strings.HasPrefix(word, "--hash=") {
				pins[pin] = append(pins[pin], word)
			}
		}
	}
	return pins, nil
}

// readDenoPins is readPins for a lock file of Deno. It leaves out checksums other than SHA-512, because a publisher can
// prepare two packages with the same SHA-1.
func readDenoPins(lock []byte) (map[string][]string, error) {
	var content struct {
		NPM map[string]struct{ Integrity string }
	}
	if err := json.Unmarshal(lock, &content); err != nil {
		return nil, fmt.Errorf("the lock file is not Deno's: %w", err)
	}
	pins := map[string][]string{}
	for key, entry := range content.NPM {
		// NAME@VERSION, or NAME@VERSION_PEER@VERSION if the version uses another package's version. A scope begins with @.
		at := 0
		if strings.HasPrefix(key, "@") {
			at = strings.IndexByte(key, '/') + 1
		}
		name, version, _ := strings.Cut(key[at:], "@")
		version, _, _ = strings.Cut(version, "_")
		pin := key[:at] + name + "@" + version
		files := pins[pin]
		if strings.HasPrefix(entry.Integrity, "sha512-") {
			files = append(files, entry.Integrity)
		}
		pins[pin] = files
	}
	return pins, nil
}

// keepLock stores the lock file of a first installation.
func (s *Store) keepLock(pkg, draft string) error {
	lock, _ := layoutOf(pkg)
	data, err := os.ReadFile(filepath.Join(draft, lock))
	if err != nil {
		return err
	}
	// Later installations agree with the first lock file, so it is never replaced.
	if _, err := os.Stat(s.lockPath(pkg)); err == nil {
		return nil
	}
	return atomicfile.Write(s.lockPath(pkg), data, 0o444)
}

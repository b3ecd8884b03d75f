package packages

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
	"github.com/codeforge-mcp/codeforge/internal/pypiname"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// lockPath returns the path of a package's lock file. For PyPI there is one lock file for each version of Python,
// because the dependencies can differ.
func (s *Store) lockPath(pkg string) string {
	name := sandboxapi.PackageKey(pkg)
	if sandboxapi.IsPyPI(pkg) {
		name += "-" + s.python
	}
	return filepath.Join(s.dir, locksDir, name+".lock")
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
	sum := "SHA-512"
	if sandboxapi.IsPyPI(pkg) {
		sum = "SHA-256"
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
			return fmt.Errorf("the registry has no %s checksum of %s, so other bytes could pass for it later", sum, pin)
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
	return pypiname.FoldName(name)
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

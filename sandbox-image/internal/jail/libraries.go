package jail

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/confine"
)

// libraryDirs are the default search paths of the dynamic loaders of the common distributions.
var libraryDirs = [...]string{
	"/lib64", "/usr/lib64", "/lib", "/usr/lib",
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
}

// resolverLibraries are loaded by name if a glibc before 2.34 resolves a host name.
var resolverLibraries = [...]string{"libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2"}

// libraryFinder collects the files that a dynamic loader needs, as entries of a stage.
type libraryFinder struct {
	// own is a folder that is searched first. The sandbox sees its libraries in /usr/lib. Empty: no such folder.
	own   string
	files []confine.StageEntry

	machine elf.Machine
	seen    map[string]bool
}

// addProgram adds a program's dynamic loader, and its shared libraries with their dependencies. A static program needs
// neither.
func (l *libraryFinder) addProgram(path string) error {
	f, err := elf.Open(path)
	if _, ok := errors.AsType[*elf.FormatError](err); ok {
		return fmt.Errorf("%s is not a program for this machine (%w); a script cannot replace it", path, err)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	defer f.Close()
	interp, err := dynamicLoader(f)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	if interp == "" {
		return nil
	}
	l.machine, l.seen = f.Machine, map[string]bool{filepath.Base(interp): true}
	l.addFile(interp, interp)
	needs, err := f.ImportedLibraries()
	if err != nil {
		return err
	}
	return l.addWithDependencies(needs, false)
}

// interpreter adds an interpreter, its libraries, and those that resolve host names.
func (l *libraryFinder) interpreter(program, inside string) error {
	l.files = append(l.files, confine.StageEntry{Kind: confine.ReadOnly, Path: inside, Source: program})
	if err := l.addProgram(program); err != nil || l.seen == nil {
		return err
	}
	return l.addWithDependencies(resolverLibraries[:], true)
}

// addModule adds the libraries of an extension module, except those that the host lacks.
func (l *libraryFinder) addModule(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return nil //nolint:nilerr // not a library
	}
	defer f.Close()
	needs, err := f.ImportedLibraries()
	if err != nil || l.seen == nil {
		return nil //nolint:nilerr // as above
	}
	return l.addWithDependencies(needs, true)
}

// addWithDependencies adds libraries with their dependencies. If optional, missing libraries are skipped.
func (l *libraryFinder) addWithDependencies(queue []string, optional bool) error {
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		if l.seen[name] {
			continue
		}
		l.seen[name] = true
		at, needs, err := l.findLibrary(name)
		if errors.Is(err, fs.ErrNotExist) && optional {
			continue
		}
		if err != nil {
			return err
		}
		inside := at
		if l.own != "" && filepath.Dir(at) == l.own {
			inside = "/usr/lib/" + name
		}
		l.addFile(at, inside)
		queue = append(queue, needs...)
	}
	return nil
}

func (l *libraryFinder) addFile(at, inside string) {
	l.files = append(l.files, confine.StageEntry{Kind: confine.ReadOnly, Path: inside, Source: at})
}

// dynamicLoader returns the path of the program's dynamic loader, empty for a static program.
func dynamicLoader(f *elf.File) (string, error) {
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		data := make([]byte, p.Filesz)
		if _, err := p.ReadAt(data, 0); err != nil {
			return "", err
		}
		return strings.TrimRight(string(data), "\x00"), nil
	}
	return "", nil
}

// findLibrary searches for a shared library of the program's architecture. It returns its path and dependencies.
func (l *libraryFinder) findLibrary(name string) (string, []string, error) {
	if strings.Contains(name, "/") {
		return "", nil, fmt.Errorf("the interpreter needs %s: only names without a directory are supported", name)
	}
	dirs := libraryDirs[:]
	if l.own != "" {
		dirs = append([]string{l.own}, dirs...)
	}
	for _, dir := range dirs {
		at := filepath.Join(dir, name)
		f, err := elf.Open(at)
		if err != nil {
			continue
		}
		needs, err := f.ImportedLibraries()
		// Multi-architecture hosts have libraries of the same name for another machine.
		ok := f.Machine == l.machine
		_ = f.Close()
		if err == nil && ok {
			return at, needs, nil
		}
	}
	return "", nil, fmt.Errorf("shared library %s: %w", name, fs.ErrNotExist)
}

package jail

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/enter"
)

// libraryDirs are the default search paths of the dynamic loaders of all distributions.
var libraryDirs = [...]string{
	"/lib64", "/usr/lib64", "/lib", "/usr/lib",
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
}

// resolverLibraries are loaded by name when a glibc before 2.34 resolves a host name.
var resolverLibraries = [...]string{"libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2"}

// libraries lists the files needed to start the program: its dynamic loader, and its shared libraries with all that
// they depend on.
func libraries(program string) ([]library, []enter.Bind, error) {
	f, err := elf.Open(program)
	if err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", program, err)
	}
	defer f.Close()
	interp, err := interpreter(f)
	if err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", program, err)
	}
	var libs []library
	var binds []enter.Bind
	add := func(at string) error {
		real, err := filepath.EvalSymlinks(at)
		if err != nil {
			return err
		}
		name := "lib" + strconv.Itoa(len(libs))
		libs = append(libs, library{at, name})
		binds = append(binds, enter.Bind{Name: name, Source: real})
		return nil
	}
	if interp == "" {
		return nil, nil, nil // a static program
	}
	if err := add(interp); err != nil {
		return nil, nil, err
	}
	seen := map[string]bool{filepath.Base(interp): true}
	queue, err := f.ImportedLibraries()
	if err != nil {
		return nil, nil, err
	}
	optional := map[string]bool{}
	for _, n := range resolverLibraries {
		optional[n] = true
		queue = append(queue, n)
	}
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		if seen[name] {
			continue
		}
		seen[name] = true
		at, needs, err := find(name, f.Machine)
		if errors.Is(err, fs.ErrNotExist) && optional[name] {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if err := add(at); err != nil {
			return nil, nil, err
		}
		queue = append(queue, needs...)
	}
	return libs, binds, nil
}

// interpreter is the path of the program's dynamic loader, empty for a static program.
func interpreter(f *elf.File) (string, error) {
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

// find searches libraryDirs for a shared library of the program's architecture, and returns its path and dependencies.
func find(name string, machine elf.Machine) (string, []string, error) {
	if strings.Contains(name, "/") {
		return "", nil, fmt.Errorf("the interpreter needs %s: only names without a directory are supported", name)
	}
	for _, dir := range libraryDirs {
		at := filepath.Join(dir, name)
		f, err := elf.Open(at)
		if err != nil {
			continue
		}
		needs, err := f.ImportedLibraries()
		ok := f.Machine == machine
		_ = f.Close()
		if err == nil && ok {
			return at, needs, nil
		}
	}
	return "", nil, fmt.Errorf("shared library %s: %w", name, fs.ErrNotExist)
}

package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
	"github.com/codeforge-mcp/codeforge/internal/python"
)

// fetchTime bounds a fetch.
const fetchTime = 10 * time.Minute

// Dir is where the tarballs lie below the root of the source tree.
func Dir(root string) string { return filepath.Join(root, ".tools", "registry") }

// cacheDir is where the tarballs of all checkouts lie.
func cacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "codeforge-tools", "registry"), err
}

// Fetch puts these packages with all their dependencies into Dir, unless they are there. Each is NAME@VERSION, or pypi:
// with requirements. npm or pip fetch them once for all checkouts of a user.
func Fetch(root string, packages ...string) error {
	dir := Dir(root)
	packages = slices.DeleteFunc(slices.Clone(packages), func(p string) bool { return fetched(dir, p) })
	if len(packages) == 0 {
		return nil
	}
	cache, err := cacheDir()
	if err != nil {
		return err
	}
	for _, d := range []string{dir, cache} {
		if err := os.MkdirAll(d, 0o755); err != nil { //nolint:gosec // public
			return err
		}
	}
	lock, err := os.OpenFile(filepath.Join(cache, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil { //nolint:gosec // a descriptor
		return err
	}
	stale, _ := filepath.Glob(filepath.Join(cache, ".fetch-*")) // of a fetch that was killed: the lock is ours
	for _, d := range stale {
		_ = os.RemoveAll(d)
	}
	ctx, cancel := context.WithTimeout(context.Background(), fetchTime)
	defer cancel()
	for _, p := range packages {
		if fetched(dir, p) { // by another process, meanwhile
			continue
		}
		files, err := fetchOnce(ctx, cache, p)
		if err != nil {
			return fmt.Errorf("fetching %s: %w", p, err)
		}
		for _, file := range files {
			if err := place(filepath.Join(cache, file), filepath.Join(dir, file)); err != nil {
				return err
			}
		}
		if err := os.WriteFile(mark(dir, p), nil, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// fetchOnce fetches a package into the cache unless all its files are there, and returns their names.
func fetchOnce(ctx context.Context, cache, pkg string) ([]string, error) {
	key := pkg
	if strings.HasPrefix(pkg, pypi) { // pip chooses wheels for a version of Python
		i, err := python.FindInterpreter(ctx, python.ListCandidates(""))
		if err != nil {
			return nil, err
		}
		key += " python " + python.MinorVersion(i.Version)
	}
	if list, err := os.ReadFile(mark(cache, key)); err == nil {
		files := strings.Fields(string(list))
		isMissing := func(file string) bool {
			_, err := os.Stat(filepath.Join(cache, file))
			return err != nil
		}
		if !slices.ContainsFunc(files, isMissing) {
			return files, nil
		}
	}
	files, err := fetch(ctx, cache, pkg)
	if err != nil {
		return nil, err
	}
	return files, atomicfile.Write(mark(cache, key), []byte(strings.Join(files, "\n")), 0o600)
}

// place gives a file a second name. On another file system it makes a copy.
func place(from, to string) error {
	if err := os.Link(from, to); err == nil || errors.Is(err, fs.ErrExist) {
		return nil
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return atomicfile.Write(to, data, 0o644)
}

// mark is the file that says that a package was fetched.
func mark(dir, pkg string) string { return filepath.Join(dir, "."+strings.ReplaceAll(pkg, "/", "+")) }

func fetched(dir, pkg string) bool {
	_, err := os.Stat(mark(dir, pkg))
	return err == nil
}

// fetch fetches one package, and returns the names of its files: npm resolves the dependencies, then packs each of them.
func fetch(ctx context.Context, dir, pkg string) ([]string, error) {
	if requirements, is := strings.CutPrefix(pkg, pypi); is {
		return fetchWheels(ctx, dir, strings.Fields(requirements))
	}
	temp, err := os.MkdirTemp(dir, ".fetch-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	if err := os.WriteFile(filepath.Join(temp, "package.json"), []byte(`{"private":true}`), 0o600); err != nil {
		return nil, err
	}
	err = npm(ctx, temp, "install", "--package-lock-only", "--ignore-scripts", "--no-audit", "--no-fund", "--force", pkg)
	if err != nil {
		return nil, err
	}
	specs, err := locked(filepath.Join(temp, "package-lock.json"))
	if err != nil {
		return nil, err
	}
	var files []string
	specs = slices.DeleteFunc(specs, func(spec string) bool { // of another package too
		_, err := os.Stat(filepath.Join(dir, tarball(spec)))
		if err == nil {
			files = append(files, tarball(spec))
		}
		return err == nil
	})
	for some := range slices.Chunk(specs, 40) {
		if err := npm(ctx, temp, append([]string{"pack", "--ignore-scripts"}, some...)...); err != nil {
			return nil, err
		}
	}
	moved, err := moveFiles(filepath.Join(temp, "*.tgz"), dir)
	return append(files, moved...), err
}

// moveFiles moves the files of a pattern into a folder, and returns their names. A rename leaves no incomplete file if
// this process ends.
func moveFiles(pattern, dir string) ([]string, error) {
	files, err := filepath.Glob(pattern)
	for i, file := range files {
		files[i] = filepath.Base(file)
		err = errors.Join(err, os.Rename(file, filepath.Join(dir, files[i])))
	}
	return files, err
}

// tarball is the name of the file into which npm packs NAME@VERSION.
func tarball(spec string) string {
	at := strings.LastIndex(spec, "@")
	return strings.ReplaceAll(strings.TrimPrefix(spec[:at], "@"), "/", "-") + "-" + spec[at+1:] + ".tgz"
}

// npm runs npm, which reads its own configuration.
func npm(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "npm", append(args, "--silent")...) //nolint:gosec // fixed by the tests
	cmd.Dir = dir
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("npm %s: %w: %s", args[0], err, errs.Bytes())
	}
	return nil
}

// locked lists what a lock file holds, as NAME@VERSION.
func locked(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var lock struct {
		Packages map[string]struct{ Name, Version string }
	}
	if err := json.Unmarshal(data, &lock); err != nil {
		return nil, err
	}
	var out []string
	for at, p := range lock.Packages {
		if at == "" {
			continue
		}
		name := p.Name // of an alias
		if name == "" {
			name = at[strings.LastIndex(at, "node_modules/")+len("node_modules/"):]
		}
		out = append(out, name+"@"+p.Version)
	}
	if len(out) == 0 {
		return nil, errors.New("npm resolved nothing")
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// fetchTime bounds a fetch.
const fetchTime = 10 * time.Minute

// Dir is where the tarballs lie below the root of the source tree.
func Dir(root string) string { return filepath.Join(root, ".tools", "registry") }

// Fetch lets npm or pip fetch these packages with all their dependencies into Dir, unless they are there. Each is
// NAME@VERSION, or pypi: with requirements.
func Fetch(root string, packages ...string) error {
	dir := Dir(root)
	packages = slices.DeleteFunc(slices.Clone(packages), func(p string) bool { return fetched(dir, p) })
	if len(packages) == 0 {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // public
		return err
	}
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil { //nolint:gosec // a descriptor
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), fetchTime)
	defer cancel()
	for _, p := range packages {
		if fetched(dir, p) { // by another process, meanwhile
			continue
		}
		if err := fetch(ctx, dir, p); err != nil {
			return fmt.Errorf("fetching %s: %w", p, err)
		}
		if err := os.WriteFile(mark(dir, p), nil, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// mark is the file that says that a package was fetched.
func mark(dir, pkg string) string { return filepath.Join(dir, "."+strings.ReplaceAll(pkg, "/", "+")) }

func fetched(dir, pkg string) bool {
	_, err := os.Stat(mark(dir, pkg))
	return err == nil
}

// fetch fetches one package: npm resolves the dependencies, then packs each of them.
func fetch(ctx context.Context, dir, pkg string) error {
	if requirements, is := strings.CutPrefix(pkg, pypi); is {
		return fetchWheels(ctx, dir, strings.Fields(requirements))
	}
	temp, err := os.MkdirTemp(dir, ".fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	if err := os.WriteFile(filepath.Join(temp, "package.json"), []byte(`{"private":true}`), 0o600); err != nil {
		return err
	}
	err = npm(ctx, temp, "install", "--package-lock-only", "--ignore-scripts", "--no-audit", "--no-fund", "--force", pkg)
	if err != nil {
		return err
	}
	specs, err := locked(filepath.Join(temp, "package-lock.json"))
	if err != nil {
		return err
	}
	specs = slices.DeleteFunc(specs, func(spec string) bool { // of another package too
		_, err := os.Stat(filepath.Join(dir, tarball(spec)))
		return err == nil
	})
	for some := range slices.Chunk(specs, 40) {
		if err := npm(ctx, temp, append([]string{"pack", "--ignore-scripts"}, some...)...); err != nil {
			return err
		}
	}
	packed, err := filepath.Glob(filepath.Join(temp, "*.tgz"))
	for _, file := range packed { // whole, whatever ends this process
		err = errors.Join(err, os.Rename(file, filepath.Join(dir, filepath.Base(file))))
	}
	return err
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

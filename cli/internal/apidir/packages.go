package apidir

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/cli/internal/jsonfile"
	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
)

// ReadPackages reads the packages for code. A missing file has none.
func ReadPackages(dir string) (catalog.Packages, error) {
	_, p, err := readPackages(filepath.Join(dir, catalog.PackagesFile))
	return p, err
}

func readPackages(path string) ([]byte, catalog.Packages, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, catalog.Packages{}, nil
	}
	if err != nil {
		return nil, catalog.Packages{}, err
	}
	p, problems := catalog.ParsePackages(text)
	if len(problems) > 0 {
		return nil, p, &InvalidError{problems}
	}
	return text, p, nil
}

// ChangePackages replaces the list of the packages for code by the result of change, and keeps the rest of the file.
// The file gets the registry and the index of sources if it names no others, and always the hosts of sources. Only one
// process changes the folder at a time.
func ChangePackages(dir string, sources catalog.Packages, change func(pins []string) ([]string, error)) error {
	done, err := lockFolder(dir)
	if err != nil {
		return err
	}
	defer done()
	path := filepath.Join(dir, catalog.PackagesFile)
	text, p, err := readPackages(path)
	if err != nil {
		return err
	}
	isNew := text == nil
	pins, err := change(p.Pins)
	if err != nil {
		return err
	}
	text, err = jsonfile.SetValue(text, pins, "packages")
	if registry := cmp.Or(p.Registry, sources.Registry); err == nil && registry != "" {
		text, err = jsonfile.SetValue(text, registry, "registry")
	}
	if index := cmp.Or(p.Index, sources.Index); err == nil && index != "" {
		text, err = jsonfile.SetValue(text, index, "index")
	}
	hosts := slices.Compact(slices.Sorted(slices.Values(slices.Concat(p.IndexHosts, sources.IndexHosts))))
	if err == nil && len(hosts) > 0 {
		text, err = jsonfile.SetValue(text, hosts, "index_hosts")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if _, problems := catalog.ParsePackages(text); len(problems) > 0 {
		return &InvalidError{problems}
	}
	if isNew { // readable for all, because it holds no credential
		return errors.Join(atomicfile.Write(path, text, 0o644), giveToOwner(dir, path))
	}
	return replaceFile(path, text)
}

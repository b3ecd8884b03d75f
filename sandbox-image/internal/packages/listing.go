package packages

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// listingName is the name of Deno's file with all versions of a package, beside the folders of the versions.
const listingName = "registry.json"

// dropListings removes the lists of versions from a draft of npm. The lock file has all that Deno needs. With a list,
// Deno would resolve the import of another version, find that the lock file lacks it, and then refuse every import of
// the run.
func dropListings(draft string) error {
	data, err := os.ReadFile(filepath.Join(draft, npmLock))
	if err != nil {
		return err
	}
	pins, err := readDenoPins(data)
	if err != nil {
		return err
	}
	var versions []string
	for pin := range pins {
		at := strings.LastIndexByte(pin, '@')
		versions = append(versions, "/"+pin[:at]+"/"+pin[at+1:])
	}
	return filepath.WalkDir(filepath.Join(draft, npmName), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		// A package may have a file of this name, too.
		for _, version := range versions {
			// Deno names further copies of a version 1.2.3_1.
			if d.IsDir() && (strings.HasSuffix(path, version) || strings.Contains(path, version+"_")) {
				return fs.SkipDir
			}
		}
		if d.Type().IsRegular() && d.Name() == listingName {
			return os.Remove(path) //nolint:gosec // no slot can write the draft, and it has no links
		}
		return nil
	})
}

package hostfolder

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
	"github.com/codeforge-mcp/codeforge/internal/convert"
)

const (
	composeFile = "docker-compose.yml"
	// OverrideFile is the file that Compose reads in addition to docker-compose.yml.
	OverrideFile = "docker-compose.override.yml"
	mark         = "# Written by codeforge folder, which replaces this file."
)

// ForeignError means that the override file is the user's, so it was not changed.
type ForeignError struct {
	Path string
	// Volumes are the lines that the user can add to the service sandbox.
	Volumes string
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("%s is not from codeforge, so it stays unchanged. For Docker, put these volumes into it:\n%s",
		e.Path, e.Volumes)
}

// WriteOverride writes the override file for the folders beside docker-compose.yml in a directory. Without folders it
// removes the file. Without docker-compose.yml it does nothing.
func WriteOverride(dir string, list []Folder) error {
	if _, err := os.Stat(filepath.Join(dir, composeFile)); err != nil {
		return nil //nolint:nilerr // this CodeForge does not run in Docker
	}
	path := filepath.Join(dir, OverrideFile)
	old, err := os.ReadFile(path)
	missing := errors.Is(err, fs.ErrNotExist)
	volumes := "services:\n  sandbox:\n    volumes:\n" + strings.Join(convert.Each(list, volumeLine), "")
	switch {
	case err != nil && !missing:
		return err
	case !missing && !bytes.HasPrefix(old, []byte(mark)):
		return &ForeignError{path, volumes}
	case len(list) == 0 && missing:
		return nil
	case len(list) == 0:
		return os.Remove(path)
	}
	return atomicfile.Write(path, []byte(mark+"\n"+volumes), 0o644)
}

// volumeLine returns a folder as a volume of the sandbox. Compose replaces $NAME, also in quotes. The engine would
// create a missing folder as root.
func volumeLine(f Folder) string {
	text := func(s string) string { return strings.ReplaceAll(fmt.Sprintf("%q", s), "$", "$$") }
	return fmt.Sprintf("      - {type: bind, source: %s, target: %s, read_only: %t, bind: {create_host_path: false}}\n",
		text(f.Path), text("/folders/"+f.Name), !f.Write)
}

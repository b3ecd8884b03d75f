package jail

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/confine"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/seccomp"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

const (
	// FilesDir is the folder in which code and MCP servers find the folders of the host, and code the files of its run. It
	// is a link: the container's slots share one view of the file system, and a run's files come after the sandbox.
	FilesDir = "/files"
	// InputDir is the folder beside the code to which FilesDir leads.
	InputDir = "files"
	// foldersDir is the folder in which a sandbox has the mounts of its host folders. The container has the mounts of all.
	foldersDir = "/folders"
)

// Folder is a folder of the host that code and MCP servers may see.
type Folder struct {
	sandboxapi.Folder
	// Source is the folder's path as sandboxd sees it.
	Source string
}

// ListFolders lists the folders in a directory, in the order of their names. A folder on a read-only mount is
// read-only. A missing directory has no folders.
func ListFolders(dir string) ([]Folder, error) {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the folders of the host: %w", err)
	}
	var list []Folder
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		var fs unix.Statfs_t
		if err := unix.Statfs(at, &fs); err != nil {
			return nil, fmt.Errorf("the folder %s of the host: %w", e.Name(), err)
		}
		write := fs.Flags&unix.ST_RDONLY == 0
		list = append(list, Folder{sandboxapi.Folder{Name: e.Name(), Write: write}, at})
	}
	return list, nil
}

// kind returns how a sandbox mounts the folder. The mount of the host is also read-only, without devices and programs.
func (f Folder) kind() confine.Kind {
	if f.Write {
		return confine.Writable
	}
	return confine.ReadOnly
}

// inside returns the folder's path in a sandbox.
func (f Folder) inside() string { return path.Join(foldersDir, f.Name) }

// FolderNames returns the names of folders in one text, which identifies the list.
func FolderNames(list []Folder) string {
	return strings.Join(convert.Each(list, func(f Folder) string { return f.Name }), ",")
}

// filterOptions returns the options of the seccomp filter for a program that sees these folders.
func (l Limits) filterOptions(list []Folder) seccomp.Options {
	canWrite := slices.ContainsFunc(list, func(f Folder) bool { return f.Write })
	return seccomp.Options{Processes: l.Forks, HostFolder: canWrite}
}

func listInsidePaths(list []Folder) []string { return convert.Each(list, Folder.inside) }

// linkFolders makes the folder to which FilesDir leads, below dir, with a link to each host folder.
func linkFolders(dir string, list []Folder, makeDir func(path string) error) error {
	if len(list) == 0 {
		return nil
	}
	at := filepath.Join(dir, InputDir)
	if err := makeDir(at); err != nil {
		return err
	}
	for _, f := range list {
		if err := os.Symlink(f.inside(), filepath.Join(at, f.Name)); err != nil {
			return err
		}
	}
	return nil
}

// denoFolders returns the paths for Deno's permissions to read and to write below FilesDir. Deno checks a path as code
// writes it, and again without links. dir is the code directory as Deno sees it.
func denoFolders(dir string, list []Folder) (read, write string) {
	read = "," + FilesDir + "," + dir + "/" + InputDir
	for _, f := range list {
		read += "," + f.inside()
		if f.Write {
			write += "," + FilesDir + "/" + f.Name + "," + f.inside()
		}
	}
	return read, write
}

// folderEntries returns the entries of the folders in an interpreter's root.
func folderEntries(list []Folder) []confine.StageEntry {
	return convert.Each(list, func(f Folder) confine.StageEntry {
		return confine.StageEntry{Kind: f.kind(), Path: f.inside(), Source: f.Source}
	})
}

// folderSource names the source of a folder's bind mount for servers.
func folderSource(name string) string { return path.Join("folders", name) }

// bindFolders returns the options that mount the folders in a server's sandbox.
func bindFolders(list []Folder) []string {
	if len(list) == 0 {
		return nil
	}
	a := []string{"--symlink", foldersDir, FilesDir}
	for _, f := range list {
		how := "--ro-bind"
		if f.Write {
			how = "--bind"
		}
		a = append(a, bindArgs(how, folderSource(f.Name), f.inside())...)
	}
	return a
}

// ChooseFolders returns the folders with these names. The name sandboxapi.AllFolders stands for all.
func ChooseFolders(list []Folder, names []string) []Folder {
	//defence:folder-choice permits
	if slices.Contains(names, sandboxapi.AllFolders) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(f Folder) bool { return !slices.Contains(names, f.Name) })
}

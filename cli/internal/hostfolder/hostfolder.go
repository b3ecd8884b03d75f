// Package hostfolder reads and writes folders.json: the folders of this machine that code and MCP servers may see.
//
// Threat: a folder that shows code a credential, or lets code change a program or the settings of CodeForge. The path
// in folders.json can also have become a link. Contract: List returns only folders that CheckFolder accepts, by paths
// without links.
package hostfolder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/catalog/strictjson"
	"github.com/codeforge-mcp/codeforge/cli/internal/jsonfile"
	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
	"github.com/codeforge-mcp/codeforge/internal/jsonread"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/internal/settings"
)

// Folder is a folder of folders.json.
type Folder struct {
	Name string `json:"name"`
	// Path is absolute.
	Path  string `json:"path"`
	Write bool   `json:"write"`
}

const (
	fileName   = "folders.json"
	example    = `{"folders": {"reports": {"path": "/home/me/reports"}}}`
	maxFolders = 32
)

// FilePath returns the path of folders.json for a folder of APIs.
func FilePath(apis string) string { return filepath.Join(filepath.Dir(filepath.Clean(apis)), fileName) }

// CheckName returns an error if no folder can have the name.
func CheckName(name string) error {
	if mcpserver.IsFolderName(name) {
		return nil
	}
	return fmt.Errorf("%q is not a name for a folder; want %s", name, mcpserver.FolderNames)
}

// Parse reads folders.json. It reports every mistake. After any mistake the list is nil.
func Parse(data []byte) ([]Folder, strictjson.Problems) {
	d := &strictjson.Decoder{File: fileName}
	root := d.ReadRoot(data, example)
	if root == nil {
		return nil, d.Problems
	}
	var list []Folder
	has, misspelt := d.ReadObject("", root, []string{"folders"}, func(_ int, _ string, n *jsonread.Node) {
		list = readFolders(d, n)
	})
	if !has["folders"] && !misspelt["folders"] {
		d.AddError("folders", "missing", "an object, e.g. "+example)
	}
	if d.Count > 0 {
		return nil, d.Problems
	}
	return list, nil
}

func readFolders(d *strictjson.Decoder, n *jsonread.Node) []Folder {
	if n.Kind != jsonread.Object || len(n.Members) > maxFolders {
		d.AddError("folders", n.Kind.String(), fmt.Sprintf("an object with at most %d folders, e.g. %s", maxFolders, example))
		return nil
	}
	var list []Folder
	for _, m := range d.ReadMembers("folders.", n, mcpserver.IsFolderName) {
		at := "folders." + strictjson.QuoteKey(m.Key)
		if CheckName(m.Key) != nil {
			d.AddError(fmt.Sprintf("%s (line %d)", at, m.Node.Line), "not a name for a folder", mcpserver.FolderNames)
			continue
		}
		if m.Node.Kind != jsonread.Object {
			d.AddError(fmt.Sprintf("%s (line %d)", at, m.Node.Line), m.Node.Kind.String(), `an object with "path"`)
			continue
		}
		f := Folder{Name: m.Key}
		known := []string{"path", "write"}
		has, misspelt := d.ReadObject(at+".", m.Node, known, func(i int, field string, n *jsonread.Node) {
			if i == 1 {
				d.ReadBool(field, n, &f.Write)
				return
			}
			d.ReadString(field, n, &f.Path)
			if n.Kind == jsonread.String && (!filepath.IsAbs(f.Path) || filepath.Clean(f.Path) != f.Path) {
				d.AddError(fmt.Sprintf("%s (line %d)", field, n.Line), "not an absolute path without . and ..",
					"the path that codeforge folder add writes")
			}
		})
		if !has["path"] && !misspelt["path"] {
			d.AddError(at+".path", "missing", `an absolute path, e.g. "/home/me/reports"`)
		}
		list = append(list, f)
	}
	return list
}

// ReadFile returns the folders of folders.json. A missing file has no folders.
func ReadFile(path string) ([]Folder, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list, problems := Parse(data)
	if len(problems) > 0 {
		return nil, errors.New(problems.String())
	}
	return list, nil
}

// writeFile writes folders.json. Without folders it removes the file.
func writeFile(path string, list []Folder) error {
	if len(list) == 0 {
		err := os.Remove(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	text := []byte("{}\n")
	for _, f := range list {
		value := map[string]any{"path": f.Path}
		if f.Write {
			value["write"] = true
		}
		var err error
		if text, err = jsonfile.SetValue(text, value, "folders", f.Name); err != nil {
			return err
		}
	}
	return atomicfile.Write(path, text, 0o600)
}

// List returns the folders of folders.json that code may see now, and why it may not see the others. own are the paths
// of CodeForge itself, see CheckFolder.
func List(path string, own []string) (list []Folder, refused []error) {
	all, err := ReadFile(path)
	if err != nil {
		return nil, []error{err}
	}
	keep := func(from []Folder, check func(Folder) error) (kept []Folder) {
		for _, f := range from {
			if err := check(f); err != nil {
				refused = append(refused, fmt.Errorf("the folder %s is not available to code: %w", f.Name, err))
				continue
			}
			kept = append(kept, f)
		}
		return kept
	}
	list = keep(all, func(f Folder) error { return CheckFolder(f.Path, append([]string{path}, own...)) })
	list = keep(list, func(f Folder) error { return checkNesting(f, list) })
	return list, refused
}

// Add adds a folder to folders.json, or replaces the folder with the same name. It resolves links in the folder's path.
func Add(path string, f Folder, own []string) (Folder, error) {
	if err := CheckName(f.Name); err != nil {
		return f, err
	}
	abs, err := filepath.Abs(f.Path)
	if err == nil {
		f.Path, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return f, err
	}
	if err := CheckFolder(f.Path, append([]string{path}, own...)); err != nil {
		return f, err
	}
	all, err := ReadFile(path)
	if err != nil {
		return f, err
	}
	all = slices.DeleteFunc(all, func(old Folder) bool { return old.Name == f.Name })
	if err := checkNesting(f, all); err != nil {
		return f, err
	}
	if len(all) == maxFolders {
		return f, fmt.Errorf("there are %d folders already, the most that is allowed", maxFolders)
	}
	return f, writeFile(path, append(all, f))
}

// Remove removes a folder from folders.json.
func Remove(path, name string) error {
	all, err := ReadFile(path)
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(all), func(f Folder) bool { return f.Name == name })
	if len(left) == len(all) {
		return fmt.Errorf("there is no folder %q", name)
	}
	return writeFile(path, left)
}

// checkNesting refuses a folder inside another one if code may write to either. Code could replace a folder inside a
// writable one by a link, and the next start would show the target.
func checkNesting(f Folder, all []Folder) error {
	for _, other := range all {
		if other.Name == f.Name || !f.Write && !other.Write {
			continue
		}
		if isWithin(f.Path, other.Path) || isWithin(other.Path, f.Path) {
			return fmt.Errorf("%s overlaps with the folder %s, and one of the two is writable", f.Path, other.Name)
		}
	}
	return nil
}

// system are folders of the system. Code must not see a folder that contains one or lies in one.
var system = []string{
	"/proc", "/sys", "/dev", "/etc", "/run", "/var/run", "/boot", "/usr", "/bin", "/sbin", "/lib", "/lib64",
	"/var/lib/docker", "/var/lib/containerd", "/var/lib/containers", "/var/lib/kubelet", "/var/spool",
	"/System", "/Library", "/private/etc", "/private/var/run",
}

// keys are names of files and folders with credentials. Code must not see a folder that has one at its top.
var keys = []string{
	".ssh", ".aws", ".gnupg", ".kube", ".docker", ".azure", ".config", ".env", ".netrc", "_netrc", ".npmrc", ".pypirc",
	".pgpass", ".my.cnf", ".git-credentials", ".vault-token", ".password-store", ".mozilla", "id_rsa", "id_ecdsa",
	"id_ed25519", "docker.sock", "podman.sock", "containerd.sock", "Keychains",
}

// keyVariables are variables of the environment that name a file with keys, or a socket.
var keyVariables = []string{
	"SSH_AUTH_SOCK", "KUBECONFIG", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "GOOGLE_APPLICATION_CREDENTIALS",
	"CLOUDSDK_CONFIG", "AZURE_CONFIG_DIR", "DOCKER_CONFIG", "DOCKER_SOCK", "GNUPGHOME", "NETRC", "NPM_CONFIG_USERCONFIG",
}

// OwnPaths lists the files and folders of CodeForge, and those that the environment, the settings and the files of APIs
// name.
func OwnPaths(getenv func(string) string, apis, state, programs string) []string {
	list := []string{
		apis, state, programs, filepath.Join(filepath.Dir(apis), ".env"), filepath.Join(filepath.Dir(state), ".env"),
		strings.TrimPrefix(getenv("DOCKER_HOST"), "unix://"),
	}
	for _, name := range keyVariables {
		list = append(list, getenv(name))
	}
	for _, name := range settings.ListNames() {
		if strings.HasSuffix(name, "_FILE") {
			list = append(list, getenv(name))
		}
	}
	list = append(list, listCredentialFiles(apis)...)
	return slices.DeleteFunc(list, func(path string) bool { return !filepath.IsAbs(path) })
}

// listCredentialFiles lists the files that the config.json files of a folder of APIs name.
func listCredentialFiles(apis string) (files []string) {
	var collect func(key string, value any)
	collect = func(key string, value any) {
		switch v := value.(type) {
		case string:
			if key == "file" || key == "cert" {
				files = append(files, v)
			}
		case map[string]any:
			for k, inner := range v {
				collect(k, inner)
			}
		case []any:
			for _, inner := range v {
				collect(key, inner)
			}
		}
	}
	found, _ := filepath.Glob(filepath.Join(apis, "*", "config.json")) // the pattern is valid
	for _, path := range found {
		var root any
		// A file that cannot be read or has mistakes is not loaded by the proxy either.
		if data, err := os.ReadFile(path); err == nil && json.Unmarshal(data, &root) == nil {
			collect("", root)
		}
	}
	return files
}

// CheckFolder returns the reason why code must not see a folder, or nil. own are further files and folders that the
// folder must neither contain nor be in. path is absolute.
func CheckFolder(path string, own []string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	//defence:folder-links
	if real != path {
		return fmt.Errorf("%s leads to %s through a link; add the folder again if you want that", path, real)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", path)
	case !utf8.ValidString(path) || strings.ContainsFunc(path, unicode.IsControl):
		return fmt.Errorf("%q has a control character, or is not UTF-8", path)
	}
	//defence:folder-check instead nil
	return checkPlace(path, own)
}

func checkPlace(path string, own []string) error {
	for _, at := range slices.Concat(system, own) {
		switch {
		case isWithin(path, at):
			return fmt.Errorf("%s lies in %s, which code must not see", path, at)
		case isWithin(at, path):
			return fmt.Errorf("%s contains %s; want a folder below it", path, at)
		}
	}
	for _, at := range listHomes() {
		if isWithin(at, path) {
			return fmt.Errorf("%s contains %s, where programs keep keys; want a folder below it", path, at)
		}
	}
	for part := range strings.SplitSeq(path, string(filepath.Separator)) {
		if strings.HasPrefix(part, ".") {
			return fmt.Errorf("%s lies in the hidden folder %s, where programs keep keys and settings", path, part)
		}
	}
	for _, name := range keys {
		if _, err := os.Lstat(filepath.Join(path, name)); err == nil {
			return fmt.Errorf("%s has %s, which may hold keys; want a folder without it", path, name)
		}
	}
	return nil
}

// listHomes lists the homes of this machine, and folders in which everybody writes.
func listHomes() []string {
	list := []string{"/root", "/tmp", "/var/tmp", "/home", "/Users"}
	if home, err := os.UserHomeDir(); err == nil {
		list = append(list, home)
	}
	for _, all := range []string{"/home/*", "/Users/*"} {
		found, _ := filepath.Glob(all) // the pattern is valid
		list = append(list, found...)
	}
	return list
}

// isWithin reports whether path is parent or lies in it. It compares the folders themselves, because a file system can
// ignore the case of names, and a folder can be mounted in several places.
func isWithin(path, parent string) bool {
	want, err := os.Stat(parent)
	if err != nil {
		return false
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	for ; ; path = filepath.Dir(path) {
		if info, err := os.Stat(path); err == nil && os.SameFile(info, want) {
			return true
		}
		if path == filepath.Dir(path) {
			return false
		}
	}
}

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
)

// homeVariable names the folder with apis/, .env and the state directory.
const homeVariable = "CODEFORGE_HOME"

// defaultHomeName is the name of the home folder in the user's home directory that up creates if no other is found.
const defaultHomeName = "codeforge"

// findHome returns the folder whose apis/, .env and .codeforge the commands use: CODEFORGE_HOME, else the nearest home
// from cwd upwards, else ~/codeforge if it is a home, else cwd. Beyond cwd only the user's own folders count, because
// settings name programs to run. A folder of another user, for example in /tmp, must not choose them.
func findHome(e *Env, cwd string) (string, error) {
	if dir := e.Getenv(homeVariable); dir != "" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return "", fmt.Errorf("%s: %q is not a folder; want the one with apis/ and .env", homeVariable, dir)
		}
		return filepath.Abs(dir)
	}
	// The user has entered this folder, so its owner does not matter here.
	if isHome(cwd) {
		return cwd, nil
	}
	for dir := filepath.Dir(cwd); ; dir = filepath.Dir(dir) {
		if isHome(dir) && isOwnFolder(e, dir) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	if dir := e.defaultHomePath(); dir != "" && isHome(dir) && isOwnFolder(e, dir) {
		return dir, nil
	}
	return cwd, nil
}

// defaultHomePath returns the path of ~/codeforge, or "" if the user has no home directory.
func (e *Env) defaultHomePath() string {
	user := cmp.Or(e.Getenv("HOME"), e.Getenv("USERPROFILE"))
	if user == "" {
		return ""
	}
	return filepath.Join(user, defaultHomeName)
}

// createDefaultHome creates ~/codeforge and makes it the home folder, if neither the working directory nor a setting
// says where APIs and settings are.
func (e *Env) createDefaultHome() error {
	home := e.defaultHomePath()
	if home == "" || e.home != "" || e.Getenv(homeVariable) != "" || e.Getenv(apisVariable) != "" {
		return nil
	}
	for _, name := range []string{"apis", dotenvFile, statedir.Default} {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	made, _, err := writeHome(e, home)
	if err != nil {
		return fmt.Errorf("creating %s: %w", home, err)
	}
	if len(made) > 0 {
		fmt.Fprintf(e.Stderr, "%s is new: your APIs go to %s, settings to %s\n", home,
			filepath.Join(home, "apis"), filepath.Join(home, dotenvFile))
	}
	return e.setHome()
}

// isHome reports whether a folder has a state directory, or apis/ with an API or an example.
func isHome(dir string) bool {
	if _, err := os.Lstat(filepath.Join(dir, statedir.Default, "lock")); err == nil {
		return true
	}
	for _, name := range []string{"config.json", "config.json.example"} {
		if found, err := filepath.Glob(filepath.Join(dir, "apis", "*", name)); err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}

// setHome finds the home folder.
func (e *Env) setHome() error {
	cwd, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("the working directory: %w", err)
	}
	home, err := findHome(e, cwd)
	if err != nil {
		return err
	}
	if path := findForeignFile(e, home, dotenvFile, "apis", statedir.Default); path != "" {
		return fmt.Errorf("%s belongs to another user, in a folder that everybody can write to; want a folder of your own, "+
			"because settings name programs to run", path)
	}
	// Messages then show paths relative to the working directory.
	if home != cwd {
		e.home = home
	}
	return nil
}

// findState returns the state directory at path. It rejects another user's directory if this user can look into it,
// because CodeForge never makes such directories. A planted directory would choose where code is sent and which process
// down ends. Root may name one with --state (chosen).
func findState(e *Env, path string, chosen bool) (statedir.Dir, error) {
	dir, err := statedir.FindDir(path)
	if err == nil && isPlanted(e, dir.Path(), chosen) {
		err = fmt.Errorf("the state directory %s belongs to another user: go to a folder of your own, or set %s; root may "+
			"name it with --state", dir.Path(), homeVariable)
	}
	return dir, err
}

// inHome returns a path below the home folder. It is relative if the home folder is the working directory.
func (e *Env) inHome(name string) string { return filepath.Join(e.home, name) }

// apisVariable names the folder of APIs. Compose mounts this folder too.
const apisVariable = "CODEFORGE_APIS"

// findAPIs returns the folder of APIs that CodeForge uses: CODEFORGE_APIS of the environment or .env, else apis/. Like
// Compose, it reads a relative path from the home folder.
func (e *Env) findAPIs() (string, error) {
	v, err := readVariables(e)
	dir := cmp.Or(v.getenv(apisVariable), "apis")
	if !filepath.IsAbs(dir) {
		dir = e.inHome(dir)
	}
	return dir, err
}

func (e *Env) homeDir() string { return cmp.Or(e.home, ".") }

// isInContainer reports whether this program runs in mcp-server's container, in Docker or in a pod.
func (e *Env) isInContainer() bool { return e.Getenv("CODEFORGE_CONTAINER") != "" }

// errContainer is the error of up and down in a container.
var errContainer = errors.New("this is a container of CodeForge, which is stopped from the host, with " +
	"docker compose down")

// requireAPIFolder returns an error in the container if a command of api, mcp or package needs apis/, which the
// container lacks.
func (e *Env) requireAPIFolder(c *cobra.Command, args []string) error {
	path := commandPath(c)
	group, verb, _ := strings.Cut(path, " ")
	without := map[string][]string{"api": {"list", "check", "test", "search"}, "mcp": {"logs"}, "package": {}}[group]
	if !e.isInContainer() || verb == "" || without == nil || slices.Contains(without, verb) {
		return nil
	}
	return fmt.Errorf("%s needs apis/, which is on the host and which this container does not see: run "+
		"codeforge %s there (make cli builds bin/codeforge), or edit apis/NAME/config.json. A running CodeForge "+
		"loads the change by itself", path, strings.Join(append([]string{path}, args...), " "))
}

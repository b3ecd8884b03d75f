package jail

import (
	"encoding/json"
	"path"
	"strings"

	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/confine"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// CodePackages are the installed packages of one kind that code of one language may import. The zero value has none.
type CodePackages struct {
	// Set is the result of sandboxapi.PackageSet.
	Set string
	// Registry is the registry of the installation. Deno names the folder of packages of npm after it.
	Registry string

	dir string // the folder of the packages as the interpreter sees it
}

// withDir returns the packages in a folder of an interpreter.
func (p CodePackages) withDir(dir string) CodePackages {
	p.dir = dir
	return p
}

// packagesPath is the folder of the packages inside a bubblewrap sandbox: see sandboxapi.PackageDir.
const packagesPath = "/packages"

// options returns Deno's options for packages: no request to a registry, and other versions than those of the lock file
// are errors. Without --quiet, each run would show the scripts that did not run.
func (p CodePackages) options() []string {
	if p.Set == "" {
		return []string{"--no-npm", "--no-lock"}
	}
	return []string{"--quiet", "--cached-only", "--frozen", "--lock=" + p.dir + "/deno.lock"}
}

// addToEnviron adds the registry to an interpreter's environment.
func (p CodePackages) addToEnviron(env []string) []string {
	if p.Set == "" {
		return env
	}
	return append(env, "NPM_CONFIG_REGISTRY="+p.Registry)
}

// imports returns the entries of Deno's import map, each with a comma before it. They lead from a package's name
// without npm: to the package. Deno resolves a name with npm: by its lock file.
func (p CodePackages) imports() string {
	if p.Set == "" {
		return ""
	}
	entries := map[string]string{}
	for pin := range strings.SplitSeq(p.Set, " ") {
		pin = strings.TrimPrefix(pin, "npm:")
		name := pin[:strings.LastIndexByte(pin, '@')]
		// Deno wants a slash before a name to which a path is added.
		entries[name], entries[name+"/"] = "npm:"+pin, "npm:/"+pin+"/"
	}
	text, _ := json.Marshal(entries) // strings only
	return "," + strings.Trim(string(text), "{}")
}

// packagesSource is the source of the packages' folder for interpreters.
func (s Servers) packagesSource(python bool) []confine.StageEntry {
	if s.Slots == 0 {
		return nil
	}
	kind := confine.Data
	if python { // it loads libraries of packages, which the kernel refuses from a mount without programs
		kind = confine.ReadOnly
	}
	return []confine.StageEntry{
		{Kind: confine.Folder, Path: path.Join(rootDir, packagesPath)}, source(packagesKind(kind), stagePackages, s.Packages),
	}
}

// packagesKind returns the kind of mount for the packages of all runs.
func packagesKind(kind confine.Kind) confine.Kind {
	//defence:code-packages instead confine.Writable
	return kind
}

// bindForDeno mounts the packages, and lets Deno find them in its own folder.
func (p CodePackages) bindForDeno() []string {
	if p.Set == "" {
		return nil
	}
	return append(p.bindForPython(), "--symlink", p.dir+"/npm", denoDir+"/npm")
}

// pythonFolder returns the folder in which Python finds the packages, or "".
func (p CodePackages) pythonFolder() string {
	if p.Set == "" {
		return ""
	}
	return p.dir + "/" + sandboxapi.PythonDir
}

// bindForPython mounts the packages for Python.
func (p CodePackages) bindForPython() []string {
	if p.Set == "" {
		return nil
	}
	return bindArgs("--bind", path.Join(stagePackages, sandboxapi.PackageKey(p.Set)), p.dir)
}

package jail

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/confine"
)

// Python has no permission system: it reads every file that the kernel lets it open.

// Paths of Python inside a bubblewrap sandbox. Python finds its library by the program's path.
const (
	pythonPath     = "/usr/bin/python3"
	environmentDir = "/usr/lib/codeforge-packages"
	zoneDir        = "/usr/share/zoneinfo"
	localeDir      = "/usr/lib/locale/C.utf8" // of LANG
)

// SystemCA is the file with the authorities of programs that ignore SSL_CERT_FILE. In a sandbox with Python it leads to
// the proxy's authority.
const SystemCA = "/etc/ssl/certs/ca-certificates.crt"

// hiddenInLibrary are package folders that some distributions keep inside the standard library.
var hiddenInLibrary = [...]string{"site-packages", "dist-packages"}

// wheelLibraries are libraries that a wheel may expect on every machine (PEP 600), besides those that Python needs.
var wheelLibraries = [...]string{
	"libstdc++.so.6", "libgcc_s.so.1", "libz.so.1", "libexpat.so.1", "libm.so.6", "libdl.so.2", "libpthread.so.0",
	"librt.so.1", "libutil.so.1",
}

// pythonArgs returns the interpreter's arguments. -s ignores the user's packages in /tmp, and -B writes no byte code.
// -u disables buffers, so that output printed before a crash is kept, including a partial line. dir is the code
// directory as the interpreter sees it.
func pythonArgs(dir string) []string {
	return []string{"-s", "-B", "-u", "-X", "utf8", dir + "/" + PythonMain}
}

// pythonEnviron returns the interpreter's whole environment; sitecustomize.py removes the variables that it alone
// needs. With NETRC unset, requests and aiohttp would send a login that another run left in /tmp/.netrc, instead of the
// run's Authorization header. packages are the folders in which Python looks after its standard library.
func pythonEnviron(dir, ca, tz string, packages ...string) []string {
	tz = cmp.Or(tz, "UTC")
	env := []string{
		"NO_COLOR=1", "TZ=" + tz, "LANG=C.UTF-8", "HOME=" + TmpDir, "PYTHONPATH=" + dir,
		"NETRC=/dev/null",
	}
	env = append(env, pythonAuthorities(ca)...)
	packages = slices.DeleteFunc(packages, func(folder string) bool { return folder == "" })
	if len(packages) > 0 {
		env = append(env, "CODEFORGE_PACKAGES="+strings.Join(packages, ":"))
	}
	return env
}

// pythonAuthorities returns the variables from which Python's TLS libraries read the path of their authorities. The
// last three are for httplib2, gRPC and AWS's botocore.
func pythonAuthorities(ca string) []string {
	return []string{
		"SSL_CERT_FILE=" + ca, "REQUESTS_CA_BUNDLE=" + ca, "HTTPLIB2_CA_CERTS=" + ca,
		"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=" + ca, "AWS_CA_BUNDLE=" + ca,
	}
}

// pythonFiles holds the host files for Python in a bubblewrap sandbox.
type pythonFiles struct {
	entries []confine.StageEntry // as the sandbox sees them
	inside  string               // the folder of packages as the sandbox sees it
}

// errNoPython means that the jail was made without Python.
var errNoPython = errors.New("there is no Python here")

// PreparePython implements Jail.
func (e *Embedded) PreparePython() error {
	_, err := e.stageOf(stageKind{python: true}, nil)
	return err
}

// PreparePython implements Jail.
func (c *Container) PreparePython() error {
	if c.cfg.Python == nil {
		return errNoPython
	}
	return nil
}

// findPythonFiles collects the host files for Python. It takes a while and runs on the first use of Python.
func (e *Embedded) findPythonFiles() (f pythonFiles, err error) {
	p := e.cfg.Python
	if p == nil {
		return f, errNoPython
	}
	l := libraryFinder{own: filepath.Join(p.Prefix, "lib")}
	// Below /usr and / the default search paths already find the libraries.
	if p.Prefix == "/usr" || p.Prefix == "/" {
		l.own = ""
	}
	if err := l.interpreter(p.Program, pythonPath); err != nil {
		return f, err
	}
	for _, dir := range []string{filepath.Join(p.Library, "lib-dynload"), p.Environment} {
		if err := l.addModules(dir); err != nil {
			return f, err
		}
	}
	if err := l.addWithDependencies(wheelLibraries[:], true); err != nil {
		return f, err
	}
	rel, err := filepath.Rel(p.Prefix, p.Library)
	if err != nil {
		return f, err
	}
	library := path.Join("/usr", rel)
	add := func(kind confine.Kind, at, source string) {
		f.entries = append(f.entries, confine.StageEntry{Kind: kind, Path: at, Source: source})
	}
	add(confine.ReadOnly, library, p.Library)
	for _, name := range hiddenInLibrary {
		if _, err := os.Stat(filepath.Join(p.Library, name)); err == nil {
			add(confine.Hidden, path.Join(library, name), "")
		}
	}
	if p.Environment != "" {
		f.inside = environmentDir
		add(confine.ReadOnly, environmentDir, p.Environment)
	}
	for _, dir := range []string{zoneDir, localeDir} {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			add(confine.ReadOnly, dir, dir)
		}
	}
	add(confine.Link, SystemCA, caPath)
	f.entries = append(f.entries, l.files...)
	return f, nil
}

// addModules adds the libraries of all extension modules below a folder.
func (l *libraryFinder) addModules(dir string) error {
	if dir == "" {
		return nil
	}
	return filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		name := filepath.Base(at)
		switch {
		case err != nil, d.IsDir(), !strings.Contains(name, ".so"):
			return nil //nolint:nilerr // what cannot be read cannot be loaded either
		case strings.HasPrefix(name, "_tkinter"), strings.HasPrefix(name, "_test"):
			return nil // the first needs a display, the second is for Python's own tests
		}
		return l.addModule(at)
	})
}

// pythonArgv returns bubblewrap's command line for Python, as bwrapPlan.commandLine does for Deno.
func (p bwrapPlan) pythonArgv(f pythonFiles) []string {
	environ := pythonEnviron(CodeDir, caPath, p.tz, p.packages.pythonFolder(), f.inside)
	a := append(p.commandPrefix(p.bait.addToEnviron(environ, CodeDir)), p.files()...)
	a = append(append(a, p.packages.bindForPython()...), "--chdir", TmpDir, "--", pythonPath)
	return append(a, pythonArgs(CodeDir)...)
}

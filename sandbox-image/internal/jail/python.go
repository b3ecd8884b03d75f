package jail

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/enter"
)

// Python has no permission system: it reads every file that the kernel lets it open.

// Paths of Python inside a bubblewrap sandbox. Python finds its library by the program's path.
const (
	pythonPath     = "/usr/bin/python3"
	environmentDir = "/usr/lib/codeforge-packages"
	zoneDir        = "/usr/share/zoneinfo"
	// systemCA is the default file of programs that ignore SSL_CERT_FILE.
	systemCA = "/etc/ssl/certs/ca-certificates.crt"
)

// Names of the staged sources of Python.
const (
	stagePython      = "python"
	stageLibrary     = "library"
	stageEnvironment = "environment"
	stageZones       = "zones"
)

// hiddenInLibrary are package folders that some distributions keep inside the standard library.
var hiddenInLibrary = [...]string{"site-packages", "dist-packages"}

// pythonArgs returns the interpreter's arguments. -s ignores the user's packages in /tmp, and -B writes no byte code.
// -u disables buffers, so that output printed before a crash is kept, including a partial line. dir is the code
// directory as the interpreter sees it.
func pythonArgs(dir string) []string {
	return []string{"-s", "-B", "-u", "-X", "utf8", dir + "/" + PythonMain}
}

// pythonEnviron returns the interpreter's whole environment; sitecustomize.py removes the variables that it alone
// needs. With NETRC unset, requests and aiohttp would send a login that another run left in /tmp/.netrc, instead of the
// run's Authorization header.
func pythonEnviron(dir, ca, packages, tz string) []string {
	if tz == "" {
		tz = "UTC"
	}
	env := []string{
		"NO_COLOR=1", "TZ=" + tz, "LANG=C.UTF-8", "HOME=" + TmpDir, "PYTHONPATH=" + dir,
		"SSL_CERT_FILE=" + ca, "REQUESTS_CA_BUNDLE=" + ca, "NETRC=/dev/null",
	}
	if packages != "" {
		env = append(env, "CODEFORGE_PACKAGES="+packages)
	}
	return env
}

// pythonFiles holds the host files for Python in a bubblewrap sandbox.
type pythonFiles struct {
	stage  *os.File
	argv   []string // the bind mounts
	inside string   // the folder of packages as the sandbox sees it
}

// errNoPython means that the jail was made without Python.
var errNoPython = errors.New("there is no Python here")

// PreparePython implements Jail.
func (e *Embedded) PreparePython() error {
	_, err := e.python()
	return err
}

// PreparePython implements Jail.
func (c *Container) PreparePython() error {
	if c.cfg.Python == nil {
		return errNoPython
	}
	return nil
}

// stagePythonFiles collects the host files for Python. It takes a while and runs on the first use of Python.
func (e *Embedded) stagePythonFiles() (*pythonFiles, error) {
	p := e.cfg.Python
	if p == nil {
		return nil, errNoPython
	}
	l := libraryFinder{own: filepath.Join(p.Prefix, "lib")}
	// Below /usr and / the default search paths already find the libraries.
	if p.Prefix == "/usr" || p.Prefix == "/" {
		l.own = ""
	}
	if err := l.addProgram(p.Program); err != nil {
		return nil, err
	}
	for _, dir := range []string{filepath.Join(p.Library, "lib-dynload"), p.Environment} {
		if err := l.addModules(dir); err != nil {
			return nil, err
		}
	}
	rel, err := filepath.Rel(p.Prefix, p.Library)
	if err != nil {
		return nil, err
	}
	library := path.Join("/usr", rel)
	f := &pythonFiles{argv: bindArgs("--ro-bind", stagePython, pythonPath)}
	// The host's own packages must not appear in the sandbox: an empty, read-only tmpfs hides them.
	f.argv = append(f.argv, bindArgs("--ro-bind", stageLibrary, library)...)
	for _, name := range hiddenInLibrary {
		if _, err := os.Stat(filepath.Join(p.Library, name)); err == nil {
			at := path.Join(library, name)
			f.argv = append(f.argv, "--perms", "0555", "--size", strconv.Itoa(os.Getpagesize()),
				"--tmpfs", at, "--remount-ro", at)
		}
	}
	binds := append(l.binds, enter.Bind{Name: stagePython, Source: p.Program},
		enter.Bind{Name: stageLibrary, Source: p.Library})
	if p.Environment != "" {
		f.inside = environmentDir
		f.argv = append(f.argv, bindArgs("--ro-bind", stageEnvironment, environmentDir)...)
		binds = append(binds, enter.Bind{Name: stageEnvironment, Source: p.Environment})
	}
	if info, err := os.Stat(zoneDir); err == nil && info.IsDir() {
		f.argv = append(f.argv, bindArgs("--ro-bind", stageZones, zoneDir)...)
		binds = append(binds, enter.Bind{Name: stageZones, Source: zoneDir})
	}
	for _, lib := range l.libs {
		f.argv = append(f.argv, bindArgs("--ro-bind", lib.name, lib.path)...)
	}
	f.stage, err = enter.NewStage(append(binds, e.runBinds()...))
	e.pythonStage = f.stage
	return f, err
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
func (p bwrapPlan) pythonArgv(f *pythonFiles) []string {
	a := p.bwrapBox.commandStart(p.bait.addToEnviron(pythonEnviron(CodeDir, caPath, f.inside, p.tz), CodeDir))
	a = append(a, f.argv...)
	a = append(a, p.mountCA(caPath)...)
	a = append(a, p.mountCA(systemCA)...)
	a = append(a, bindArgs("--ro-bind", path.Join(stageWork, resolvName), "/etc/resolv.conf")...)
	a = append(a, p.runFiles()...)
	a = append(a, kernelFiles(pythonPath)...)
	a = append(a, "--remount-ro", "/", "--chdir", TmpDir, "--", pythonPath)
	return append(a, pythonArgs(CodeDir)...)
}

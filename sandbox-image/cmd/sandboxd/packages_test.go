package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// codePackages are two packages that pinForCode installs as one set.
var codePackages = []string{"npm:probe@1.2.3", "npm:@scope/other@2.0.0-rc.1"}

// pinForCode seals codePackages as an installation leaves them, and puts them in force.
func pinForCode(t *testing.T, w *World) {
	t.Helper()
	npm := "npm/packages.example.com/"
	sealForCode(t, w, codePackages, map[string]string{
		"deno.lock": `{"version":"5","specifiers":{"npm:probe@*":"1.2.3","npm:probe@1":"1.2.3","npm:probe@1.2.3":"1.2.3",` +
			`"npm:@scope/other@2.0.0-rc.1":"2.0.0-rc.1"},"npm":{"probe@1.2.3":{"integrity":"sha512-AA=="},` +
			`"@scope/other@2.0.0-rc.1":{"integrity":"sha512-AA=="}}}`,
		npm + "probe/1.2.3/package.json": `{"name":"probe","version":"1.2.3","type":"module","exports":{".":"./index.js","./sub":"./sub.js"}}`,
		npm + "probe/1.2.3/index.js": `import os from "node:os"; import process from "node:process";
			export default [typeof process.env.NO_SUCH, typeof os.release(), os.hostname().length > 0].join();`,
		npm + "probe/1.2.3/sub.js":                   `export default "sub";`,
		npm + "@scope/other/2.0.0-rc.1/package.json": `{"name":"@scope/other","version":"2.0.0-rc.1","main":"main.cjs"}`,
		npm + "@scope/other/2.0.0-rc.1/main.cjs":     `module.exports = require("node:fs").readFileSync(__dirname + "/package.json", "utf8").length;`,
	})
	w.Packages = codePackages
	w.AllowHosts(t)
}

// sealForCode writes a set of packages with these files into the store.
func sealForCode(t *testing.T, w *World, list []string, files map[string]string) {
	t.Helper()
	above := filepath.Join(w.Dir, "packages")
	var st syscall.Stat_t
	testkit.Must(t, syscall.Stat(above, &st))
	set := sandboxapi.PackageSet(list)
	dir := filepath.Join(above, sandboxapi.PackageKey(set))
	files["registry"], files["package"] = "https://packages.example.com/", set
	for name, text := range files {
		path := filepath.Join(dir, name)
		testkit.Must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o444)))
	}
	testkit.Must(t, filepath.Walk(dir, func(path string, _ os.FileInfo, err error) error {
		return errors.Join(err, os.Lchown(path, int(st.Uid), int(st.Gid)))
	}))
}

// TestPythonPackages: code in Python imports the packages of PyPI after its standard library, and cannot change them.
// Code in TypeScript does not see them.
// Promise: first-installed-package
func TestPythonPackages(t *testing.T) {
	RunInModes(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 2, Warm: 1, Servers: 1, Python: true, Bridge: BuildPuppet(t)})
		const code = `import json, probe
from pathlib import Path
print(probe.name, json.dumps([1]), "CODEFORGE_PACKAGES" in __import__("os").environ)
try:
    Path(probe.__file__).write_text("x")
except OSError as e:
    print(type(e).__name__)
`
		if r := w.RunCode(t, code, testkit.Patience); r.Exit.Code == 0 || !strings.Contains(r.Stderr, "No module named 'probe'") {
			t.Errorf("without packages: %+v", r)
		}
		pins := []string{"pypi:other@2.0", "pypi:probe@1.0"}
		ran := `raise SystemExit("a package ran")`
		sealForCode(t, w, pins, map[string]string{
			"requirements.lock": "x", "python/probe/__init__.py": `name = "probe"`, "python/json.py": ran, "python/sitecustomize.py": ran,
			"python/usercustomize.py": ran, "python/x.pth": "import sys; sys.exit(3)", "python/encodings/idna.py": ran,
		})
		w.Packages = pins
		w.AllowHosts(t)
		for _, private := range []bool{false, true} {
			w.Private = private
			r := w.RunCode(t, code, testkit.Patience)
			if lines := strings.Split(r.Stdout, "\n"); len(lines) != 3 || lines[0] != "probe [1] False" || !strings.Contains(lines[1], "Error") {
				t.Errorf("private %v: %+v", private, r)
			}
		}
		w.Private, w.Language = false, sandboxapi.LanguageTypeScript
		if r := w.RunCode(t, `import "npm:probe";`, testkit.Patience); r.Exit.Code == 0 {
			t.Errorf("TypeScript: %+v", r)
		}
		w.Packages, w.Language = nil, sandboxapi.LanguagePython
		w.AllowHosts(t)
		if r := w.RunCode(t, code, testkit.Patience); r.Exit.Code == 0 {
			t.Errorf("after their removal: %+v", r)
		}
	})
}

// TestCodePackages: code imports the pinned packages by each spelling, and no other package. Without packages, nothing
// of the permission set changes.
// Promise: first-installed-package
func TestCodePackages(t *testing.T) {
	RunInModes(t, func(t *testing.T, m Mode) {
		w := servers(t, m, 1)
		w.AllowHosts(t)
		before := w.Hash
		for _, bad := range []struct {
			packages []string
			want     error
		}{
			{codePackages, sandboxapi.ErrNotInstalled}, {[]string{"npm:x@1.0.0 --reload"}, sandboxapi.ErrBadRequest},
			{[]string{"../x"}, sandboxapi.ErrBadRequest}, {[]string{"--allow-all"}, sandboxapi.ErrBadRequest},
		} {
			_, err := w.Client.SetPermissions(t.Context(), sandboxapi.Permissions{Packages: bad.packages})
			if !errors.Is(err, bad.want) {
				t.Errorf("%q: %v", bad.packages, err)
			}
		}
		if r := w.RunCode(t, `import "npm:probe";`, testkit.Patience); r.Exit.Code == 0 || !strings.Contains(r.Stderr, "npm") {
			t.Errorf("without packages: %+v", r)
		}
		pinForCode(t, w)
		if w.Hash == before {
			t.Error("the packages are no part of the permission set")
		}
		const code = `import a from "npm:probe"; import b from "npm:probe@1"; import c from "probe"; import d from "npm:probe@1.2.3";
import sub from "npm:probe/sub"; import bare from "probe/sub"; import other from "@scope/other";
console.log(a === b && b === c && c === d, a, sub, bare, other);`
		for _, private := range []bool{false, true} {
			w.Private = private
			if r := w.RunCode(t, code, testkit.Patience); r.Stdout != "true undefined,string,true sub sub 64\n" || r.Stderr != "" {
				t.Errorf("private %v: %+v", private, r)
			}
		}
		w.Private = false
		for _, bad := range []string{`import "npm:lodash";`, `import "lodash";`, `import "npm:probe@2";`, `await import("npm:" + "lodash");`,
			`import "jsr:@std/path";`, `import "https://packages.example.com/x.js";`,
			`const dir = new URL(import.meta.resolve("npm:probe/sub")); Deno.writeTextFileSync(dir, "x");`} {
			if r := w.RunCode(t, bad, testkit.Patience); r.Exit.Code == 0 {
				t.Errorf("%s: %+v", bad, r)
			}
		}
		// Packages in force stay, also if the catalog no longer names them.
		if tidied, err := w.Client.Tidy(t.Context(), sandboxapi.Packages{Keep: []string{"npm:x@1.0.0"}}); err != nil || tidied.InUse != 1 {
			t.Errorf("%+v %v", tidied, err)
		}
		w.Packages = nil
		w.AllowHosts(t)
		if w.Hash != before {
			t.Errorf("%s, then %s", before, w.Hash)
		}
		testkit.WaitFor(t, func() bool {
			tidied, err := w.Client.Tidy(t.Context(), sandboxapi.Packages{Keep: []string{"npm:x@1.0.0"}})
			return err == nil && len(tidied.Removed) == 1
		})
	})
}

// writePackages writes to the packages as the sandbox of a waiting interpreter sees them. Unlike code, it needs no
// permission of Deno.
func writePackages(t *testing.T, w *World) error {
	t.Helper()
	var all []int
	for queue := []int{w.Pid()}; len(queue) > 0; queue = queue[1:] {
		children, _ := proc.ListChildren(queue[0]) // it may have ended
		queue, all = append(queue, children...), append(all, children...)
	}
	err := errors.New("no interpreter waits")
	for _, pid := range all {
		dir := fmt.Sprintf("/proc/%d/root/packages", pid)
		if _, missing := os.Stat(dir + "/deno.lock"); missing == nil {
			err = os.WriteFile(dir+"/new", []byte("x"), 0o600)
			break
		}
	}
	return err
}

// TestPackagesAreReadOnly: the kernel keeps code from the packages, whatever Deno permits.
// Promise: first-installed-package
func TestPackagesAreReadOnly(t *testing.T) {
	w := servers(t, User, 1)
	pinForCode(t, w)
	testkit.WaitFor(t, func() bool { return errors.Is(writePackages(t, w), syscall.EROFS) })
}

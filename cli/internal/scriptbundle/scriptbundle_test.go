package scriptbundle

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// folder is a folder with files, and the working directory is another.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		testkit.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		testkit.Must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	t.Chdir(t.TempDir())
	return dir
}

// TestScript: what a script imports by relative paths runs as part of it, and errors are told in the files' own lines.
func TestScript(t *testing.T) {
	deno := testkit.DenoPath(t)
	dir := folder(t, map[string]string{
		"lib.ts":        "import { two } from \"./more/two.js\";\nexport interface Sum { value: number }\nexport function sum(a: number): Sum {\n  return { value: a + two };\n}\nexport function fail(): never {\n  throw new Error(\"boom\");\n}\n",
		"more/two.js":   "import process from \"node:process\";\nexport const two = process ? 2 : 0;\n",
		"tsconfig.json": "{ broken",
	})
	script := filepath.Join(dir, "main.ts")
	run := func(code string) (string, error) {
		t.Helper()
		out, err := NewScript(script, code)
		testkit.Must(t, err)
		path := filepath.Join(t.TempDir(), "main.ts")
		testkit.Must(t, os.WriteFile(path, []byte(out.Code), 0o600))
		cmd := exec.CommandContext(t.Context(), deno, "run", "--no-remote", path)
		cmd.Env = []string{"DENO_DIR=" + t.TempDir(), "NO_COLOR=1"}
		text, err := cmd.CombinedOutput()
		return out.RestorePlaces(strings.ReplaceAll(string(text), "file://"+path, "file:///code/main.ts")), err
	}
	if out, err := run("import { type Sum, sum } from \"./lib.ts\";\nconst s: Sum = sum(3);\nconsole.log(s.value, await Promise.resolve(\"top\"));\n"); err != nil || out != "5 top\n" {
		t.Errorf("got %q, %v", out, err)
	}
	if out, err := run("const { sum } = await import(\"./lib.ts\");\nconsole.log(sum(1).value);\n"); err != nil || out != "3\n" {
		t.Errorf("a dynamic import: got %q, %v", out, err)
	}
	out, err := run("import { fail } from \"./lib.ts\";\n\n\nfail();\n")
	if err == nil || !strings.Contains(out, "at fail (lib.ts:7:9)") || !strings.Contains(out, "at main.ts:4:1") {
		t.Errorf("an error: got %q, %v", out, err)
	}
}

// TestAsItWas: a script without such imports is sent as it is.
func TestAsItWas(t *testing.T) {
	dir := folder(t, nil)
	for _, code := range []string{
		"", "console.log(1 as number)", "import { f } from \"/skills/f.ts\"; f();", "syntax error (", "const path = \"./x\"; console.log(path)",
		"import fs from \"node:fs\"; import x from \"npm:x\"; console.log(`../${x}`, fs)", "const a = './x' (;",
	} {
		if got, err := NewScript(filepath.Join(dir, "main.ts"), code); got.Code != code || err != nil {
			t.Errorf("%q: got %q, %v", code, got.Code, err)
		}
	}
}

// TestRefused: only modules near the script leave this machine.
func TestRefused(t *testing.T) {
	dir := folder(t, map[string]string{
		"in/key.json": `{"KEY": "hunter2"}`, "in/.env": "KEY=hunter2", "in/bad.ts": "const hunter2 = ;", "out.ts": "export const k = 'hunter2';", "in/dir.ts/x": "",
	})
	testkit.Must(t, os.Symlink(filepath.Join(dir, "out.ts"), filepath.Join(dir, "in", "link.ts")))
	testkit.Must(t, os.Symlink(".env", filepath.Join(dir, "in", "env.ts")))
	for code, want := range map[string]string{
		`import k from "./key.json"; console.log(k)`:                        "no module; want a file that ends in .ts",
		`import k from "./key.json" with { type: "json" }; console.log(k)`:  "an import with attributes",
		`import k from "./out.ts" with { type: "text" }; console.log(k)`:    "an import with attributes",
		`import k from "./env.ts"; console.log(k)`:                          "no module",
		`import { k } from "../out.ts"; console.log(k)`:                     "outside of the script's folder",
		`import { k } from "./link.ts"; console.log(k)`:                     "outside of the script's folder",
		`import { k } from "./nowhere.ts"; console.log(k)`:                  `main.ts:1:19: importing "./nowhere.ts": no such file; want the file's whole name`,
		`import { k } from "./bad"; console.log(k)`:                         "no such file",
		`import { k } from "./dir.ts"; console.log(k)`:                      "not a regular file",
		`import { k } from "./bad.ts"; console.log(k)`:                      "bad.ts:1:17: ",
		`const k = await import("./key.json"); console.log(k)`:              "no module",
		`export * from "./key.json"`:                                        "no module",
		`const k = new URL("./key.json", import.meta.url); await import(k)`: "",
	} {
		got, err := NewScript(filepath.Join(dir, "in", "main.ts"), code)
		if want == "" {
			if err != nil || strings.Contains(got.Code, "hunter2") {
				t.Errorf("%s: got %q, %v", code, got.Code, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(got.Code, "hunter2") {
			t.Errorf("%s: got %q, %v", code, got.Code, err)
		}
	}
	t.Chdir(dir) // of which both are below
	if got, err := NewScript(filepath.Join("in", "main.ts"), `import { k } from "../out.ts"; console.log(k)`); err != nil || !strings.Contains(got.Code, "hunter2") {
		t.Errorf("below the working directory: %q, %v", got.Code, err)
	}
}

// TestComputed: no file leaves this machine because a path that is made while the code runs might turn out to name it.
func TestComputed(t *testing.T) {
	dir := folder(t, map[string]string{
		"in/lib.ts": "export const x = '';", "in/key.json": `{"k": "hunter2"}`, "in/near.ts": "export const k = 'hunter2';",
		"apis/a/config.json": `{"k": "hunter2"}`, "note.txt": "hunter2", "out.ts": "export const k = 'hunter2';",
	})
	for _, code := range []string{
		"await import(`../${x}.json`)", "await import(`../apis/${x}/config.json`)", "await import('../' + x + '/config.json')",
		"require('../' + x + '.txt')", "require(`./${x}.json`)", "await import(`../${x}.ts`)", "await import(`./${x}`)",
		"await import('./' + x, { with: { type: 'json' } })",
	} {
		got, err := NewScript(filepath.Join(dir, "in", "main.ts"), "import { x } from './lib.ts'; console.log("+code+")")
		if err == nil || !strings.Contains(err.Error(), "made while the code runs") || strings.Contains(got.Code, "hunter2") {
			t.Errorf("%s: got %q, %v", code, got.Code, err)
		}
	}
}

// TestNoMaps: a comment in a script names no file to read, and no text to show in the place of a file's name.
func TestNoMaps(t *testing.T) {
	const text = `{"version":3,"sources":["hunter2"],"names":[],"mappings":"AAAA;AAAA;AAAA"}`
	dir := folder(t, map[string]string{
		"map": text, "lib.ts": "export const x = 1;\nexport const y = x;\n//# sourceMappingURL=map\n",
	})
	for _, comment := range []string{
		"//# sourceMappingURL=map", "//@ sourceMappingURL=map", "/*# sourceMappingURL=map */",
		"//# sourceMappingURL=data:application/json," + text,
	} {
		got, err := NewScript(filepath.Join(dir, "main.ts"), "import { y } from './lib.ts';\nconsole.log(y);\n"+comment+"\n")
		if err != nil || got.places == nil || strings.Contains(strings.Join(got.places.sources, " "), "hunter2") {
			t.Errorf("%s: got %+v, %v", comment, got.places, err)
		}
	}
}

// TestPlaces: places are found whatever a map says, and a map that is none is an error.
func TestPlaces(t *testing.T) {
	for data, wrong := range map[string]bool{
		"": true, "{}": false, `{"sources":[],"mappings":"AAAA"}`: true, `{"sources":["a.ts"],"mappings":"A!"}`: true,
		`{"sources":["a.ts"],"mappings":"gggggggggggg"}`: true, `{"sources":["a.ts"],"mappings":";;AACA,CAAC;D"}`: false,
	} {
		p, err := newPlaces([]byte(data))
		if (err != nil) != wrong {
			t.Errorf("%s: %v", data, err)
		}
		if err != nil {
			continue
		}
		for _, place := range []string{"0:0", "1:1", "3:1", "3:2", "999999999:999999999"} {
			text := "at file:///code/main.ts:" + place
			got := p.restorePlaces(text)
			want := map[string]string{"3:1": "at a.ts:2:1", "3:2": "at a.ts:2:2"}[place]
			if strings.Contains(data, "AACA") && want != "" && got != want || want == "" && got != text {
				t.Errorf("%s, %s: got %s", data, place, got)
			}
		}
	}
}

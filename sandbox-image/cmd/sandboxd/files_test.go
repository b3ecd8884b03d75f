package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// told is what the files of TestImportedFiles hold on any machine.
var told = regexp.MustCompile(`relatime|\brw,|\bro,|root:x?:0|Linux version|HOME=|PPid`)

// Deno needs no permission to import a file, so the file must not exist in the sandbox or the kernel must refuse it.
// Promise: least-privilege
func TestImportedFiles(t *testing.T) {
	RunInModes(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 1, Warm: 1})
		for _, path := range []string{"/proc/1/mountinfo", "/proc/self/mountinfo", "/proc/self/status", "/proc/version", "/etc/passwd", "/dev/zero"} {
			for _, how := range []string{
				"import t from '" + path + "' with { type: 'text' };\nconsole.log(t);\n",
				"import '" + path + "';\n", "export * from '" + path + "';\n",
			} {
				r := w.RunCode(t, how, testkit.Patience)
				said := r.Stdout + r.Stderr
				if found := told.FindString(said); found != "" || r.Exit.Code == 0 {
					t.Errorf("%s: %q in %.300q", how, found, said)
				}
				if !strings.Contains(said, "not found") && !strings.Contains(said, "denied") && !strings.Contains(said, "read access") {
					t.Errorf("%s: %.300q", how, said)
				}
			}
		}
		// The files that code may read exist.
		r := w.RunCode(t, "import m from '/code/main.ts' with { type: 'text' };\nconsole.log(m.length > 10);\n", testkit.Patience)
		if m != Container && r.Stdout != "true\n" {
			t.Errorf("its own code: %+v", r)
		}
	})
}

// png is an image of one pixel.
const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// TestRunFiles: the files that code leaves in /out and the data that it shows arrive in both languages, and no other file.
// Promise: files-are-data
func TestRunFiles(t *testing.T) {
	programs := map[sandboxapi.Language]string{
		sandboxapi.LanguageTypeScript: "Deno.writeTextFileSync('/out/a.csv', 'x,y\\n');\n" +
			"const image = Uint8Array.from(atob('" + png + "'), (c) => c.charCodeAt(0));\n" +
			"Deno.writeFileSync('/out/b.png', image); show('/out/b.png'); show(image); show(image.buffer);\n" +
			"try { show(7); } catch (e) { console.log(e.message); }\n" +
			"show({ path: '/out/b.png' });\n" +
			"try { show(image); } catch (e) { console.log(e.message); }\n" +
			"console.log([...Deno.readDirSync('/out')].map((f) => f.name).sort().join());\n",
		sandboxapi.LanguagePython: "import base64, os, pathlib\npathlib.Path('/out/a.csv').write_text('x,y\\n')\n" +
			"image = base64.b64decode('" + png + "')\n" +
			"open('/out/b.png', 'wb').write(image)\nshow('/out/b.png')\nshow(image)\nshow(bytearray(image))\n" +
			"try: show(7.5)\nexcept TypeError: print('show wants the path of an image or sound, or its bytes')\n" +
			"show({'path': '/out/b.png'})\n" +
			"try: show(image)\nexcept ValueError as e: print(e)\n" +
			"print(','.join(sorted(os.listdir('/out'))))\n",
	}
	const printed = "show wants the path of an image or sound, or its bytes\nA run shows at most 4 images and sounds\n.shown,a.csv,b.png\n"
	RunInModes(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 1, Warm: 1, Python: true})
		for language, code := range programs {
			for _, private := range []bool{false, true} {
				var got []string
				w.Language, w.Private = language, private
				w.OnEvent = func(e sandboxapi.Event) {
					if e.File != nil {
						got = append(got, fmt.Sprint(e.File.Name, " ", e.File.Shown, " ", len(e.File.Data)))
					}
				}
				r := w.RunCode(t, code, testkit.Patience)
				want := "shown-1 true 70,shown-2 true 70,shown-3 true 70,shown-4 true 70,a.csv false 4,b.png false 70"
				if r.Stdout != printed || strings.Join(got, ",") != want || r.Exit.Unkept != "" {
					t.Errorf("%s, private %v: %q %q %v %s", language, private, r.Stdout, r.Stderr, got, r.Exit.Unkept)
				}
				got = nil
				if r = w.RunCode(t, map[sandboxapi.Language]string{"typescript": "console.log([...Deno.readDirSync('/out')].length)", "python": "import os\nprint(len(os.listdir('/out')))"}[language], testkit.Patience); r.Stdout != "0\n" || got != nil {
					t.Errorf("%s: files of an earlier run: %q %s %v", language, r.Stdout, r.Stderr, got)
				}
			}
		}
	})
}

// TestHostileRunFiles: a slot stays usable after a run with hostile files in /out, even if the run is ended early.
// Promise: files-are-data
func TestHostileRunFiles(t *testing.T) {
	RunInModes(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 1, Warm: 1, Python: true})
		var got []string
		w.OnEvent = func(e sandboxapi.Event) {
			if e.File != nil {
				got = append(got, e.File.Name)
			}
		}
		for _, row := range []struct{ code, files, unkept string }{
			{"import os\nos.symlink('/etc/passwd', '/out/a')\nos.symlink('/code/main.py', '/out/b')\nos.mkfifo('/out/c')\n", "", `"a" (it is a link`},
			{"import os\nos.makedirs('/out/a/b')\nopen('/out/a/b/c', 'w')\nos.chmod('/out/a/b', 0)\nos.chmod('/out/a', 0)\n", "", `"a" (`},
			{"import os\nos.mkdir('/out/.shown')\nopen('/out/x', 'w')\nos.chmod('/out/.shown', 0)\n", "x", ""},
			{"import os\nfor how in (lambda: os.rmdir('/out'), lambda: os.rename('/out', '/tmp/x'), lambda: os.symlink('/etc', '/out'), lambda: os.chmod('/out', 0)):\n  try: how()\n  except OSError: pass\n", "", ""},
			{"open('/out/a', 'w').write('x')\nimport time\ntime.sleep(60)\n", "a", ""},
			{"print(open('/out/a').read())\n", "", ""},
		} {
			got = nil
			patience := testkit.Patience
			if strings.Contains(row.code, "sleep") {
				patience = 500 * time.Millisecond
			}
			r := w.RunCode(t, row.code, patience)
			if strings.Join(got, ",") != row.files || !strings.Contains(r.Exit.Unkept, row.unkept) {
				t.Errorf("%s: %v %q %q", row.code, got, r.Exit.Unkept, r.Stderr)
			}
		}
	})
}

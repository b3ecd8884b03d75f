package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestCommandLine does the main job with the command line alone: run, receipt, logs, api test, doctor. Nothing that the
// commands print or store contains a credential, raw or encoded.
func TestCommandLine(t *testing.T) {
	embeddedOnly(t)
	for name, user := range users() {
		t.Run(name, func(t *testing.T) {
			w := world.Start(t, world.Config{User: user})
			write(t, w.Dir, "bearer.ts", fmt.Sprintf(script, "cli"))
			write(t, w.Dir, "denied.ts", `const r = await fetch("https://strict.test/anything", { method: "POST", body: "x" }); console.log(r.status);`)
			tool := func(code int, want []string, args ...string) {
				t.Helper()
				var out string
				var got int
				var err error
				// On a busy machine CodeForge loads a changed file later than a command waits for it.
				testkit.WaitFor(t, func() bool {
					out, got, err = world.Tool(within(t, 40), world.Command{User: user, Dir: w.Dir, Args: args})
					return !strings.Contains(out, "has not loaded")
				})
				if err != nil || got != code {
					t.Errorf("codeforge %s ended with %d, %v; want %d\n%s", strings.Join(args, " "), got, err, code, out)
				}
				for _, s := range want {
					if !strings.Contains(out, s) {
						t.Errorf("codeforge %s does not say %q:\n%s", strings.Join(args, " "), s, out)
					}
				}
				if where := w.Leak(out); where != "" {
					t.Errorf("codeforge %s shows a credential: %s", strings.Join(args, " "), where)
				}
			}
			tool(0, []string{"200 HTTPBIN_TOKEN\n", "served  200 GET    https://httpbin.test/bearer", "HTTPBIN_TOKEN in header:Authorization", "1 scrubbed"}, "run", "bearer.ts", "--apis", "httpbin", "--receipt")
			if seen := w.Upstream.Seen("cli"); len(seen) != 1 || seen[0].Header.Get("Authorization") != "Bearer "+w.Canaries["HTTPBIN_TOKEN"].Value() {
				t.Errorf("the upstream saw %d requests, want one with the credential", len(seen))
			}
			tool(0, []string{"403", "method_restricted"}, "run", "denied.ts", "--receipt")
			tool(0, []string{"denied", "POST", "https://strict.test/anything", "method_restricted", "hint: "}, "receipt")
			tool(0, []string{"https://httpbin.test/bearer", "https://strict.test/anything"}, "logs")
			tool(0, []string{"GET https://httpbin.test/bearer", "ok: ", "was swapped", "(200)"}, "api", "test", "httpbin", "--path", "/bearer")
			tool(1, []string{"could not be reached", "ca_file"}, "api", "test", "certs")
			tool(1, []string{"is not active"}, "api", "test", "off")
			tool(0, []string{"active  httpbin", "HTTPBIN_QUERY in query:key", "off     off"}, "api", "list")
			write(t, w.Dir, "apis/off/config.json", `{"description": "x", "domains": ["off.test"], "rules": [{"path": "/v1/**", "then": "allow"}]}`)
			// The running CodeForge needs up to a second to load it.
			tool(1, []string{"GET https://off.test/v1/", "could not be reached"}, "api", "test", "off")
			tool(1, []string{"answers (", "code ran in the sandbox of embedded mode", "host httpbin.test", "certificate authority"}, "doctor", "--bin", filepath.Dir(world.Binary("codeforge")))
			keptLeaks(t, w)
		})
	}
}

// TestRunFiles: a file that a script writes to /out reaches the user's folder and the history, in both languages. A
// link to a file of the host does not.
// Promise: files-are-data
func TestRunFiles(t *testing.T) {
	embeddedOnly(t)
	scripts := map[string]string{
		"files.ts": `Deno.writeTextFileSync("/out/report.csv", "a,b\n"); show(new Uint8Array(3));`,
		"files.py": "import os\nopen('/out/report.csv', 'w').write('a,b\\n')\nos.symlink('/etc/passwd', '/out/link')\nshow(b'abc')\n",
	}
	for name, user := range users() {
		t.Run(name, func(t *testing.T) {
			w := world.Start(t, world.Config{User: user})
			for file, text := range scripts {
				write(t, w.Dir, file, text)
				for _, c := range []struct {
					args []string
					code int
					want []string
				}{
					{[]string{"run", file, "--out", "of-" + file}, 0, []string{"saved of-" + file + "/report.csv, 4 bytes", "shown-1 (want PNG"}},
					{[]string{"run", file, "--out", "of-" + file}, 125, []string{"file exists"}},
					{[]string{"runs", "files", ""}, 0, []string{"4  text/csv                 report.csv\n"}},
				} {
					out, got, err := world.Tool(within(t, 40), world.Command{User: user, Dir: w.Dir, Args: c.args})
					if err != nil || got != c.code {
						t.Errorf("%v ended with %d, %v\n%s", c.args, got, err, out)
					}
					for _, s := range c.want {
						if !strings.Contains(out, s) {
							t.Errorf("%v does not say %q:\n%s", c.args, s, out)
						}
					}
				}
				if data, err := os.ReadFile(filepath.Join(w.Dir, "of-"+file, "report.csv")); string(data) != "a,b\n" || err != nil {
					t.Errorf("saved %q, %v", data, err)
				}
				if entries, _ := os.ReadDir(filepath.Join(w.Dir, "of-"+file)); len(entries) != 1 {
					t.Errorf("saved %v", entries)
				}
			}
		})
	}
}

// TestDoctorRunsCode checks that doctor notices, and explains, when every part is present but code does not run.
func TestDoctorRunsCode(t *testing.T) {
	embeddedOnly(t)
	for name, user := range users() {
		t.Run(name, func(t *testing.T) {
			dir, err := world.NewDir(user, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			before := world.TakeSnapshot()
			for _, row := range []struct {
				code int
				env  map[string]string
				want []string
			}{
				{0, nil, []string{"ok       interpreter            code ran in the sandbox of embedded mode"}},
				// A program that claims to be Deno and does not run TypeScript.
				{1, map[string]string{"DENO_PATH": world.Binary("intruder")}, []string{"the pinned version", "failed   interpreter", "embedded mode does not run code here", "intruder: reading the task", "failed   modes"}},
			} {
				env := map[string]string{"DOCKER_HOST": "unix:///nowhere", "TMPDIR": dir}
				maps.Copy(env, row.env)
				out, code, err := world.Tool(within(t, 90), world.Command{User: user, Dir: dir, Args: []string{"doctor", "--offline"}, Env: env})
				if err != nil || code != row.code {
					t.Errorf("exit code %d, want %d, %v\n%s", code, row.code, err, out)
				}
				for _, want := range row.want {
					if !strings.Contains(out, want) {
						t.Errorf("no %q in\n%s", want, out)
					}
				}
			}
			if left, err := filepath.Glob(filepath.Join(dir, "codeforge-doctor-*")); err != nil || len(left) > 0 {
				t.Errorf("left: %q %v", left, err)
			}
			if left := before.Leftovers(); len(left) > 0 {
				t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
			}
		})
	}
}

// keptLeaks searches the supervisor's files for credentials.
func keptLeaks(t *testing.T, w *world.World) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(w.Process.State, func(path string, d fs.DirEntry, err error) error {
		var data []byte
		if err == nil && d.Type().IsRegular() {
			data, err = os.ReadFile(path)
		}
		if errors.Is(err, fs.ErrNotExist) { // CodeForge has removed it meanwhile
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		if where := w.Leak(string(data)); where != "" {
			t.Errorf("%s holds a credential: %s", path, where)
		}
		return nil
	})
	if err != nil || files < 5 {
		t.Errorf("searched %d files, %v", files, err)
	}
}

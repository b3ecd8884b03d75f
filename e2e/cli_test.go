package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// TestCommandLine does the main job with the command line alone: run, receipt, logs, api test, doctor. Nothing that it
// prints or keeps holds a credential, raw or encoded.
func TestCommandLine(t *testing.T) {
	embeddedOnly(t)
	for name, user := range users() {
		t.Run(name, func(t *testing.T) {
			w := world.Start(t, world.Config{User: user})
			write(t, w.Dir, "bearer.ts", fmt.Sprintf(script, "cli"))
			write(t, w.Dir, "denied.ts", `const r = await fetch("https://strict.test/anything", { method: "POST", body: "x" }); console.log(r.status);`)
			tool := func(code int, want []string, args ...string) {
				t.Helper()
				out, got, err := world.Tool(within(t, 40), world.Command{User: user, Dir: w.Dir, Args: args})
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
			tool(0, []string{"200 HTTPBIN_TOKEN\n", "served  200 GET    https://httpbin.test/bearer", "HTTPBIN_TOKEN in header:Authorization", "1 sanitized"}, "run", "bearer.ts", "--apis", "httpbin", "--receipt")
			if seen := w.Upstream.Seen("cli"); len(seen) != 1 || seen[0].Header.Get("Authorization") != "Bearer "+w.Canaries["HTTPBIN_TOKEN"].Value() {
				t.Errorf("the upstream saw %d requests, want one with the credential", len(seen))
			}
			tool(0, []string{"403", "method_restricted"}, "run", "denied.ts", "--receipt")
			tool(0, []string{"denied", "POST", "https://strict.test/anything", "method_restricted", "hint: "}, "receipt")
			tool(0, []string{"https://httpbin.test/bearer", "https://strict.test/anything"}, "logs")
			tool(0, []string{"GET https://httpbin.test/bearer", "ok: ", "was swapped", "(200)"}, "api", "test", "httpbin", "--path", "/bearer")
			tool(1, []string{"could not be reached", "ca_file"}, "api", "test", "certs")
			tool(1, []string{"is switched off"}, "api", "test", "off")
			tool(0, []string{"active  httpbin", "HTTPBIN_QUERY in query:key", "off     off"}, "api", "list")
			tool(0, []string{"answers (", "host httpbin.test", "certificate authority"}, "doctor", "--bin", filepath.Dir(world.Binary("codeforge")), "--apis", onlyHTTPBin(t, w))
			keptLeaks(t, w)
		})
	}
}

// onlyHTTPBin is a folder with the one API whose hosts all answer.
func onlyHTTPBin(t *testing.T, w *world.World) string {
	t.Helper()
	dir := filepath.Join(w.Dir, "only")
	if err := os.CopyFS(filepath.Join(dir, "httpbin"), os.DirFS(filepath.Join(w.Dir, "apis", "httpbin"))); err != nil {
		t.Fatal(err)
	}
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.Chmod(path, 0o644) // an ordinary user's doctor reads what root copied
	}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// keptLeaks searches what the supervisor keeps.
func keptLeaks(t *testing.T, w *world.World) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(w.Process.State, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
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

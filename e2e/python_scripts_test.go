package e2e

import (
	"bytes"
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// pythonScripts are programs as users write them, each behind a line "# script: name", with "# needs: packages" where it
// needs more than the standard library.
//
//go:embed testdata/scripts.py
var pythonScripts string

// direct makes Python connect to the upstream without the proxy: names resolve to its address.
const direct = `
import socket
resolve = socket.getaddrinfo
def upstream(host, *args, **more):
    if isinstance(host, bytes):
        host = host.decode()
    return resolve("ADDRESS" if host and host.endswith(".test") else host, *args, **more)
socket.getaddrinfo = upstream
`

// TestPythonScripts: each program prints in the sandbox, with the name of a credential, what it prints in bare Python,
// with the credential itself and no proxy.
func TestPythonScripts(t *testing.T) {
	world.RunInOneMode(t, "the interpreter and the proxy decide it; TestPython calls the image's packages")
	heads := regexp.MustCompile(`(?m)^# script: (.+)\n(?:# needs: (.+)\n)?`)
	found := heads.FindAllStringSubmatchIndex(pythonScripts, -1)
	if len(found) < 12 {
		t.Fatalf("%d scripts", len(found))
	}
	program := testkit.FindPython(t).Program
	if set := os.Getenv("PYTHON_PATH"); set != "" { // one with more packages
		program = set
	}
	for user, as := range users() {
		if user == "root" && !testkit.IsThorough() {
			continue // the interpreter and the proxy decide it, and there is an ordinary user too
		}
		t.Run(user, func(t *testing.T) {
			w := world.Start(t, world.Config{User: as, Env: map[string]string{"PYTHON_PATH": os.Getenv("PYTHON_PATH")}})
			shared := pythonScripts[:found[0][0]]
			for i, at := range found {
				end := len(pythonScripts)
				if i+1 < len(found) {
					end = found[i+1][0]
				}
				name, code := pythonScripts[at[2]:at[3]], shared+pythonScripts[at[1]:end]
				if at[4] >= 0 { // not every machine has the packages; the image has requests and httpx
					needs := "import " + pythonScripts[at[4]:at[5]] + "\n"
					if w.MustPython(t, needs).IsError || w.Mode == world.Embedded && exec.CommandContext(t.Context(), program, "-c", needs).Run() != nil { //nolint:gosec // ours
						if w.Mode == world.Docker && !strings.Contains(needs, "pandas") {
							t.Errorf("%s: the image has not all of %s", name, needs)
						}
						continue
					}
				}
				t.Run(name, func(t *testing.T) {
					want := bareScript(t, w, program, code)
					res := w.MustPython(t, code, "httpbin")
					if res.IsError || res.Out != want || want == "" {
						t.Errorf("in the sandbox:\n%s\n%s\nwithout it:\n%s", res.Out, res.Notes, want)
					}
					if where := w.Leak(res.JSON); where != "" {
						t.Errorf("the result holds a credential: %s", where)
					}
				})
			}
		})
	}
}

// bareScript is what a program prints in bare Python that has the credential, with the credential's name in its place.
func bareScript(t *testing.T, w *world.World, program, code string) string {
	t.Helper()
	const name = "HTTPBIN_TOKEN"
	value := w.Canaries[name].Value()
	address := upstream.Embedded.Private.String()
	args := []string{"-s", "-B", "-X", "utf8", "-c", strings.ReplaceAll(direct, "ADDRESS", address) + strings.ReplaceAll(code, name, value)}
	if strings.Contains(code, "\nasync with ") || strings.Contains(code, "\n    print(await ") { // CodeForge's own addition
		args[5] = strings.ReplaceAll(direct, "ADDRESS", address) + "import ast, asyncio, inspect\n" +
			"ready = compile(" + strconv.Quote(strings.ReplaceAll(code, name, value)) + ", 'main.py', 'exec', ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)\n" +
			"asyncio.run(eval(ready, {'__name__': '__main__'}))\n"
	}
	cmd := exec.CommandContext(t.Context(), program, args...) //nolint:gosec // ours
	cmd.Dir = t.TempDir()
	ca := filepath.Join(w.Dir, "ca.pem")
	cmd.Env = []string{"TZ=UTC", "LANG=C.UTF-8", "SSL_CERT_FILE=" + ca, "REQUESTS_CA_BUNDLE=" + ca}
	if w.Mode == world.Docker {
		cmd = w.Stack.Direct(t.Context(), "/usr/bin/python3", args...)
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("bare Python: %v\n%s", err, errs.String())
	}
	return strings.ReplaceAll(out.String(), value, name)
}

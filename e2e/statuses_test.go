package e2e

import (
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// TestUnnoticedStatuses: code in either language that takes error responses for data learns how many there were. Code
// that names the status, or prints it, does not.
func TestUnnoticedStatuses(t *testing.T) {
	world.RunInOneMode(t, "mcp-server and the proxy decide it")
	w := world.Start(t, world.Config{})
	const typescript = `for (const n of [200, 400 + 29, 400 + 29]) await (await fetch("https://httpbin.test/status/" + n)).text(); console.log("done");`
	const python = `
import http.client
for n in (200, 400 + 29, 400 + 29):
    c = http.client.HTTPSConnection("httpbin.test")
    c.request("GET", f"/status/{n}")
    c.getresponse().read()
print("done")
`
	const note = "2 of 3 responses of httpbin.test had status 429. Neither the code nor its output mentions this: data may be missing. " +
		"After 429, wait for Retry-After, then send the request again.\n"
	run := map[string]func(string) world.Result{
		"TypeScript": func(code string) world.Result { return w.MustExecute(t, code, "httpbin") },
		"Python":     func(code string) world.Result { return w.MustPython(t, code, "httpbin") },
	}
	for name, code := range map[string]string{"TypeScript": typescript, "Python": python} {
		if r := run[name](code); r.Out != "done\n" || r.Notes != note {
			t.Errorf("%s: out %q, notes %q", name, r.Out, r.Notes)
		}
		comment := map[string]string{"TypeScript": "// 429 is expected\n", "Python": "# 429 is expected\n"}[name]
		if r := run[name](comment + code); r.Notes != "" {
			t.Errorf("%s that knows the status: notes %q", name, r.Notes)
		}
	}
}

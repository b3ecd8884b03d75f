package main

import (
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// TestEnviron: code finds the variables of its run by each of the language's functions, the constants of the sandbox,
// and nothing of the machine or of an earlier run. The kernel shows none of the variables.
func TestEnviron(t *testing.T) {
	const typescript = `import os from "node:os";
const missing = [process.env.NO_SUCH, Deno.env.get("NO_SUCH"), Deno.env.has("NO_SUCH"), "NO_SUCH" in process.env];
const found = [process.env.STRIPE_AUTH_TOKEN, Deno.env.get("OPENAI_API_KEY"), Deno.env.has("OPENAI_API_KEY"),
  Deno.env.toObject().STRIPE_AUTH_TOKEN, { ...process.env }.OPENAI_API_KEY];
process.env.ADDED_BY_CODE = "x";
console.log(JSON.stringify([missing, found]));
console.log(os.hostname(), os.release(), os.version(), os.platform(), os.type(), typeof os.cpus().length, os.homedir(), typeof os.arch());
console.log(Object.keys(process.env).filter((n) => !/^(HOME|PATH|LANG|TZ|NO_COLOR|TMPDIR|XDG_.*)$/.test(n)).sort().join());
try { if (/TOKEN|OPENAI/.test(Deno.readTextFileSync("/proc/self/environ"))) console.log("the kernel shows it"); } catch { /* no permission */ }`
	const python = `import os
found = [os.environ["STRIPE_AUTH_TOKEN"], os.getenv("OPENAI_API_KEY"), dict(os.environ).get("STRIPE_AUTH_TOKEN")] if "STRIPE_AUTH_TOKEN" in os.environ else []
os.environ["ADDED_BY_CODE"] = "x"
print(os.environ.get("NO_SUCH"), os.getenv("NO_SUCH"), found)
print(",".join(sorted(n for n in os.environ if "TOKEN" in n or "OPENAI" in n or "ADDED" in n)))
try:
    if b"STRIPE" in open("/proc/self/environ", "rb").read() or b"OPENAI" in open("/proc/self/environ", "rb").read():
        print("the kernel shows it")
except OSError:
    pass`
	const machine = "codeforge 6.0.0 6.0.0 linux Linux number HOME string\n"
	environ := map[string]string{"STRIPE_AUTH_TOKEN": "STRIPE_AUTH_TOKEN", "OPENAI_API_KEY": "sk-OPENAI_KEY"}
	RunInModes(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 1, Warm: 1, Python: true})
		for _, private := range []bool{false, true} {
			w.Private = private
			for _, row := range []struct {
				language sandboxapi.Language
				code     string
				environ  map[string]string
				want     string
			}{
				{"typescript", typescript, environ, `[[null,null,false,false],["STRIPE_AUTH_TOKEN","sk-OPENAI_KEY",true,"STRIPE_AUTH_TOKEN","sk-OPENAI_KEY"]]` + "\n" +
					machine + "ADDED_BY_CODE,OPENAI_API_KEY,STRIPE_AUTH_TOKEN,deploy_token,prod_db_password\n"},
				{"typescript", typescript, nil, `[[null,null,false,false],[null,null,false,null,null]]` + "\n" +
					machine + "ADDED_BY_CODE,deploy_token,prod_db_password\n"},
				{"python", python, environ, "None None ['STRIPE_AUTH_TOKEN', 'sk-OPENAI_KEY', 'STRIPE_AUTH_TOKEN']\nADDED_BY_CODE,OPENAI_API_KEY,STRIPE_AUTH_TOKEN\n"},
				{"python", python, nil, "None None []\nADDED_BY_CODE\n"},
			} {
				w.Language, w.Environ = row.language, row.environ
				r := w.RunCode(t, row.code, testkit.Patience)
				lines := strings.SplitN(r.Stdout, " string\n", 2)
				if len(lines) == 2 { // the home depends on the mode
					fields := strings.Fields(lines[0])
					fields[len(fields)-1] = "HOME"
					r.Stdout = strings.Replace(strings.Join(fields, " "), "]] ", "]]\n", 1) + " string\n" + lines[1]
				}
				if r.Stdout != row.want || r.Stderr != "" || r.Exit.Code != 0 {
					t.Errorf("%s, private %v, %v: %+v\n got %s\nwant %s", row.language, private, row.environ != nil, r.Exit, r.Stdout+r.Stderr, row.want)
				}
			}
		}
		// A server gets the variables beside its functions, and standard input still belongs to the code.
		w.Private, w.Environ, w.Servers = false, environ, map[string][]string{"s": {"t"}}
		w.Input = &sandboxapi.Input{Stdin: []byte("of the code")}
		for language, code := range map[sandboxapi.Language]string{
			"typescript": `console.log(process.env.OPENAI_API_KEY, typeof mcp.s.t, await new Response(Deno.stdin.readable).text());`,
			"python":     "import os, sys\nprint(os.environ['OPENAI_API_KEY'], 'function' if callable(mcp.s.t) else '', sys.stdin.read())\n",
		} {
			w.Language = language
			if r := w.RunCode(t, code, testkit.Patience); r.Stdout != "sk-OPENAI_KEY function of the code\n" {
				t.Errorf("%s: %+v", language, r)
			}
		}
		w.Environ = map[string]string{"BIG_TOKEN": strings.Repeat("x", sandboxapi.MaxEnviron)}
		if _, err := w.TryCode(t.Context(), "", testkit.Patience); err == nil {
			t.Error("more variables than allowed")
		}
	})
}

package main

import (
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestCanary: each run finds a canary of its own in its home and its environment, can change none of it, and sees none
// of another run's.
func TestCanary(t *testing.T) {
	const typescript = `
const home = Deno.env.get("HOME")!, files = [home + "/.aws/credentials", home + "/.env"].map((f) => Deno.readTextFileSync(f));
const canary = files[0].match(/secret_access_key = (\w{40})\n/)![1];
if (!files[1].includes(canary) || Deno.env.get("prod_db_password") !== canary) throw new Error(files.join());
for (const f of [home + "/.env", home + "/new"]) try { Deno.writeTextFileSync(f, "x"); console.log("wrote", f); } catch { /* as it must be */ }
if (Object.values(Deno.env.toObject()).filter((v) => v === canary).length !== 2) throw new Error("a thief reads all variables");
console.log(canary);`
	const python = `
import os, pathlib
home = pathlib.Path.home()
canary = os.environ["deploy_token"]
assert canary in (home / ".env").read_text() and canary in (home / ".aws/credentials").read_text() and len(canary) == 40
for f in (home / ".env", home / "new"):
    try:
        f.write_text("x")
        print("wrote", f)
    except OSError:
        pass
print(canary)
`
	RunInModes(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 2, Warm: 1, Python: true})
		seen := map[string]bool{}
		for i := range 6 {
			code := typescript
			w.Language = ""
			if i >= 4 {
				w.Language, code = "python", python
			}
			r := w.RunCode(t, code, testkit.Patience)
			canary := strings.TrimSuffix(r.Stdout, "\n")
			if r.Exit.Code != 0 || len(canary) != 40 || seen[canary] {
				t.Errorf("run %d: %q %q %+v", i, r.Stdout, r.Stderr, r.Exit)
			}
			seen[canary] = true
		}
	})
}

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// TestPrivate: a private run imports its skills, writes into a folder that is gone with it, and sees nothing that other
// runs, private or not, have in /tmp, /skills and /runs. Runs that are not private share files as ever.
// Promise: tenant-files
func TestPrivate(t *testing.T) {
	RunInModes(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 2, Warm: 1, Python: true})
		w.Language = sandboxapi.LanguageTypeScript
		shared := `await Deno.writeTextFile("/tmp/shared.txt", "of the others");
await Deno.writeTextFile("/skills/theirs.ts", "export const x = 'of the others';");
console.log("x".repeat(100000));`
		first := w.RunCode(t, shared, 20*time.Second)
		if first.Exit.StdoutFile == "" {
			t.Fatalf("no output is kept: %+v %s", first.Exit, first.Stderr)
		}
		w.Private = true
		w.Skills = map[string]string{"mine.ts": `import { two } from "./other-one.ts"; export const one = two - 1;`,
			"other-one.ts": "export const two = 2;", "three.py": "three = 3\n"}
		const look = `
import { one } from "/skills/mine.ts";
console.log("one", one);
const tries = {
  read: () => Deno.readTextFile("/tmp/shared.txt"), mine: () => Deno.readTextFile("secret.txt"),
  list: async () => { for await (const e of Deno.readDir("/skills")) return e.name; throw new Error("empty"); },
  skill: () => Deno.readTextFile("/skills/theirs.ts"), load: () => import("/skills/theirs.ts"),
  runs: async () => { for await (const e of Deno.readDir("/runs")) return e.name; throw new Error("empty"); },
  kept: () => Deno.readTextFile("` + "KEPT" + `"), around: () => import("file:///proc/self/root/skills/theirs.ts"),
};
for (const [name, f] of Object.entries(tries)) {
  try { console.log(name, "SAW", await f()); } catch { console.log(name, "nothing"); }
}
const before = [...Deno.readDirSync(".")].map((e) => e.name);
console.log("before", before.length);
await Deno.writeTextFile("secret.txt", "of this run");
console.log("reads", await Deno.readTextFile("secret.txt"));
await Deno.makeTempFile();
try { await Deno.writeTextFile("/skills/mine.ts", "x"); console.log("skill SAW written"); } catch { console.log("not written"); }
console.log("x".repeat(100000));`
		for i := range 3 {
			r := w.RunCode(t, strings.Replace(look, "KEPT", first.Exit.StdoutFile, 1), 20*time.Second)
			for _, want := range []string{"one 1\n", "before 0\n", "reads of this run\n", "not written\n", "runs nothing\n"} {
				if !strings.Contains(r.Stdout, want) {
					t.Errorf("run %d: no %q in\n%.2000s%s", i, want, r.Stdout, r.Stderr)
				}
			}
			if strings.Contains(r.Stdout, "SAW") || r.Exit.StdoutFile != "" {
				t.Errorf("run %d saw files of others, or its output was kept (%s):\n%.2000s", i, r.Exit.StdoutFile, r.Stdout)
			}
		}
		w.Language = sandboxapi.LanguagePython
		r := w.RunCode(t, `
import os
from skills import three
print(three.three, os.listdir("."))
open("secret.txt", "w").write("x")
for path in ("/tmp/shared.txt", "/skills/theirs.ts", "`+first.Exit.StdoutFile+`"):
    try:
        print("SAW", open(path).read()[:20])
    except OSError:
        print("nothing")
`, 20*time.Second)
		if !strings.HasPrefix(r.Stdout, "3 []\n") || strings.Contains(r.Stdout, "SAW") {
			t.Errorf("Python: %s%s", r.Stdout, r.Stderr)
		}
		w.Language, w.Private, w.Skills = sandboxapi.LanguageTypeScript, false, nil
		r = w.RunCode(t, `console.log(await Deno.readTextFile("/tmp/shared.txt"), (await import("/skills/theirs.ts")).x)`, 20*time.Second)
		if r.Stdout != "of the others of the others\n" {
			t.Errorf("a run that is not private: %s%s", r.Stdout, r.Stderr)
		}
	})
}

// TestPrivateLease: a run is private if and only if its lease is, and its skills have names of files.
// Promise: tenant-files
func TestPrivateLease(t *testing.T) {
	OneMode(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 1})
		for _, private := range []bool{false, true} {
			l, err := w.Client.Acquire(context.Background(), sandboxapi.LeaseRequest{Private: private})
			testkit.Must(t, err)
			_, err = w.Client.Run(context.Background(), sandboxapi.RunRequest{
				Generation: l.Generation, Run: "r", Language: sandboxapi.LanguageTypeScript, Code: "1", Private: !private,
				Permissions: w.Hash, TimeoutMS: 1000,
			}, func(sandboxapi.Event) {})
			if err == nil || !strings.Contains(err.Error(), "private") {
				t.Errorf("a lease with private %v, a run with the contrary: %v", private, err)
			}
			testkit.Must(t, w.Client.Release(context.Background(), l.Generation))
		}
		for name, private := range map[string]bool{"a.json": false, "../a.ts": true, "a": true, "a.js": true, "a/b.ts": true} {
			w.Private, w.Skills = private, map[string]string{name: "1"}
			if _, err := w.TryCode(context.Background(), "1", time.Second); err == nil || !strings.Contains(err.Error(), "skills") {
				t.Errorf("a skill %q of a run with private %v: %v", name, private, err)
			}
		}
	})
}

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// plant replaces pinned skills, as an unreadable file and as a link, while its run lives.
const plant = `
const evil = "export const who = 'evil';";
await Deno.writeTextFile("/skills/x", evil, { mode: 0o600 });
await Deno.rename("/skills/x", "/skills/pinned.ts");
await Deno.writeTextFile("/skills/open_report.py", "who = 'evil'\n");
await Deno.writeTextFile("/skills/loose.ts", "import { who as w } from './pinned.ts'; export const who = 'loose of ' + w;");
await Deno.writeTextFile("/skills/loose.py", "from skills import open_report\nwho = 'loose of ' + open_report.who\n");
await Deno.writeTextFile("/skills/data.json", '{"who":"data"}');`

// TestPinned: in every mode and language, a run imports the pinned sources it was given, whatever is in /skills under
// their names and however the import spells them, also from another skill and in a worker. It cannot change them. All
// other skills are imported from /skills, also those that the run itself makes.
// Promise: pinned-skills
func TestPinned(t *testing.T) {
	RunInModes(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 2, Warm: 1, Python: true})
		w.Language = sandboxapi.LanguageTypeScript
		if r := w.RunCode(t, plant, 20*time.Second); r.Exit.Code != 0 {
			t.Fatalf("planting: %s%s", r.Stdout, r.Stderr)
		}
		w.Skills = map[string]string{"pinned.ts": `import { who as d } from "./loose.ts"; export const who = "pinned";`}
		for range 2 { // the first one finds an interpreter that was started for a run without pinned skills
			r := w.RunCode(t, `
import { who } from "/skills/pinned.ts";
import { who as loose } from "/skills/loose.ts";
import data from "/skills/data.json" with { type: "json" };
console.log(who, loose, data.who);
for (const name of ["/skills/pinned.ts?x", "/skills/pinned.ts#x", "/skills/%70inned.ts", "/skills/./pinned.ts", "/skills//pinned.ts"]) {
  console.log(await import(name).then((m) => m.who, () => "refused"));
}
const worker = new Worker("data:text/javascript," + encodeURIComponent("import { who } from 'file:///skills/pinned.ts'; postMessage(who);"), { type: "module" });
console.log(await new Promise((done) => worker.onmessage = (e) => done(e.data)));
worker.terminate();
await Deno.writeTextFile("/skills/made.ts", "export { who } from './pinned.ts'; export const made = 'made';");
const made = await import("/skills/made.ts");
console.log(made.made, made.who);
const own = import.meta.resolve("/skills/pinned.ts");
for (const path of [new URL(own), new URL("./", own)]) {
  try { await Deno.chmod(path, 0o777); console.log("CHANGED"); } catch { console.log("kept"); }
}
try { await Deno.writeTextFile(new URL(own), "x"); console.log("CHANGED"); } catch { console.log("kept"); }
await Deno.remove("/skills/made.ts");`, 20*time.Second)
			want := "pinned loose of pinned data\npinned\npinned\npinned\npinned\nrefused\npinned\nmade pinned\nkept\nkept\nkept\n"
			if r.Stdout != want {
				t.Errorf("got\n%s%s\nwant\n%s", r.Stdout, r.Stderr, want)
			}
		}
		w.Language, w.Skills = sandboxapi.LanguagePython, map[string]string{"open-report.py": "who = 'pinned'\n"}
		r := w.RunCode(t, `
import os
from skills import open_report, loose
print(open_report.who, loose.who)
for change in (lambda: open(open_report.__file__, "w"), lambda: os.unlink(open_report.__file__), lambda: os.chmod(open_report.__file__, 0o777),
               lambda: os.rename("/skills/loose.py", open_report.__file__)):
    try:
        change()
        print("CHANGED")
    except OSError:
        print("kept")
`, 20*time.Second)
		if want := "pinned loose of pinned\nkept\nkept\nkept\nkept\n"; r.Stdout != want {
			t.Errorf("Python: got\n%s%s\nwant\n%s", r.Stdout, r.Stderr, want)
		}
		w.Language, w.Skills = sandboxapi.LanguageTypeScript, nil // the control: what was planted is imported, or stops the run
		if r := w.RunCode(t, `console.log((await import("/skills/loose.ts")).who)`, 20*time.Second); !strings.Contains(r.Stdout, "loose of evil\n") && !strings.Contains(r.Stderr, "Permission denied") {
			t.Errorf("without pinned skills: %s%s", r.Stdout, r.Stderr)
		}
	})
}

// TestPinnedWarm: as long as skills are pinned, runs find a warm interpreter.
func TestPinnedWarm(t *testing.T) {
	w := StartWorld(t, Options{Mode: User, Slots: 2, Warm: 1})
	w.Skills = map[string]string{"pinned.ts": "export const who = 'pinned';"}
	code := `import { who } from "/skills/pinned.ts"; console.log(who);`
	w.RunCode(t, code, 20*time.Second)
	testkit.WaitFor(t, func() bool {
		r := w.RunCode(t, code, 20*time.Second)
		return r.Exit.Warm && r.Stdout == "pinned\n"
	})
}

package attack

import (
	"context"
	"fmt"
	"strings"

	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// twoRuns asks from two runs, one after the other: what a server leaves behind its answer to the first, which code may
// choose, must not lie on the connection of the second.
func twoRuns(ctx context.Context, w *world.World) (string, bool) {
	trial := mark()
	for _, run := range []string{"one", "two"} {
		e := &Evidence{World: w, Trial: trial}
		e.Result, e.Failed = w.Do(ctx, w.Session(), world.Run{Timeout: 20,
			Code: prelude("") + fmt.Sprintf(`for (let i = 0; i < 3; i++) await show(fetch("https://other.test/x/ok?t=%s&run=%s"));`, trial, run)})
		if e.Failed != nil || len(e.lines()) != 3 {
			return e.brief(), false
		}
	}
	connections := 0
	for _, c := range w.Upstream.Wires(upstream.Other) {
		one, two := strings.Contains(string(c.Bytes), trial+"&run=one"), strings.Contains(string(c.Bytes), trial+"&run=two")
		if one && two {
			return "both runs on one connection", false
		}
		if one || two {
			connections++
		}
	}
	return fmt.Sprintf("%d connections", connections), connections >= 2
}

// neighbours are attempts on another run, under way or over.
func neighbours() []Attack {
	// Two runs at a time, which share a mark: what the first one is for, the second one tries.
	pair := func(language, first, second string) func(context.Context, *world.World) (string, bool) {
		return func(ctx context.Context, w *world.World) (string, bool) {
			trial, judged := mark(), verdicts()
			code := func(text string) string { return strings.ReplaceAll(prelude(language)+text, "TRIAL", trial) }
			other := make(chan *Evidence, 1)
			go func() {
				e := &Evidence{World: w, Trial: trial}
				e.Result, e.Failed = w.Do(ctx, w.Session(), world.Run{Timeout: 25, Language: language, Code: code(first)})
				other <- e
			}()
			e := &Evidence{World: w, Trial: trial}
			e.Result, e.Failed = w.Do(ctx, w.Session(), world.Run{Timeout: 25, Language: language, Code: code(second)})
			for _, e := range []*Evidence{e, <-other} {
				if seen, held := judged(e); !held || e.misfired() != "" {
					return e.misfired() + seen, false
				}
			}
			return e.brief(), true
		}
	}
	return []Attack{
		{Section: "A", Name: "the answer to another run's request", Expected: "no connection is used by two runs", Do: twoRuns},
		{Section: "A", Name: "another run's private file in /tmp", Expected: "denied", Root: true, Do: pair("", `Deno.writeTextFileSync("/tmp/TRIAL", "private", { mode: 0o600 });
for (let i = 0; i < 400; i++) { try { Deno.statSync("/tmp/TRIAL-done"); break; } catch { await new Promise((d) => setTimeout(d, 50)); } }
Deno.removeSync("/tmp/TRIAL");
out({ held: true, seen: "owned" });`, `let there = false;
for (let i = 0; i < 400 && !there; i++) { try { Deno.statSync("/tmp/TRIAL"); there = true; } catch { await new Promise((d) => setTimeout(d, 50)); } }
const tries = { read: () => Deno.readTextFileSync("/tmp/TRIAL"), write: () => Deno.writeTextFileSync("/tmp/TRIAL", "mine"), move: () => Deno.renameSync("/tmp/TRIAL", "/tmp/TRIAL-moved"), link: () => Deno.linkSync("/tmp/TRIAL", "/tmp/TRIAL-link") };
if (there) for (const [name, f] of Object.entries(tries)) { try { f(); out({ held: false, seen: name + " worked" }); } catch (e) { out({ held: true, seen: name + ": " + e.name }); } }
Deno.writeTextFileSync("/tmp/TRIAL-done", "");`)},
		{Section: "A", Name: "Python: another run's private file in /tmp", Expected: "denied", Language: python, Root: true, Do: pair(python, `
with open(os.open("/tmp/TRIAL", os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
    f.write("private")
for _ in range(400):
    if os.path.exists("/tmp/TRIAL-done"):
        break
    time.sleep(0.05)
with open("/tmp/TRIAL") as f:
    out(held=f.read() == "private", seen="owned")
os.remove("/tmp/TRIAL")
`, `
for _ in range(400):
    if os.path.exists("/tmp/TRIAL"):
        break
    time.sleep(0.05)
for name, call in {
    "read": lambda: open("/tmp/TRIAL").read(), "write": lambda: open("/tmp/TRIAL", "a").write("mine"), "mode": lambda: os.chmod("/tmp/TRIAL", 0o666),
    "move": lambda: os.rename("/tmp/TRIAL", "/tmp/TRIAL-moved"), "link": lambda: os.link("/tmp/TRIAL", "/tmp/TRIAL-link"), "remove": lambda: os.remove("/tmp/TRIAL"),
    "owner": lambda: os.chown("/tmp/TRIAL", os.getuid(), os.getgid()), "size": lambda: os.truncate("/tmp/TRIAL", 0),
}.items():
    attempt(name, call, {errno.EPERM, errno.EACCES})
open("/tmp/TRIAL-done", "x").close()
`)},
		{Section: "A", Name: "Python: two slots meet", Expected: "they cannot", Language: python, Do: pair(python, `
met = []
with contextlib.suppress(OSError), socket.create_server(("0.0.0.0", 18222)) as s:
    s.settimeout(4)
    met.append(s.accept()[1])
out(held=not met, seen=f"met {met}")
`, `
end = time.monotonic() + 3
while time.monotonic() < end:
    for host in ["127.0.0.1", RESOLVER] + [f"10.77.0.{n}" for n in (*range(100, 108), *range(200, 204))]:
        with contextlib.suppress(OSError):
            socket.create_connection((host, 18222), 0.05).close()
            out(held=False, seen=f"reached it at {host}")
    time.sleep(0.1)
out(held=True, seen="nobody there")
`)},
	}
}

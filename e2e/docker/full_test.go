package docker

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/attack"
	"github.com/codeforge-mcp/codeforge/e2e/turn"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// takesMemory waits until no attack measures the machine's memory, and lets none measure it until the test has ended: the
// stack's /tmp is memory.
func takesMemory(t *testing.T) {
	t.Helper()
	release, err := turn.Take(t.Context(), attack.Memory)
	testkit.Must(t, err)
	t.Cleanup(release)
}

// call calls a tool over a new session and returns its first text.
func call(t *testing.T, tool string, arguments map[string]any) (text string, failed bool) {
	t.Helper()
	session, err := connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range res.Content {
		if c, ok := c.(*mcp.TextContent); ok {
			text += c.Text
		}
	}
	return text, res.IsError
}

// TestFull writes more to shared directories than a run may: the run is ended with a clear reason, its files are
// removed, and the next run works.
// Promise: file-limits
func TestFull(t *testing.T) {
	takesMemory(t)
	for _, dir := range []string{"/tmp", "/skills"} {
		t.Run(strings.Trim(dir, "/"), func(t *testing.T) {
			r := execute(t, `
const big = new Uint8Array(8 << 20).fill(1);
let n = 0;
try { for (; n < 200; n++) Deno.writeFileSync("`+dir+`/fill-" + n, big); await new Promise((r) => setTimeout(r, 5000)); console.log("no end"); } catch (e) { console.log("full after", n, (e as Error).message); }`)
			t.Logf("%q %q", r.Text, r.Notes)
			if !r.Failed || strings.Contains(r.Text, "no end") || !strings.Contains(r.Text+r.Notes, "removed") {
				t.Errorf("%s has no bound, or the run was not told: failed %v, %q %q", dir, r.Failed, r.Text, r.Notes)
			}
			r = execute(t, `console.log([...Deno.readDirSync("`+dir+`")].filter((f) => f.name.startsWith("fill-")).length);
Deno.writeTextFileSync("`+dir+`/after.txt", "x"); Deno.removeSync("`+dir+`/after.txt"); console.log("written")`)
			if r.Failed || r.Text != "0\nwritten\n" {
				t.Errorf("%s afterwards: %q %q", dir, r.Text, r.Notes)
			}
			works(t)
		})
	}
}

// TestRoom fills /tmp with runs that each stay within their bound. The oldest files are removed, even from a directory
// that its owner has closed, and the next run has room.
func TestRoom(t *testing.T) {
	takesMemory(t)
	leave := func(name, more string) result {
		return execute(t, `const big = new Uint8Array(10 << 20).fill(1);
Deno.mkdirSync("/tmp/`+name+`");
for (let i = 0; i < 10; i++) Deno.writeFileSync("/tmp/`+name+`/" + i, big);
`+more)
	}
	const line = "removed the oldest files"
	before := strings.Count(stack.Logs(), line)
	together := make(chan result)
	for i := range 2 { // side by side: in two slots
		go func() {
			together <- leave(fmt.Sprint("room-beside-", i), `await new Promise((r) => setTimeout(r, 3000)); console.log("left")`)
		}()
	}
	for range 2 {
		if r := <-together; r.Failed {
			t.Errorf("%q %q", r.Text, r.Notes)
		}
	}
	if r := leave("room-closed", `Deno.chmodSync("/tmp/room-closed", 0);`); r.Failed {
		t.Errorf("after two that left 100 MB each: %q %q", r.Text, r.Notes)
	}
	for _, name := range []string{"room-next", "room-last"} {
		if r := leave(name, ""); r.Failed {
			t.Errorf("after one that closed its directory: %q %q", r.Text, r.Notes)
		}
	}
	r := execute(t, `for (const f of Deno.readDirSync("/tmp")) if (f.name.startsWith("room-")) console.log(f.name, [...Deno.readDirSync("/tmp/" + f.name)].length)`)
	if !strings.Contains(r.Text, "room-last 10") {
		t.Errorf("the newest files are gone: %q %q", r.Text, r.Notes)
	}
	if strings.Count(stack.Logs(), line) == before {
		t.Error("no line in the log says that files were removed")
	}
	works(t)
}

// TestFullVolume fills the disk below /skills. Code and update_skill get errors, no skill is lost or half written, and
// deleting something is enough to recover, even after a restart of mcp-server.
func TestFullVolume(t *testing.T) {
	works(t)
	up := func(extra ...string) {
		t.Helper()
		stack.With(extra...)
		if err := stack.Up(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		up()
		if out, err := exec.CommandContext(context.Background(), "docker", "volume", "rm", "codeforge-e2e_small-skills").CombinedOutput(); err != nil {
			t.Errorf("removing the volume: %v: %s", err, out)
		}
	})
	up("e2e/docker-compose.full.yml")
	const skill = "/** @description kept */\nexport const kept = 1;\n"
	r := execute(t, `Deno.writeTextFileSync("/skills/kept.ts", `+"`"+skill+"`"+`);
const f = Deno.openSync("/skills/filler", {write: true, create: true});
try { for (;;) f.writeSync(new Uint8Array(4096)); } catch (e) { console.log((e as Error).message); }
Deno.writeTextFileSync("/skills/new.ts", "x".repeat(9000));`)
	if !r.Failed || strings.Count(r.Text+r.Notes, "No space left on device") < 2 {
		t.Errorf("code was not told that the disk is full: %q %q", r.Text, r.Notes)
	}
	patch := "<<<<<<< SEARCH\nexport const kept = 1;\n=======\nexport const kept = 2; // " + strings.Repeat("x", 9000) + "\n>>>>>>> REPLACE"
	update := func() (string, bool) {
		return call(t, "update_skill", map[string]any{"name": "kept", "patch": patch})
	}
	look := func(want string) {
		t.Helper()
		r := execute(t, `console.log(Deno.readTextFileSync("/skills/kept.ts").slice(0, 46)); console.log([...Deno.readDirSync("/skills")].filter((f) => f.name.startsWith(".codeforge-") && f.name !== ".codeforge-seeded").length)`)
		if !strings.HasPrefix(r.Text, want) || !strings.HasSuffix(r.Text, "\n0\n") {
			t.Errorf("the skill, and files left half written: %q %q, want %q", r.Text, r.Notes, want)
		}
	}
	text, failed := update()
	if !failed || !strings.Contains(text, "no room left in /skills") {
		t.Errorf("update_skill on a full disk: %v %q", failed, text)
	}
	look(skill[:46])
	crash(t, "mcp-server")
	heals(t, healTime)
	look(skill[:46])
	if r := execute(t, `Deno.removeSync("/skills/filler"); console.log("removed")`); r.Failed {
		t.Errorf("removing something: %q %q", r.Text, r.Notes)
	}
	if text, failed := update(); failed {
		t.Errorf("with room again: %q", text)
	}
	look(strings.Replace(skill, "1", "2", 1)[:46])
}

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
	return []Attack{{
		Section: "A", Name: "the answer to another run's request", Expected: "no connection is used by two runs", Do: twoRuns,
	}, {Section: "A", Name: "another run's private file in /tmp", Expected: "denied", Root: true, Do: func(ctx context.Context, w *world.World) (string, bool) {
		trial := mark()
		owner := make(chan error, 1)
		go func() {
			_, err := w.Do(ctx, w.Session(), world.Run{Timeout: 25, Code: fmt.Sprintf(`Deno.writeTextFileSync("/tmp/%[1]s", "private", { mode: 0o600 });
for (let i = 0; i < 400; i++) { try { Deno.statSync("/tmp/%[1]s-done"); break; } catch { await new Promise((d) => setTimeout(d, 50)); } }
Deno.removeSync("/tmp/%[1]s");`, trial)})
			owner <- err
		}()
		e := &Evidence{World: w, Trial: trial}
		e.Result, e.Failed = w.Do(ctx, w.Session(), world.Run{Timeout: 25, Code: strings.ReplaceAll(prelude("")+`let there = false;
for (let i = 0; i < 400 && !there; i++) { try { Deno.statSync("/tmp/TRIAL"); there = true; } catch { await new Promise((d) => setTimeout(d, 50)); } }
const tries = { read: () => Deno.readTextFileSync("/tmp/TRIAL"), write: () => Deno.writeTextFileSync("/tmp/TRIAL", "mine"), move: () => Deno.renameSync("/tmp/TRIAL", "/tmp/TRIAL-moved"), link: () => Deno.linkSync("/tmp/TRIAL", "/tmp/TRIAL-link") };
if (there) for (const [name, f] of Object.entries(tries)) { try { f(); out({ held: false, seen: name + " worked" }); } catch (e) { out({ held: true, seen: name + ": " + e.name }); } }
Deno.writeTextFileSync("/tmp/TRIAL-done", "");`, "TRIAL", trial)})
		seen, held := verdicts()(e)
		if err := <-owner; err != nil {
			return err.Error(), false
		}
		return seen, held
	}}}
}

package attack

import (
	"context"
	"fmt"
	"strings"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// Of the memory that a run may take: its limit (SANDBOX_MEMORY as it is without a setting), and what it can exceed that by
// between two looks, with the interpreters that wait beside it.
const (
	memoryLimit = 1 << 30
	memorySlack = 640 << 20
)

// overMemory is how a run is told that it was ended for its memory.
const overMemory = "more memory than its limit"

// memory are attempts to hold more memory than a run may. What they came to is measured from outside (see gauge).
func memory() []Attack {
	var all []Attack
	code := func(name, text string, words ...string) {
		judge := ended(append(words, overMemory)[0])
		all = append(all, Attack{Section: "F", Name: name, Expected: "ends at its limit", Alone: true, Do: weighed(world.Run{Code: prelude + text, Timeout: 20}, judge)})
	}
	code("buffers of workers, 700 MiB each", `const src = "const a = []; for (let n = 0; n < 11; n++) a.push(new Uint8Array(64 << 20).fill(1)); postMessage(1); setInterval(() => a, 1e6);"; const all = [...Array(4)].map(() => new Worker("data:application/javascript," + encodeURIComponent(src), { type: "module" })); await Promise.all(all.map((w) => new Promise((d) => w.onmessage = d))); await new Promise((d) => setTimeout(d, 1500)); out({ seen: "took them all" });`)
	code("WebAssembly memories of 2.5 GiB", `const all = []; for (let n = 0; n < 5; n++) { const m = new WebAssembly.Memory({ initial: 8192, maximum: 8192, shared: n % 2 === 0 }); new Uint8Array(m.buffer).fill(1); all.push(m); } await new Promise((d) => setTimeout(d, 1500)); out({ seen: "took them all: " + all.length });`)
	code("blobs of 2.5 GiB", `const all = []; for (let n = 0; n < 40; n++) all.push(new Blob([new Uint8Array(64 << 20).fill(n)])); await new Promise((d) => setTimeout(d, 1500)); out({ seen: "took them all: " + all.length });`)
	code("shared buffers of 2.5 GiB", `const all = []; for (let n = 0; n < 40; n++) all.push(new Uint8Array(new SharedArrayBuffer(64 << 20)).fill(1)); await new Promise((d) => setTimeout(d, 1500)); out({ seen: "took them all: " + all.length });`)
	code("databases in memory of 2.5 GiB", `import { DatabaseSync } from "node:sqlite"; const db = new DatabaseSync(":memory:"); db.exec("create table a (b blob)"); const add = db.prepare("insert into a values (zeroblob(67108864))"); for (let n = 0; n < 40; n++) add.run(); await new Promise((d) => setTimeout(d, 1500)); out({ seen: "took them all" });`)
	for _, dir := range []string{"/tmp", "/skills"} {
		code("files of 2.5 GiB in "+dir+", open and removed", `const all = []; for (let n = 0; n < 20; n++) { const path = "`+dir+`/TRIAL-" + n; const f = Deno.openSync(path, { write: true, createNew: true }); Deno.removeSync(path); all.push(f); for (let k = 0; k < 127; k++) f.writeSync(new Uint8Array(1 << 20).fill(1)); await new Promise((d) => setTimeout(d, 50)); } await new Promise((d) => setTimeout(d, 1500)); out({ seen: "took them all" });`, "that it had removed")
	}
	for _, how := range []string{
		"of its own", "in children", "in memfds", "in memfds on their way", "in shared pages given back", "in pages of /dev/zero", "in huge pages",
		"in page tables", "in System V segments", "in files without a name", "in attributes of files", "in pipes", "in pairs of sockets", "in sockets to themselves", "in sockets of many tables",
	} {
		name := "memory bomb " + how
		all = append(all, Attack{
			Section: "F", Name: "escaped: " + name, Expected: "refused, or ends at its limit; nothing stays", Escaped: true, Alone: true,
			Do: weighed(world.Run{Code: task("TRIAL", nil, name), Timeout: 30}, overweight),
		})
	}
	return all
}

// weighed runs code and measures meanwhile. It held when the run was ended for its memory, or the intruder was refused, and
// at no time more was there than may be; and nothing is left.
func weighed(r world.Run, judge Judge) func(context.Context, *world.World) (string, bool) {
	return func(ctx context.Context, w *world.World) (string, bool) {
		e := &Evidence{World: w, Trial: mark()}
		r := r
		r.Code = strings.ReplaceAll(r.Code, "TRIAL", e.Trial)
		g := startGauge()
		e.Result, e.Failed = w.Do(ctx, w.Session(), r)
		peak, measured := g.end()
		seen, held := gone(judge)(e)
		seen = fmt.Sprintf("%d MiB from outside; %s", peak>>20, seen)
		if !measured {
			return "nothing was measured; " + seen, false
		}
		if shared := shmem() - g.before; shared > memorySlack {
			return fmt.Sprintf("%d MiB of shared memory stay; %s", shared>>20, seen), false
		}
		return seen, held && peak < memoryLimit+memorySlack
	}
}

// overweight: the run was ended for its memory, or for files that nobody sees, or what has escaped was refused.
func overweight(e *Evidence) (string, bool) {
	for _, word := range []string{overMemory, "that it had removed"} {
		if seen, held := ended(word)(e); held {
			return seen, true
		}
	}
	return verdicts()(e)
}

package servers

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// fault is one way in which a server fails, and what code is told.
type fault struct {
	name string
	// faults are arguments of the program hostile.
	faults string
	// mcp are other fields of the server's config.json.
	mcp map[string]any
	// code is the body of an async function with the server as s, whose result is printed. A McpError is printed as
	// its code and its message.
	code string
	// want is how the output begins; says is what else is in it.
	want, says string
	// again is how the next call's output may begin, one beside the other with a |; empty: "again". A call that follows at
	// once on a cancelled one may reach the server before anybody knows that it hangs or dies.
	again string
}

const hi = `return await s.echo({ text: "hi" });`

// block calls a server that has started, so that the call reaches it before it is cancelled.
const block = `await s.echo({ text: "" });
return await s.block({ text: "", ms: 120000 }, { timeout: 500 });`

// faults is the table. A server dies at each step of a call, from its start to long after its answer; and it does each
// thing that no server should.
var faults = []fault{
	{name: "dies at start", faults: "dies-at-start", code: hi, want: "server_unavailable", says: "KEY is required", again: "server_unavailable"},
	{name: "dies at server-discover", faults: "dies-at-server-discover", code: hi, want: "hi"},
	{name: "dies at initialize", faults: "dies-at-initialize", code: hi, want: "server_unavailable", says: "exit status 4", again: "server_unavailable"},
	{name: "dies at initialized", faults: "dies-at-notifications-initialized", code: hi, want: "server_unavailable", says: "exit status 4", again: "server_unavailable"},
	{name: "dies at tools-list", faults: "dies-at-tools-list", code: hi, want: "server_unavailable", says: "exit status 4", again: "server_unavailable"},
	{name: "dies at tools-call", faults: "dies-at-tools-call", code: hi, want: "server_unavailable", says: "exit status 4", again: "server_unavailable"},
	{name: "dies in a call", code: `return await s.die({ text: "" });`, want: "server_unavailable", says: "may have been carried out"},
	{name: "dies in an answer", code: `return await s.half({ text: "" });`, want: "server_unavailable", says: "exit status 6"},
	// A call may arrive between the answer and the end, and then nobody knows what became of it.
	{name: "dies after an answer", code: `return await s.leave({ text: "answered" });`, want: "answered", again: "again|server_unavailable"},
	{name: "dies under other calls", code: `const slow = Array.from({ length: 3 }, () => s.slow({ text: "", ms: 60000 }).catch((e) => e.code));
return [await s.die({ text: "", ms: 3 }).catch((e) => e.code), ...await Promise.all(slow)].join();`,
		want: "server_unavailable,server_unavailable,server_unavailable,server_unavailable"},
	{name: "dies at a cancelled call", faults: "dies-at-notifications-cancelled",
		code: `return await s.never({ text: "" }, { timeout: 500 });`, want: "timeout", again: "again|server_unavailable"},

	{name: "prints a banner", faults: "banner", code: hi, want: "hi"},
	{name: "prints between answers", code: `return await s.stray({ text: "hi" });`, want: "hi"},
	{name: "floods stderr", faults: "floods-stderr", code: hi, want: "hi"},
	{name: "never answers discover", faults: "silent-at-server-discover", code: hi, want: "hi"},
	{name: "never answers anything", faults: "silent-at-server-discover silent-at-initialize", mcp: map[string]any{"connect_timeout": 5},
		code: hi, want: "server_unavailable", says: "did not answer within", again: "server_unavailable"},
	{name: "answers a gigabyte", code: `return await s.huge({ text: "", ms: 1024 });`, want: "result_too_large", says: "16 MiB"},
	{name: "nests 10,000 deep", code: `return await s.deep({ text: "" });`, want: "result_too_large", says: "512"},
	{name: "lists pages without end", faults: "endless-pages", code: `return (await s.$tools()).length;`, want: "100", again: "tool_not_found"},
	{name: "answers another's id", code: `return await s["other-id"]({ text: "hi" });`, want: "hi"},
	{name: "answers twice", code: `return [await s.twice({ text: "1" }), await s.twice({ text: "2" })].join();`, want: "1,2"},
	{name: "changes its tools while in use", code: `await s.change({ text: "" });
await s.grow({ text: "" });
for (;;) {
  const got = await s.grown0({ text: "grown" }).catch((e) => e.code);
  if (got !== "tool_not_found") return got;
}`, want: "quarantined"}, // until the user has seen the new tool
	{name: "ignores a cancel", code: `return await s.never({ text: "" }, { timeout: 500 });`, want: "timeout"},
	{name: "hangs after a cancel", code: block, want: "timeout", again: "server_unavailable"},
	{name: "ignores every wish to end", faults: "ignores-eof ignores-sigterm",
		code: block, want: "timeout", again: "server_unavailable"},
	{name: "leaves a child behind", faults: "forks", code: `return await s.die({ text: "" });`, want: "server_unavailable"},
	{name: "leaves a daemon behind", faults: "forks daemon", code: `return await s.die({ text: "" });`, want: "server_unavailable"},
}

// id is the name of the fault's server.
func (f fault) id() string { return strings.Map(letters, f.name) }

func letters(r rune) rune {
	if r < 'a' || r > 'z' {
		return '_'
	}
	return r
}

// misbehaving is an API that is the program hostile.
func misbehaving(name string, faults string, mcp map[string]any) world.API {
	spec := map[string]any{"command": append([]string{"hostile"}, strings.Fields(faults)...)}
	for k, v := range mcp {
		spec[k] = v
	}
	return world.API{Name: name, Config: map[string]any{"description": "an MCP server", "mcp": spec}}
}

// TestFaults: whatever a server does, the code that called it gets a clear error or the right answer, its neighbour goes
// on, and nothing of it is left.
func TestFaults(t *testing.T) {
	world.RunInOneMode(t, "mcp-server and the bridge decide it")
	program, err := world.Program("hostile")
	if err != nil {
		t.Fatal(err)
	}
	apis := []world.API{misbehaving("good", "", nil), misbehaving("late", "", map[string]any{"connect_timeout": 1})}
	for _, f := range faults {
		apis = append(apis, misbehaving(f.id(), f.faults, f.mcp))
	}
	w := world.Start(t, world.Config{APIs: apis, Env: map[string]string{"SANDBOX_PROGRAMS": filepath.Dir(program), "SANDBOX_SERVERS": "3"}})
	run := func(code string) world.Result {
		ctx, cancel := context.WithTimeout(t.Context(), 3*testkit.Patience)
		defer cancel()
		res, err := w.Do(ctx, w.Session(), world.Run{Code: code, Timeout: 150})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	neighbour := run(`console.log(await mcp.good.pid({ text: "" }));`).Out
	for _, f := range faults {
		t.Run(strings.ReplaceAll(f.name, " ", "-"), func(t *testing.T) {
			again := strings.Split(cmp.Or(f.again, "again"), "|")
			res := run(fmt.Sprintf(`const s = mcp.%s, told = (e) => e instanceof McpError ? e.code + " " + e.message : "no McpError: " + e;
const first = await (async () => {
  %s
})().catch(told);
const next = await s.echo({ text: "again" }).catch(told);
console.log(first);
console.log(next);
console.log(await mcp.good.pid({ text: "" }));`, f.id(), f.code))
			lines := strings.Split(res.Out, "\n")
			if res.IsError || len(lines) != 4 {
				t.Fatalf("out %q, notes %q", res.Out, res.Notes)
			}
			if !strings.HasPrefix(lines[0], f.want) || !strings.Contains(lines[0], f.says) || len(lines[0]) > 3000 {
				t.Errorf("code was told %.500q, want %q and %q", lines[0], f.want, f.says)
			}
			if !slices.ContainsFunc(again, func(want string) bool { return strings.HasPrefix(lines[1], want) }) {
				t.Errorf("the next call was told %.500q, want %q", lines[1], again)
			}
			if lines[2]+"\n" != neighbour {
				t.Errorf("the neighbour is process %s, and was %s", lines[2], neighbour)
			}
		})
	}
	t.Run("slots-full", func(t *testing.T) {
		res := run(`const busy = ["good", "prints_a_banner", "answers_twice"].map((name) => mcp[name].slow({ text: name, ms: 8000 }));
await new Promise((go) => setTimeout(go, 3000));
console.log(await mcp.late.echo({ text: "hi" }).catch((e) => e.code + " " + e.retryable + " " + e.message));
console.log((await Promise.all(busy)).join());`)
		if !strings.HasPrefix(res.Out, "slots_full true ") || !strings.Contains(res.Out, "SANDBOX_SERVERS") || !strings.HasSuffix(res.Out, "\ngood,prints_a_banner,answers_twice\n") {
			t.Errorf("out %q, notes %q", res.Out, res.Notes)
		}
	})
	t.Run("nothing-left", func(t *testing.T) {
		// The servers that hold the other two slots make room for two that are well.
		w.MustExecute(t, `await Promise.all([mcp.prints_a_banner.echo({ text: "" }), mcp.answers_twice.echo({ text: "" })]);`)
		var left []string
		end := time.Now().Add(testkit.Patience)
		for ; time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			all, err := w.Processes(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			left = left[:0]
			for _, line := range all {
				if fields := strings.Fields(line); len(fields) > 0 && filepath.Base(fields[0]) == "hostile" {
					left = append(left, line)
				}
			}
			if len(left) == 3 {
				return
			}
		}
		t.Errorf("processes of three servers are left: %q", left)
	})
}

package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// bearable is how long mcp-server may work on one message, on a busy machine. What these attacks send took minutes
// where the work grew with its square.
const bearable = 20 * time.Second

// costs are small messages that are much work, and messages that are kept.
func costs() []Attack {
	tool := func(name string, call func() (tool string, arguments map[string]any), plant string) Attack {
		noPod := ""
		if plant != "" {
			noPod = noSkills
		}
		return Attack{Section: "E", Name: name, Expected: "answered at once", NoPod: noPod, Chain: "skills", Do: func(ctx context.Context, w *world.World) (string, bool) {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			if plant != "" {
				defer clear(ctx, w)
				if _, err := w.Execute(ctx, plant); err != nil {
					return err.Error(), false
				}
			}
			t, arguments := call()
			return timed(ctx, w, "tools/call", map[string]any{"name": t, "arguments": arguments})
		}}
	}
	update := func(name, patch, plant string) Attack {
		return tool("update_skill: "+name, func() (string, map[string]any) {
			return "update_skill", map[string]any{"name": "planted", "patch": patch}
		}, plant)
	}
	block := func(search, replace string) string {
		return "<<<<<<< SEARCH\n" + search + "=======\n" + replace + ">>>>>>> REPLACE\n"
	}
	const blank = `Deno.writeTextFileSync("/skills/planted.ts", "\n".repeat(260000));`
	read := func(name, method string, params map[string]any) Attack {
		const ticks = "Deno.writeTextFileSync('/skills/planted.ts', '`'.repeat(260000));"
		return Attack{Section: "G", Name: name, Expected: "answered at once", NoPod: noSkills, Chain: "skills", Do: func(ctx context.Context, w *world.World) (string, bool) {
			ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
			defer cancel()
			defer clear(context.WithoutCancel(ctx), w)
			if _, err := w.Execute(ctx, ticks); err != nil {
				return err.Error(), false
			}
			return timed(ctx, w, method, params)
		}}
	}
	large := func(name string, body string) Attack {
		return Attack{Section: "E", Name: name, Expected: "413", Do: func(ctx context.Context, w *world.World) (string, bool) {
			status, _, _, err := call{body: body}.send(ctx, w)
			return fmt.Sprint(status, " ", err), status == http.StatusRequestEntityTooLarge && alive(ctx, w)
		}}
	}
	long := strings.Repeat("x", 8<<20)
	return []Attack{
		update("1 MiB of blank lines", block(strings.Repeat("\n", 1<<20), ""), blank),
		update("half a MiB of blank lines", block(strings.Repeat("\n", 250000), strings.Repeat("\n", 250000)), blank),
		update("blank lines that do not occur", block(strings.Repeat("\n", 130000)+"x\n", ""), blank),
		update("20,000 blocks", strings.Repeat(block("a\n", "a\n"), 20000), blank),
		update("a search like every line", block(strings.Repeat("b a\n", 50000), ""), `Deno.writeTextFileSync("/skills/planted.ts", "a b c d e f\n".repeat(20000));`),
		tool("execute_code with 300,000 names of APIs", func() (string, map[string]any) {
			names := make([]string, 300_000)
			for i := range names {
				names[i] = fmt.Sprintf("%s%d", strings.Repeat("a", 20), i)
			}
			return "execute_code", map[string]any{"code": "1", "apis": names}
		}, ""),
		tool("execute_code with 500,000 arguments", func() (string, map[string]any) {
			arguments := map[string]any{"code": "1"}
			for i := range 500_000 {
				arguments[fmt.Sprintf("argument%d", i)] = 1
			}
			return "execute_code", arguments
		}, ""),
		tool("execute_code with one API named 100,000 times", func() (string, map[string]any) {
			names := make([]string, 100_000)
			for i := range names {
				names[i] = "httpbin"
			}
			return "execute_code", map[string]any{"code": "1", "apis": names}
		}, ""),
		tool("list_apis of a name of 4 MiB", func() (string, map[string]any) { return "list_apis", map[string]any{"api": strings.Repeat("a", 4<<20)} }, ""),
		read("a skill of 260,000 backticks, read", "resources/read", map[string]any{"uri": "skill://planted"}),
		read("a skill of 260,000 backticks, as prompt", "prompts/get", map[string]any{"name": "run_skill", "arguments": map[string]any{"name": "planted"}}),
		read("a skill of 260,000 backticks, listed", "skills/list", map[string]any{}),
		large("a client with a name of 8 MiB", strings.Replace(initialize, `"name":"x"`, `"name":"`+long+`"`, 1)),
		large("an id of 8 MiB", strings.Replace(initialize, `"id":1`, `"id":"`+long+`"`, 1)),
		{Section: "E", Name: "update_skill for a client that has gone", Expected: "it ends", NoPod: noSkills, Chain: "skills", Do: departed},
	}
}

// timed sends one request in a session of its own. Any answer will do, an error too, if it comes soon and is short.
func timed(ctx context.Context, w *world.World, method string, params map[string]any) (string, bool) {
	_, _, header, err := call{}.send(ctx, w)
	if err != nil {
		return err.Error(), false
	}
	text, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 2, "method": method, "params": params})
	if err != nil {
		return err.Error(), false
	}
	began := time.Now()
	status, answer, _, err := call{body: string(text), header: map[string]string{"Mcp-Session-Id": header.Get("Mcp-Session-Id")}}.send(ctx, w)
	took := time.Since(began)
	seen := fmt.Sprintf("%d, %d bytes after %s", status, len(answer), took.Round(10*time.Millisecond))
	if err != nil {
		return clip(err.Error(), 120), false
	}
	if params["name"] == "execute_code" && strings.Contains(answer, `"exited"`) {
		return "it ran: " + seen, false
	}
	return seen, took < bearable && (method != "tools/call" || len(answer) < 64<<10)
}

// departed sends large patches and hangs up: mcp-server must not go on with them.
func departed(ctx context.Context, w *world.World) (string, bool) {
	defer clear(context.WithoutCancel(ctx), w)
	if _, err := w.Execute(ctx, `Deno.writeTextFileSync("/skills/planted.ts", "\n".repeat(260000));`); err != nil {
		return err.Error(), false
	}
	for range 8 {
		_, _, header, err := call{}.send(ctx, w)
		if err != nil {
			return err.Error(), false
		}
		patch, _ := json.Marshal("<<<<<<< SEARCH\n" + strings.Repeat("\n", 130000) + "x\n=======\n>>>>>>> REPLACE")
		body := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"update_skill","arguments":{"name":"planted","patch":` + string(patch) + `}}}`
		soon, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		_, _, _, _ = call{body: body, header: map[string]string{"Mcp-Session-Id": header.Get("Mcp-Session-Id")}}.send(soon, w)
		cancel()
	}
	began := time.Now()
	r, err := w.Execute(ctx, "console.log('served')")
	took := time.Since(began)
	return fmt.Sprintf("meanwhile: %s after %s", clip(r.Out, 20), took.Round(time.Millisecond)), err == nil && r.Out == "served\n" && took < bearable
}

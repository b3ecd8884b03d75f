package attack

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// tenants are attempts of one of several clients against another.
func tenants() []Attack {
	tenant := func(name, expected string, do func(ctx context.Context, w *world.World) (string, bool)) Attack {
		return Attack{Section: "T", Name: "tenants: " + name, Expected: expected, Tenants: true,
			Do: func(ctx context.Context, w *world.World) (string, bool) {
				ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
				defer cancel()
				return do(ctx, w)
			}}
	}
	saved := func(name, expected string, do func(ctx context.Context, w *world.World) (string, bool)) Attack {
		a := tenant(name, expected, do)
		a.NoPod = "no skill is saved there without Postgres"
		return a
	}
	code := func(name, expected, token, code, has string, not ...string) Attack {
		return tenant(name, expected, func(ctx context.Context, w *world.World) (string, bool) {
			text, err := run(ctx, w, token, code)
			if err != nil {
				return err.Error(), false
			}
			return none(text, has, not...)
		})
	}
	tool := func(name, expected, token, tool string, args map[string]any, has string, not ...string) Attack {
		return tenant(name, expected, func(ctx context.Context, w *world.World) (string, bool) {
			s, err := as(ctx, w, token)
			if err != nil {
				return err.Error(), false
			}
			defer s.Close()
			text, err := sayOf(ctx, s, tool, args)
			if err != nil {
				return err.Error(), false
			}
			return none(text, has, not...)
		})
	}
	status := func(name, expected, token string, c call, want int) Attack {
		return tenant(name, expected, func(ctx context.Context, w *world.World) (string, bool) {
			c.stranger = true
			if c.header == nil {
				c.header = map[string]string{}
			}
			if token != "" {
				c.header["Authorization"] = "Bearer " + token
			}
			got, text, _, err := c.send(ctx, w)
			if err != nil {
				return err.Error(), false
			}
			return fmt.Sprintf("%d %s", got, clip(text, 50)), got == want
		})
	}
	// with makes a request in a session of alice's with another token, and then one with hers.
	with := func(name, expected, token string, method string, want int) Attack {
		return tenant(name, expected, func(ctx context.Context, w *world.World) (string, bool) {
			s, err := as(ctx, w, alice)
			if err != nil {
				return err.Error(), false
			}
			defer s.Close()
			c := call{method: method, stranger: true, body: `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`,
				header: map[string]string{"Mcp-Session-Id": s.ID(), "Authorization": "Bearer " + token}}
			got, text, _, err := c.send(ctx, w)
			if err != nil {
				return err.Error(), false
			}
			if _, err := s.ListTools(ctx, nil); err != nil {
				return "hers is gone: " + err.Error(), false
			}
			return fmt.Sprintf("%d %s", got, clip(text, 50)), got == want
		})
	}
	const others, ask = `fetch("https://other.test/anything?t=TRIAL", {headers: {Authorization: "Bearer OTHER_TOKEN"}})`, `
try { const r = await %s; console.log("STATUS", r.status, await r.text()) } catch (e) { console.log("FAILED", String(e)) }`
	get := func(call string) string { return fmt.Sprintf(ask, call) }
	list := []Attack{
		tenant("control: the credential of one's own API", "arrives", func(ctx context.Context, w *world.World) (string, bool) {
			trial := mark()
			text, err := run(ctx, w, alice, strings.ReplaceAll(get(others), "TRIAL", trial))
			if err != nil {
				return err.Error(), false
			}
			seen := w.Upstream.Seen(trial)
			return clip(text, 80), len(seen) == 1 && seen[0].Header.Get("Authorization") == "Bearer "+w.Canaries["OTHER_TOKEN"].Value()
		}),
		tenant("the host of another's API", "refused as one in no API", func(ctx context.Context, w *world.World) (string, bool) {
			trial := mark()
			text, err := run(ctx, w, bob, strings.ReplaceAll(get(others), "TRIAL", trial))
			if err != nil {
				return err.Error(), false
			}
			// The host has no address, as one in no API: no request reaches the proxy, so no refusal names anything.
			seen, held := none(text, "_meta", "STATUS", "host_unknown", "api_not_in_run", "API other", "narrowed")
			return seen, held && len(w.Upstream.Seen(trial)) == 0
		}),
		code("the token name of another's API, at one's own host", "not swapped, and not told whose it is", bob,
			get(`fetch("https://httpbin.test/headers", {headers: {Authorization: "Bearer OTHER_TOKEN"}})`), "STATUS 200",
			"API other", "other.test", "other_api"),
		code("control: one's own credential", "the name, and a swap on the receipt", bob,
			get(`fetch("https://httpbin.test/headers", {headers: {Authorization: "Bearer HTTPBIN_TOKEN"}})`), `"name":"HTTPBIN_TOKEN"`),
		tool("narrowing a run to another's API", "no such API", bob, "execute_code",
			map[string]any{"code": get(others), "apis": []string{"other"}}, "there is no active API", "STATUS", "host_unknown"),
		tool("narrowing a run to one's own and another's", "no such API", bob, "execute_code",
			map[string]any{"code": get(others), "apis": []string{"httpbin", "other"}}, "there is no active API", "STATUS"),
		tool("list_apis", "one's own alone", bob, "list_apis", map[string]any{}, "HTTPBIN_TOKEN", "OTHER_TOKEN", "other.test"),
		tool("control: list_apis of the other", "its own", alice, "list_apis", map[string]any{}, "OTHER_TOKEN", "HTTPBIN_TOKEN", "httpbin"),
		tool("list_apis of another's API", "no such API", bob, "list_apis", map[string]any{"api": "other"}, "there is no active API", "OTHER_TOKEN"),
		tool("list_apis, searching", "nothing of others", bob, "list_apis", map[string]any{"query": "another API other.test"}, "content", "OTHER_TOKEN", "other.test"),
		tool("list_apis, a mistake", "an example of one's own", bob, "list_apis", map[string]any{"apis": 1}, "httpbin", "OTHER"),
		tool("get_instructions", "nothing of others", bob, "get_instructions", map[string]any{}, "How to use CodeForge", "OTHER_TOKEN", "other.test"),
		code("the typed client of another's API", "not there", bob, `import { other } from "/apis/other.ts"; console.log("SAW", typeof other)`, "isError", `"SAW`),
		with("another's session", "404", bob, http.MethodPost, http.StatusNotFound),
		with("deleting another's session", "404, and it goes on", bob, http.MethodDelete, http.StatusNotFound),
		with("another's session, by the operator's token", "404", Token, http.MethodPost, http.StatusNotFound),
		with("another's stream of events", "404", bob, http.MethodGet, http.StatusNotFound),
		tenant("another's run", "unknown, and it goes on", func(ctx context.Context, w *world.World) (string, bool) {
			a, err := as(ctx, w, alice)
			if err != nil {
				return err.Error(), false
			}
			defer a.Close()
			text, err := sayOf(ctx, a, "execute_code", map[string]any{"code": "console.log('OF-ALICE'); await new Promise((r) => setTimeout(r, 20000))", "background": true})
			id := runOf.FindString(text)
			if err != nil || id == "" {
				return clip(text, 200), false
			}
			defer func() { _, _ = sayOf(ctx, a, "get_run", map[string]any{"id": id, "cancel": true}) }()
			his := ""
			for _, token := range []string{bob, Token} {
				b, err := as(ctx, w, token)
				if err != nil {
					return err.Error(), false
				}
				defer b.Close()
				for _, args := range []map[string]any{{"id": id, "wait": 2}, {"id": id, "cancel": true}} {
					text, _ := sayOf(ctx, b, "get_run", args)
					his += text
				}
			}
			hers, _ := sayOf(ctx, a, "get_run", map[string]any{"id": id, "wait": 0})
			if !strings.Contains(hers, "still running") {
				return "it ended: " + clip(hers, 200), false
			}
			return none(his, "There is no run", "OF-ALICE", "still ", "Cancelled")
		}),
		with("control: one's own session", "200", alice, http.MethodPost, http.StatusOK),
		status("no token", "401", "", call{}, http.StatusUnauthorized),
		status("a token that is nobody's", "401", alice+"x", call{}, http.StatusUnauthorized),
		status("the hash of a token in its place", "401", hashed(alice), call{}, http.StatusUnauthorized),
		status("control: a tenant's token", "200", alice, call{}, http.StatusOK),
		status("control: the operator's token", "200", Token, call{}, http.StatusOK),
		status("the metrics", "401", bob, call{method: http.MethodGet, path: "/metrics"}, http.StatusUnauthorized),
		status("the state of servers", "401", bob, call{method: http.MethodGet, path: "/servers"}, http.StatusUnauthorized),
		status("the console's API", "401", bob, call{method: http.MethodGet, path: "/console/api/runs"}, http.StatusUnauthorized),
		status("signing in to the console", "401", bob, call{path: "/console/api/session", body: `{"secret": "` + bob + `"}`}, http.StatusUnauthorized),
		saved("another's skill", "neither seen nor imported", func(ctx context.Context, w *world.World) (string, bool) {
			a, err := as(ctx, w, alice)
			if err != nil {
				return err.Error(), false
			}
			defer a.Close()
			const patch = "<<<<<<< SEARCH\n=======\n/** @description hers */\nexport const secret = \"OF-ALICE\";\n>>>>>>> REPLACE"
			if text, err := sayOf(ctx, a, "update_skill", map[string]any{"name": "hers", "patch": patch}); err != nil || strings.Contains(text, `"isError":true`) {
				return fmt.Sprint(text, err), false
			}
			const use = `import { secret } from "/skills/hers.ts"; console.log("GOT", secret)`
			if text, err := sayOf(ctx, a, "execute_code", map[string]any{"code": use}); err != nil || !strings.Contains(text, "GOT OF-ALICE") {
				return "she cannot: " + clip(text, 200), false
			}
			var all strings.Builder
			for _, token := range []string{bob, Token} {
				b, err := as(ctx, w, token)
				if err != nil {
					return err.Error(), false
				}
				defer b.Close()
				text, _ := sayOf(ctx, b, "execute_code", map[string]any{"code": use})
				all.WriteString(text)
				text, _ = sayOf(ctx, b, "get_instructions", map[string]any{})
				all.WriteString(text)
				resources, err := b.ListResources(ctx, nil)
				if err != nil {
					return err.Error(), false
				}
				for _, r := range resources.Resources {
					all.WriteString(r.URI + r.Description)
				}
				if r, err := b.ReadResource(ctx, &mcp.ReadResourceParams{URI: "skill://hers"}); err == nil {
					all.WriteString(r.Contents[0].Text)
				}
			}
			return none(all.String(), "isError", "OF-ALICE", "skill://hers", "hers: hers", "- hers")
		}),
		saved("the shared skills", "those that one may use, unchanged", func(ctx context.Context, w *world.World) (string, bool) {
			const make = `await Deno.writeTextFile("/skills/shared-one.ts", "/** @description x */ export const one = 'OF-ALL';");
await Deno.writeTextFile("/skills/operators.ts", "/** @description x */ export const one = 'OF-OPERATOR';");`
			if text, err := run(ctx, w, Token, make); err != nil {
				return text + err.Error(), false
			}
			const use = `for (const n of ["shared-one", "operators"]) { try { console.log("GOT", (await import("/skills/" + n + ".ts")).one) } catch { console.log("NOT", n) } }`
			hers, err := run(ctx, w, alice, use)
			if err != nil {
				return err.Error(), false
			}
			his, err := run(ctx, w, bob, use)
			if err != nil {
				return err.Error(), false
			}
			if _, held := none(his, "NOT shared-one", "OF-ALL", "OF-OPERATOR"); !held {
				return clip(his, 200), false
			}
			return none(hers, "GOT OF-ALL", "OF-OPERATOR")
		}),
		tenant("another's stash, as the same client without sessions", "empty", func(ctx context.Context, w *world.World) (string, bool) {
			said := map[string]string{}
			for _, token := range []string{alice, bob, Token} {
				client := w.Stranger()
				client.Transport = bearing{token, client.Transport}
				s, err := mcp.NewClient(&mcp.Implementation{Name: "tenant", Version: "1"}, nil).Connect(ctx,
					&mcp.StreamableClientTransport{Endpoint: w.URL, HTTPClient: client}, &mcp.ClientSessionOptions{ProtocolVersion: "2026-07-28"})
				if err != nil {
					return err.Error(), false
				}
				defer s.Close()
				code := `console.log("GOT", await stash.get("theirs"), await stash.keys())`
				if token == alice {
					code = `await stash.set("theirs", "OF-ALICE"); ` + code
				}
				if said[token], err = sayOf(ctx, s, "execute_code", map[string]any{"code": code}); err != nil {
					return err.Error(), false
				}
			}
			if !strings.Contains(said[alice], "GOT OF-ALICE") {
				return "she has none: " + clip(said[alice], 200), false
			}
			return none(said[bob]+said[Token], "GOT undefined", "OF-ALICE", "theirs")
		}),
		tenant("files of another's run", "none", func(ctx context.Context, w *world.World) (string, bool) {
			const write = `await Deno.writeTextFile("left.txt", "OF-ALICE"); try { await Deno.writeTextFile("/tmp/left.txt", "OF-ALICE") } catch { /* */ }; console.log("wrote", await Deno.readTextFile("left.txt"))`
			const read = `for (const dir of [".", "/tmp", "/skills", "/runs", "/home", "/code"]) {
  try { for (const e of Deno.readDirSync(dir)) { console.log("ENTRY", dir, e.name); try { console.log(await Deno.readTextFile(dir + "/" + e.name)) } catch { /* */ } } } catch { /* */ }
  try { console.log(await Deno.readTextFile(dir + "/left.txt")) } catch { /* */ }
}
console.log("looked")`
			hers, err := run(ctx, w, alice, write)
			if err != nil || !strings.Contains(hers, "wrote OF-ALICE") {
				return fmt.Sprint(hers, err), false
			}
			if text, err := run(ctx, w, Token, `await Deno.writeTextFile("/tmp/operators.txt", "OF-OPERATOR")`); err != nil {
				return text + err.Error(), false
			}
			his := ""
			for range 4 { // of several slots
				text, err := run(ctx, w, bob, read)
				if err != nil {
					return err.Error(), false
				}
				his += text
			}
			return none(his, "looked", "OF-ALICE", "OF-OPERATOR", "ENTRY")
		}),
		tenant("files of another's run, in Python", "none", func(ctx context.Context, w *world.World) (string, bool) {
			const write = `
import os
open("left.txt", "w").write("OF-ALICE")
for attempt in (lambda: open("/tmp/left.txt", "w").write("OF-ALICE"), lambda: os.symlink("OF-ALICE", "/tmp/left-link")):
    try:
        attempt()
        print("SHARED")
    except OSError:
        pass
print("wrote", open("left.txt").read())`
			const read = `
import os
for path in ("/tmp/left-link", "/tmp/left.txt", "/tmp/operators.txt", "left.txt"):
    for look in (os.readlink, lambda p: open(p).read(), os.stat):
        try:
            print("FOUND", path, look(path))
        except OSError:
            pass
for path in ("/tmp", "/runs", "/skills", "/code", "/home"):
    try:
        found = [name for name in os.listdir(path) if path != "/code" or name.isdigit()]  # folders of slots
        if found:
            print("ENTRY", path, found)
    except OSError:
        pass
print("looked")`
			of := func(token, code string) (string, error) {
				s, err := as(ctx, w, token)
				if err != nil {
					return "", err
				}
				defer s.Close()
				return sayOf(ctx, s, "execute_code", map[string]any{"code": code, "language": python})
			}
			if text, err := of(Token, `open("/tmp/operators.txt", "w").write("OF-OPERATOR")`); err != nil {
				return text + err.Error(), false
			}
			hers, err := of(alice, write)
			// In Docker the operator's runs use this /tmp too. Elsewhere each run has its own.
			shares := world.CurrentMode() == world.Docker && strings.Contains(hers, "SHARED")
			if err != nil || !strings.Contains(hers, "wrote OF-ALICE") || shares {
				return fmt.Sprint(clip(hers, 200), err), false
			}
			his := ""
			for range 4 { // of several slots
				text, err := of(bob, read)
				if err != nil {
					return err.Error(), false
				}
				his += text
			}
			return none(his, "looked", "OF-ALICE", "OF-OPERATOR", "FOUND", "ENTRY")
		}),
		tenant("runs and their tenants", "the operator sees whose", func(ctx context.Context, w *world.World) (string, bool) {
			if _, err := run(ctx, w, alice, "console.log('of alice')"); err != nil {
				return err.Error(), false
			}
			out, err := w.Pipe(ctx, "", "runs", "--tenant", "alice")
			return clip(out, 60), err == nil && strings.Contains(out, "of alice") && strings.Contains(out, "alice:")
		}),
	}
	background := tenant("a flood of background runs", "half of the slots, the rest refused", func(ctx context.Context, w *world.World) (string, bool) {
		a, err := as(ctx, w, alice)
		if err != nil {
			return err.Error(), false
		}
		defer a.Close()
		var ids []string
		defer func() {
			for _, id := range ids {
				_, _ = sayOf(context.WithoutCancel(ctx), a, "get_run", map[string]any{"id": id, "cancel": true})
			}
		}()
		refused := ""
		for range 12 {
			text, err := sayOf(ctx, a, "execute_code", map[string]any{"code": "await new Promise((r) => setTimeout(r, 30000))", "background": true})
			if err != nil {
				return err.Error(), false
			}
			if strings.Contains(text, "too many runs are in the background") {
				refused = text
			} else {
				ids = append(ids, runOf.FindString(text))
			}
		}
		start := time.Now()
		text, err := sayOf(ctx, a, "execute_code", map[string]any{"code": "console.log('mine')"})
		took := time.Since(start)
		return fmt.Sprintf("%d run, another began after %s", len(ids), took.Round(100*time.Millisecond)),
			err == nil && len(ids) <= width/2 && refused != "" && strings.Contains(text, "mine") && took < 6*time.Second
	})
	background.Alone = true
	flood := tenant("a flood of runs", "one of another begins at once", func(ctx context.Context, w *world.World) (string, bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var runs sync.WaitGroup
		defer runs.Wait()
		for range 24 {
			runs.Go(func() { _, _ = run(ctx, w, alice, "await new Promise((r) => setTimeout(r, 12000))") })
		}
		time.Sleep(4 * time.Second)
		start := time.Now()
		text, err := run(ctx, w, bob, "console.log('mine')")
		took := time.Since(start)
		cancel()
		if err != nil {
			return err.Error(), false
		}
		return fmt.Sprintf("after %s", took.Round(100*time.Millisecond)), strings.Contains(text, "mine") && took < 6*time.Second
	})
	flood.Alone = true
	revoked := tenant("a token that is taken away", "401, and the run ends", func(ctx context.Context, w *world.World) (string, bool) {
		path := w.TokensFile
		ended := make(chan error, 1)
		go func() {
			_, err := run(ctx, w, bob, "await new Promise((r) => setTimeout(r, 18000)); console.log('went on')")
			ended <- err
		}()
		time.Sleep(3 * time.Second)
		if err := os.WriteFile(path, []byte(`{"tenants": {"bob": {"tokens": ["`+bob+`"]}}}`), 0o644); err != nil {
			return err.Error(), false
		}
		time.Sleep(4 * time.Second)
		c := call{stranger: true, header: map[string]string{"Authorization": "Bearer " + bob}}
		if got, _, _, err := c.send(ctx, w); err != nil || got != http.StatusOK {
			return fmt.Sprintf("a file with a mistake took effect: %d %v", got, err), false
		}
		if err := writeTokens(path, bob+"-another"); err != nil {
			return err.Error(), false
		}
		defer func() { _ = writeTokens(path, bob); time.Sleep(4 * time.Second) }()
		select {
		case <-ended:
		case <-time.After(8 * time.Second):
			return "the run goes on", false
		}
		got, _, _, err := c.send(ctx, w)
		return fmt.Sprintf("%d %v", got, err), got == http.StatusUnauthorized
	})
	revoked.Alone, revoked.NoPod = true, "the kubelet takes a minute to bring a changed Secret into the pod"
	return append(list, flood, background, revoked)
}

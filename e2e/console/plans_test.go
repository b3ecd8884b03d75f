package console

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// plans: a dry run is drawn as what waits for somebody, its plan shows each request with its names and what it changes,
// and all, some or nothing of it is sent.
func plans(t *testing.T, w *world.World, b *tab) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	dry := func(path string) (*approvalapi.Plan, string) {
		trial := fmt.Sprintf("planned%d", time.Now().UnixNano())
		code := fmt.Sprintf("// Close what is stale\nfor (let i = 1; i <= 3; i++) await fetch(`https://%s%s?t=%s&i=${i}`, { method: 'POST', "+
			"headers: { Authorization: 'Bearer RULED_TOKEN', 'Content-Type': 'application/json' }, body: JSON.stringify({ state: 'closed \\u202e', n: i, filler: '%s' }) });\n", asked, path, trial, strings.Repeat("x", 9000))
		r, err := w.Do(ctx, w.Session(), world.Run{Code: code, DryRun: true})
		if err != nil || r.Receipt.Plan == nil {
			t.Fatalf("%v %s", err, r.JSON)
		}
		return r.Receipt.Plan, trial
	}
	sent := func(trial string) (list []string) {
		for _, s := range w.Upstream.Seen(trial) {
			list = append(list, strings.Split(s.Target, "i=")[1])
		}
		return list
	}
	button := func(words string) {
		t.Helper()
		b.wait(t, fmt.Sprintf("[...document.querySelectorAll('main button')].some((e) => e.innerText.includes(%q) && !e.disabled && (e.click(), true))", words))
	}

	next := func(p *approvalapi.Plan) { // selects the plan as soon as the page has it
		t.Helper()
		testkit.WaitFor(t, func() bool {
			b.press(t, "n")
			return eval[string](t, b, "location.hash") == "#/held/"+p.ID
		})
		b.see(t, ".page .status", "Waits for you")
	}

	p, trial := dry("/anything/refunds")
	b.turn(t, "r", "runs")
	b.see(t, ".page .title", "Close what is stale")
	b.see(t, ".wf", "planned, not sent")
	b.see(t, ".page .note", "3 writes recorded, not sent")
	b.see(t, ".why", "Step 1 of a plan")
	if n := eval[int](t, b, "document.querySelectorAll('.wf .bad, .wf i.err, .why .bad').length"); n != 0 {
		t.Errorf("%d things of a dry run are drawn like a failure", n)
	}
	next(p)
	b.see(t, ".step h2", "POST "+asked+"/anything/refunds?t="+trial)
	b.see(t, ".step .name", "RULED_TOKEN")
	b.see(t, ".step", "asked for by a rule")
	b.see(t, ".step .lined", "closed U+202E")
	b.see(t, ".step .facts", "Bearer RULED_TOKEN")
	for name, c := range w.Canaries {
		if eval[bool](t, b, fmt.Sprintf("document.documentElement.outerHTML.includes(%q)", c.Value())) {
			t.Errorf("the page holds the credential %s", name)
		}
	}
	sound(t, b, "a plan")
	b.decidable(t)
	button("Choose none")
	b.wait(t, "document.querySelector('.actions .btn.main').disabled")
	b.press(t, "a")
	b.see(t, ".toast", "No request is chosen")
	eval[bool](t, b, "[1, 3].map((n) => document.querySelector(`input[aria-label='Send step ${n}']`).click()) && true")
	b.see(t, ".actions", "Approve 2 of 3")
	picture(t, b, "console-plan.png")
	if list := sent(trial); len(list) != 0 {
		t.Errorf("before anybody approves: %q", list)
	}
	b.press(t, "a")
	b.see(t, ".page .status", "Sent")
	if list := fmt.Sprint(sent(trial)); list != "[1 3]" {
		t.Errorf("sent %s of %s", list, p.ID)
	}
	b.see(t, ".step header", "200")

	p, trial = dry("/anything/refunds")
	next(p)
	button("Refuse")
	b.see(t, ".page .status", "Refused")
	p, all := dry("/anything/refunds")
	next(p)
	button("Approve all 3")
	b.see(t, ".page .status", "Sent")
	if refused, list := sent(trial), fmt.Sprint(sent(all)); len(refused) != 0 || list != "[1 2 3]" {
		t.Errorf("of the refused one %q, of the other %s: %s", refused, list, b.text(t, "main"))
	}

	// What is the operator's alone is shown, and not decided here.
	p, trial = dry("/anything/payouts")
	next(p)
	b.see(t, ".actions", "codeforge plan approve "+p.ID)
	time.Sleep(1500 * time.Millisecond) // until keys decide
	b.press(t, "a", "d")
	status := eval[int](t, b, fmt.Sprintf("fetch('/console/api/plans/%s', { method: 'POST', headers: { Authorization: 'Bearer ' + sessionStorage.getItem('codeforge-bearer'), 'Content-Type': 'application/json' }, body: '{\"approve\": true, \"digest\": \"%s\"}' }).then((r) => r.status)", p.ID, p.Digest))
	if list := sent(trial); status != 409 || len(list) != 0 {
		t.Errorf("the console decided about what is the operator's: %d, sent %q", status, list)
	}
	b.complaints() // of the 409
	if out, err := w.Operate(ctx, t.TempDir(), "plan", "refuse", p.ID); err != nil {
		t.Errorf("%v %s", err, out)
	}
	b.see(t, ".page .status", "Refused")
	b.clean(t)
}

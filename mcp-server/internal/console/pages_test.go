package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// busy is a CodeForge with one of each thing. Each part fails with err, if it is not nil.
type busy struct {
	*memory
	err    error
	status operatorapi.Status
	asked  []string
}

func (b *busy) ask(format string, args ...any) error {
	b.asked = append(b.asked, fmt.Sprintf(format, args...))
	return b.err
}

func (b *busy) FetchInspection(context.Context) (proxyapi.Inspection, error) {
	return proxyapi.Inspection{APIs: []proxyapi.InspectedAPI{{API: proxyapi.API{Name: "crm"}}}}, b.err
}

func (b *busy) CheckLedger(_ context.Context, known []proxyapi.KnownHead) (proxyapi.LedgerCheck, error) {
	return proxyapi.LedgerCheck{LedgerReport: proxyapi.LedgerReport{Records: 18231}}, b.ask("check %v", known)
}

// serverError is err, or for another server than "mail" that there is none.
func (b *busy) serverError(name string) error {
	if name != "mail" {
		return operatorapi.ErrNoServer
	}
	return b.err
}

func (b *busy) ListStates() []mcpserver.Status { return []mcpserver.Status{{Name: "mail"}} }
func (b *busy) ServerLog(server string) ([]operatorapi.Line, error) {
	return []operatorapi.Line{{Text: "a line"}}, b.serverError(server)
}
func (b *busy) ToolList(server string) ([]operatorapi.Tool, error) {
	return []operatorapi.Tool{{Name: "send", May: "yes"}}, b.serverError(server)
}
func (b *busy) RestartServer(server string) error {
	return errors.Join(b.ask("restart"), b.serverError(server))
}

func (b *busy) ListHeld(context.Context) ([]approvalapi.HeldRequest, error) {
	return []approvalapi.HeldRequest{{ID: "h1"}}, b.err
}
func (b *busy) DecideHeld(_ context.Context, id string, a approvalapi.Answer) (approvalapi.HeldRequest, error) {
	return approvalapi.HeldRequest{ID: id, Run: "decided"}, b.ask("decide %s %v", id, a.Approve)
}
func (b *busy) ListPlans(context.Context) ([]approvalapi.Plan, error) {
	return []approvalapi.Plan{{ID: "p1"}}, nil
}
func (b *busy) GetPlan(_ context.Context, id string) (approvalapi.Plan, error) {
	if id != "p1" {
		return approvalapi.Plan{}, &rpc.Error{Status: http.StatusNotFound, Text: "There is no plan with this id, or it has expired."}
	}
	return approvalapi.Plan{ID: id}, b.err
}
func (b *busy) DecidePlan(_ context.Context, id string, a approvalapi.Answer) (approvalapi.Plan, error) {
	return approvalapi.Plan{ID: id}, b.ask("plan %s %v", id, a.Approve)
}

func (b *busy) ListExchanges(_ context.Context, f operatorapi.ExchangeFilter, cursor string) (operatorapi.ExchangePage, error) {
	return operatorapi.ExchangePage{Next: "n"}, b.ask("exchanges %s %d %s", f.API, f.Limit, cursor)
}
func (b *busy) SumTraffic(context.Context, time.Time, time.Time) (operatorapi.Ledger, error) {
	return operatorapi.Ledger{Runs: 77}, nil
}
func (b *busy) TrafficByHour(_ context.Context, since, until time.Time, step time.Duration) ([]operatorapi.Hour, error) {
	return []operatorapi.Hour{{API: "crm"}}, b.ask("hours %s %s", until.Sub(since), step)
}
func (b *busy) ListAlerts(_ context.Context, unseen bool) ([]operatorapi.Alert, error) {
	return []operatorapi.Alert{{Number: 7}}, b.ask("alerts %v", unseen)
}
func (b *busy) SeeAlerts(_ context.Context, number int64) error    { return b.ask("seen %d", number) }
func (b *busy) Status(context.Context) (operatorapi.Status, error) { return b.status, b.err }

func (b *busy) RunAfter(ctx context.Context, id string, after int64) (operatorapi.Detail, error) {
	if strings.HasPrefix("r000009", id) { //nolint:gocritic // the store finds a run by the beginning of its ID
		return operatorapi.Detail{Run: operatorapi.Run{ID: "r000009", State: operatorapi.Running}}, b.err
	}
	return b.memory.RunAfter(ctx, id, after)
}

func (b *busy) CancelElsewhere(run string) { _ = b.ask("cancel %s", run) }

// TestPages asks for each page of data, while all parts answer and while one cannot.
func TestPages(t *testing.T) {
	broken, refused := errors.New("broken"), &rpc.Error{Status: proxyapi.StatusNotDecided, Text: "Only the operator may."}
	catalog := proxyapi.Catalog{APIs: []proxyapi.API{{Name: "crm", Domains: []string{"crm.test"}}, {Name: "mail", Server: &mcpserver.Settings{
		Command: []string{"mail-server"}, Env: map[string]string{"A": "private"},
	}}}}
	on := operatorapi.Status{Mode: "full", Path: "/h/runs.db"}
	for _, c := range []struct {
		request, body string
		err           error
		kept          operatorapi.Status
		status        int
		want          []string // parts of the answer and of what the parts were asked; with "!", not a part
	}{
		{"GET status", "", nil, on, 200, []string{`"proxy","ok":true,"text":"answers in`, `"sandbox","ok":true,"text":"ready`, `"store","ok":true,"text":"/h/runs.db"`, `"slots":8`}},
		{"GET status", "", nil, operatorapi.Status{Mode: "off"}, 200, []string{`"store","ok":true,"text":"HISTORY is off"`}},
		{"GET status", "", nil, operatorapi.Status{Path: "/h", Problem: "full disk"}, 200, []string{`"store","ok":false,"text":"full disk"`}},
		{"GET status", "", broken, on, 200, []string{`"proxy","ok":false,"text":"broken"`, `"sandbox","ok":false,"text":"broken"`, `"store","ok":false,"text":"broken"`}},
		{"GET apis", "", nil, on, 200, []string{`"name":"crm"`, `"hours":[`, "hours 24h0m0s 1h0m0s"}},
		{"GET apis", "", broken, on, 502, []string{"The proxy does not answer: broken"}},
		{"GET servers", "", nil, on, 200, []string{`"states":[{"name":"mail"`, "mail-server", "!private", "!crm"}},
		{"GET servers/mail/log", "", nil, on, 200, []string{"a line"}},
		{"GET servers/mail/log", "", broken, on, 502, []string{"broken", "!a line"}},
		{"GET servers/none/log", "", nil, on, 404, []string{"!a line"}},
		{"GET servers/mail/tools", "", nil, on, 200, []string{`"send"`}},
		{"GET servers/mail/tools", "", broken, on, 502, []string{"!send"}},
		{"GET servers/none/tools", "", nil, on, 404, []string{"!send"}},
		{"POST servers/mail/restart", "", nil, on, 200, []string{"{}", "restart"}},
		{"POST servers/mail/restart", "", broken, on, 502, []string{"broken"}},
		{"POST servers/none/restart", "", nil, on, 404, nil},
		{"GET held", "", nil, on, 200, []string{`"h1"`, `"p1"`, `"decided":[]`}},
		{"GET held", "", broken, on, 502, []string{"broken"}},
		{"POST held/h1", `{"approve":true}`, nil, on, 200, []string{`"decided"`, "decide h1 true"}},
		{"POST held/h1", `{"approve":false}`, nil, on, 200, []string{"decide h1 false"}},
		{"POST held/h1", `{`, nil, on, 400, []string{"want JSON of at most 16 KiB", "!decide"}},
		{"POST held/h1", `{"approve":true}`, refused, on, 409, []string{"Only the operator may."}},
		{"POST held/h1", `{"approve":true}`, broken, on, 502, []string{"broken"}},
		{"GET plans/p1", "", nil, on, 200, []string{`"p1"`}},
		{"GET plans/p1", "", broken, on, 502, nil},
		{"GET plans/p2", "", nil, on, 404, []string{"no plan"}},
		{"POST plans/p1", `{"approve":true}`, nil, on, 200, []string{"plan p1 true"}},
		{"POST plans/p1", `[]`, nil, on, 400, []string{"!plan p1"}},
		{"POST plans/p1", `{}`, refused, on, 409, nil},
		{"GET runs/r000000", "", nil, on, 200, []string{`"run 0"`}},
		{"GET runs/none", "", nil, on, 404, nil},
		{"POST runs/r000000/stop", "", nil, on, 200, []string{"{}"}},
		{"POST runs/r000001/stop", "", nil, on, 409, []string{"has ended", "!cancel"}},
		{"POST runs/r000009/stop", "", nil, on, 200, []string{"{}", "cancel r000009"}}, // of another replica
		{"POST runs/r00000/stop", "", nil, on, 409, []string{"has ended", "!cancel"}},
		{"POST runs/r000009/stop", "", broken, on, 502, []string{"!has ended", "!cancel"}},
		{"GET exchanges?api=crm&limit=7&cursor=c", "", nil, on, 200, []string{`"next":"n"`, "exchanges crm 7 c"}},
		{"GET alerts", "", nil, on, 200, []string{`"number":7`, "alerts false"}},
		{"GET alerts?unseen=1", "", nil, on, 200, []string{"alerts true"}},
		{"POST alerts/seen/7", "", nil, on, 200, []string{"seen 7"}},
		{"POST alerts/seen/x", "", nil, on, 404, []string{"!seen"}},
		{"GET kept", "", nil, on, 200, []string{"/h/runs.db"}},
		{"GET ledger?time=1h", "", nil, on, 200, []string{`"runs":77`, `"step_ms":900000`, "hours 1h0m0s 15m0s"}},
		{"GET ledger?time=7d", "", nil, on, 200, []string{"hours 168h0m0s 2h0m0s"}},
		{"GET ledger?time=90d", "", nil, on, 200, []string{"hours 2160h0m0s 24h0m0s"}},
		{"GET ledger?time=2h", "", nil, on, 404, []string{"!hours"}},
		{"GET ledger?time=24h", "", broken, on, 502, nil},
		{"GET ledger/check", "", nil, on, 200, []string{`"records":18231`, "check [{r000000 a head}]"}},
		{"GET ledger/check", "", proxyapi.ErrNotFound, on, 501, []string{"AUDIT is off"}},
		{"GET ledger/check", "", broken, on, 502, []string{"broken"}},
		{"GET runs/r000000/files/a%20b.html", "", nil, on, 200, []string{"<script>"}},
		{"GET runs/r000000/files/none", "", nil, on, 404, []string{"no entry with this name"}},
		{"GET runs/r000000/files/..%2Fx", "", nil, on, 404, nil},
		{"GET settings", "", nil, on, 200, []string{`"SLOTS"`}},
		{"POST apis/crm/test", "", nil, on, 200, []string{"execute [crm] crm.test"}},
		{"POST apis/crm/test", "", broken, on, 200, []string{"it could not be run: broken"}},
		{"POST apis/mail/test", "", nil, on, 200, []string{"codeforge mcp test mail", "!execute"}},
		{"POST apis/none/test", "", nil, on, 409, []string{"not active", "!execute"}},
		{"GET nothing", "", nil, on, 404, []string{"no entry with this name"}},
	} {
		b := &busy{memory: newMemory(t, 2), err: c.err, status: c.kept}
		b.runs[1].Audit = "a head"
		h := New(Config{
			Proxy: b, Servers: b, Approvals: b, History: b, Settings: []Setting{{Name: "SLOTS"}}, Log: slog.New(slog.DiscardHandler),
			Catalog: func() proxyapi.Catalog { return catalog }, Load: func() Load { return Load{Slots: 8} },
			Ready: func(context.Context) error { return b.err }, StopRun: func(run string) bool { return run == "r000000" },
			Execute: func(_ context.Context, r execution.RunRequest) (execution.Outcome, error) {
				at := strings.Index(r.Code, "crm.test")
				return execution.Outcome{}, b.ask("execute %s %s", r.APIs, r.Code[at:at+8])
			},
		})
		method, path, _ := strings.Cut(c.request, " ")
		me := signedIn(t, h, h.NewSignInCode())
		w := ask(h, method, API+path, c.body, me)
		all := w.Body.String() + strings.Join(b.asked, "\n")
		if w.Code != c.status {
			t.Errorf("%s, %v: %d, want %d: %s", c.request, c.err, w.Code, c.status, all)
		}
		for _, want := range c.want {
			if text, not := strings.CutPrefix(want, "!"); strings.Contains(all, text) == not {
				t.Errorf("%s, %v: want %s: %s", c.request, c.err, want, all)
			}
		}
		decided := method == http.MethodPost && strings.HasPrefix(path, "held/") && c.status == 200
		if list := ask(h, http.MethodGet, API+"held", "", me).Body.String(); c.err == nil && strings.Contains(list, `"decided":[]`) == decided {
			t.Errorf("%s: afterwards %s", c.request, list)
		}
	}
}

// TestDecisions: the latest decisions stay, the newest first.
func TestDecisions(t *testing.T) {
	var d decisionLog
	for n := range maxDecided + 2 {
		d.addDecision(consoleDecision{Held: approvalapi.HeldRequest{ID: fmt.Sprint(n)}})
	}
	if list := d.listDecisions(); len(list) != maxDecided || list[0].Held.ID != "51" || list[maxDecided-1].Held.ID != "2" {
		t.Errorf("%d decisions, from %s", len(list), list[0].Held.ID)
	}
}

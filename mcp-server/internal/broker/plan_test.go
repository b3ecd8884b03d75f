package broker

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// planned makes a call as the proxy does for a plan.
func (w *world) planned(run, path, body, plan, session string) (code, lent, text string) {
	w.t.Helper()
	r := httptest.NewRequestWithContext(w.t.Context(), http.MethodPost, path, strings.NewReader(body))
	r.Header.Set(proxyapi.HeaderRun, run)
	r.Header.Set(proxyapi.HeaderPlan, plan)
	if plan == proxyapi.PlanSend {
		r.Header.Set(proxyapi.HeaderSession, session)
	}
	rec := httptest.NewRecorder()
	w.broker.ServeHTTP(rec, r)
	if plan == proxyapi.PlanSend && strings.Contains(rec.Body.String(), "_schema") {
		w.t.Errorf("a person sees the members for code: %s", rec.Body)
	}
	return rec.Header().Get(proxyapi.HeaderCode), rec.Header().Get(proxyapi.HeaderSession), answer{body: rec.Body.Bytes()}.text()
}

// TestPlan: a dry run calls what says that it only reads. Everything else is checked and not called, and called when the
// plan is sent, for the session of the run, which is over then.
// Promise: dry-runs-send-no-writes
func TestPlan(t *testing.T) {
	session := func(s *mcpserver.Settings) { s.State = "session" }
	w := newWorld(t, 4, hostile(t, "a", session))
	const text = `{"text":"x"}`
	if code, _, got := w.planned("s1-dry", "/a/read", text, proxyapi.PlanRecord, ""); code != "" || got != "x" {
		t.Errorf("a tool that reads: %q %q", code, got)
	}
	before := w.call("/a/pid", text).text()
	code, lent, got := w.planned("s1-dry", "/a/pid", text, proxyapi.PlanRecord, "")
	if code != proxyapi.CodePlanned || lent != "s1" || got != "" {
		t.Errorf("a tool that writes: %q %q %q", code, lent, got)
	}
	for path, want := range map[string]string{"/a/none": toolNotFound, "/b/pid": serverNotFound} {
		if code, _, _ := w.planned("s1-dry", path, text, proxyapi.PlanRecord, ""); code != want {
			t.Errorf("%s: %q", path, code)
		}
	}
	if code, _, _ := w.planned("s1-dry", "/a/pid", `{"text":1}`, proxyapi.PlanRecord, ""); code != badArguments {
		t.Errorf("arguments that are wrong: %q", code)
	}
	w.mu.Lock()
	w.over["s1-dry"] = true
	w.mu.Unlock()
	if a := w.send(t.Context(), "s1-dry", http.MethodPost, "/a/pid", text, 0); a.Code != cancelled {
		t.Errorf("a run that is over: %+v", a)
	}
	if code, _, got := w.planned("s1-dry", "/a/pid", text, proxyapi.PlanSend, lent); code != "" || got != before {
		t.Errorf("sent: %q %q, in the session %q", code, got, before)
	}
	if code, _, _ := w.planned("s1-dry", "/a/error", text, proxyapi.PlanSend, lent); code != serverError {
		t.Errorf("a tool that fails: %q", code)
	}
	w.broker.sweepOnce(time.Now().Add(2 * lendTime))
	if w.broker.lentSessions["s1-dry"] != (lentSession{}) {
		t.Error("the session is lent for ever")
	}
}

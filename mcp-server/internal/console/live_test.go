package console

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/history"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestAddEvent: a line has the latest state of each run once. With too many runs, the page loads the list.
func TestAddEvent(t *testing.T) {
	run := func(id, code string) operatorapi.HistoryEvent {
		return operatorapi.HistoryEvent{Cursor: "c" + id, Kind: operatorapi.EventRun, Run: &operatorapi.Run{ID: id, Title: code}}
	}
	exchange := operatorapi.HistoryEvent{Kind: operatorapi.EventExchange, RunID: "b", Exchange: &operatorapi.Exchange{Exchange: proxyapi.Exchange{Run: "a"}}}
	for name, c := range map[string]struct {
		events  []operatorapi.HistoryEvent
		want    string // the titles of the runs
		watched string
		line    streamLine
	}{
		"a run twice":        {[]operatorapi.HistoryEvent{run("a", "1"), run("b", "2"), run("a", "3")}, "3 2", "a", streamLine{After: "ca", Touched: true}},
		"another run":        {[]operatorapi.HistoryEvent{run("b", "2"), run("b", "3")}, "3", "a", streamLine{After: "cb"}},
		"a run without data": {[]operatorapi.HistoryEvent{{Kind: operatorapi.EventRun}}, "", "", streamLine{}},
		"no run is watched":  {[]operatorapi.HistoryEvent{{Kind: operatorapi.EventGap, Cursor: "x"}}, "", "", streamLine{After: "x", Gap: true}},
		"an alert":           {[]operatorapi.HistoryEvent{{Kind: operatorapi.EventAlert}}, "", "a", streamLine{Alerts: true}},
		"an exchange":        {[]operatorapi.HistoryEvent{exchange}, "", "a", streamLine{Touched: true}},
		"another's exchange": {[]operatorapi.HistoryEvent{exchange}, "", "b", streamLine{}},
		"an exchange alone":  {[]operatorapi.HistoryEvent{{Kind: operatorapi.EventExchange, RunID: "a"}}, "", "a", streamLine{Touched: true}},
		"touched, then not":  {[]operatorapi.HistoryEvent{{RunID: "a"}, {RunID: "b"}}, "", "a", streamLine{Touched: true}},
	} {
		var line streamLine
		for _, e := range c.events {
			line.addEvent(e, c.watched)
		}
		var titles []string
		for _, r := range line.Runs {
			titles = append(titles, r.Title)
		}
		got := line
		got.Runs = nil
		if strings.Join(titles, " ") != c.want || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", c.line) {
			t.Errorf("%s: %q, %+v", name, titles, got)
		}
	}
	var line streamLine
	for i := range maxRuns {
		line.addEvent(run(fmt.Sprint(i), ""), "")
	}
	if len(line.Runs) != maxRuns || line.Gap {
		t.Errorf("the most runs: %d, a gap: %t", len(line.Runs), line.Gap)
	}
	if line.addEvent(run("0", "again"), ""); line.Gap || line.Runs[0].Title != "again" {
		t.Error("a run that the line has is lost")
	}
	if line.addEvent(run("more", ""), "more"); len(line.Runs) != maxRuns || !line.Gap || !line.Touched {
		t.Errorf("a run more: %d, a gap: %t", len(line.Runs), line.Gap)
	}
}

// TestWriteError: a page shows the text of the first known error. The log has the others.
func TestWriteError(t *testing.T) {
	var log strings.Builder
	c := &Console{cfg: Config{Log: slog.New(slog.NewTextHandler(&log, nil))}}
	for _, row := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("reading: %w", history.ErrUnknown), `404 {"error":"` + errNotFound.text + `"}`},
		{errors.Join(skill.ErrPinned, skill.ErrChanged), `409 {"error":"This skill is pinned. Unpin it first."}`},
		{fmt.Errorf("ten: %w", skill.ErrManyPins), `409 {"error":"The skill was not pinned: ten: ` + skill.ErrManyPins.Error() + `. Unpin some first."}`},
		{&pageError{418, "tea"}, `418 {"error":"tea"}`},
	} {
		w := httptest.NewRecorder()
		if c.writeError(w, row.err); fmt.Sprint(w.Code, " ", strings.TrimSpace(w.Body.String())) != row.want || log.Len() > 0 {
			t.Errorf("%v: %d %s, log %s", row.err, w.Code, w.Body, &log)
		}
	}
	w := httptest.NewRecorder()
	if c.writeError(w, errors.New("disk")); w.Code != 502 || !strings.Contains(w.Body.String(), `"disk"`) || !strings.Contains(log.String(), "error=disk") {
		t.Errorf("%d %s, log %s", w.Code, w.Body, &log)
	}
}

package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/history"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// History is the store of runs.
type History interface {
	ListRuns(ctx context.Context, f operatorapi.RunFilter, cursor string) (operatorapi.Page, error)
	RunAfter(ctx context.Context, id string, after int64) (operatorapi.Detail, error)
	CancelElsewhere(run string)
	ReadRunFile(ctx context.Context, run, name string, admit func(history.File) error) (history.File, error)
	ListExchanges(ctx context.Context, f operatorapi.ExchangeFilter, cursor string) (operatorapi.ExchangePage, error)
	SumTraffic(ctx context.Context, since, until time.Time) (operatorapi.Ledger, error)
	TrafficByHour(ctx context.Context, since, until time.Time, step time.Duration) ([]operatorapi.Hour, error)
	SkillVersions(ctx context.Context, skill string) ([]operatorapi.SkillVersion, error)
	SkillSource(ctx context.Context, skill string, version int) (string, error)
	RecordSkill(v operatorapi.SkillVersion, source string)
	SkillUses(ctx context.Context) ([]operatorapi.SkillUse, error)
	ListAlerts(ctx context.Context, unseen bool) ([]operatorapi.Alert, error)
	SeeAlerts(ctx context.Context, number int64) error
	Status(ctx context.Context) (operatorapi.Status, error)
	Follow(ctx context.Context, after string) ([]operatorapi.HistoryEvent, error)
}

// pageLimit returns the requested size of a page, or 0 for the store's default.
func pageLimit(q url.Values) int {
	n, _ := strconv.Atoi(q.Get("limit"))
	return n
}

// historyRoutes are the paths of the store's pages.
func (c *Console) historyRoutes(handle func(string, func(*http.Request) (any, error))) {
	handle("GET runs", func(r *http.Request) (any, error) {
		q := r.URL.Query()
		return c.cfg.History.ListRuns(r.Context(), operatorapi.RunFilter{
			API: q.Get("api"), Host: q.Get("host"), Skill: q.Get("skill"), Client: q.Get("client"),
			Session: q.Get("session"), State: q.Get("state"), Grep: q.Get("grep"), Run: q.Get("run"),
			Limit: pageLimit(q), Spans: true,
		}, q.Get("cursor"))
	})
	handle("GET runs/{id}", func(r *http.Request) (any, error) {
		after, _ := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64) // none: all
		return c.cfg.History.RunAfter(r.Context(), r.PathValue("id"), after)
	})
	handle("POST runs/{id}/stop", func(r *http.Request) (any, error) {
		id := r.PathValue("id")
		if c.cfg.StopRun(id) {
			return struct{}{}, nil
		}
		// Another replica may execute it.
		d, err := c.cfg.History.RunAfter(r.Context(), id, 0)
		if err != nil && !errors.Is(err, history.ErrUnknown) && !errors.Is(err, history.ErrOff) {
			return nil, err
		}
		if err != nil || d.ID != id || !d.IsUnfinished() {
			return nil, &pageError{http.StatusConflict, "This run has ended."}
		}
		c.cfg.History.CancelElsewhere(id)
		return struct{}{}, nil
	})
	handle("GET exchanges", func(r *http.Request) (any, error) {
		q := r.URL.Query()
		return c.cfg.History.ListExchanges(r.Context(), operatorapi.ExchangeFilter{
			Run: q.Get("run"), API: q.Get("api"), Host: q.Get("host"), Name: q.Get("name"), Outcome: q.Get("outcome"),
			Limit: pageLimit(q),
		}, q.Get("cursor"))
	})
	handle("GET ledger", c.sumTraffic)
	handle("GET ledger/check", c.checkLedger)
	handle("GET alerts", func(r *http.Request) (any, error) {
		return c.cfg.History.ListAlerts(r.Context(), r.URL.Query().Get("unseen") != "")
	})
	handle("POST alerts/seen/{number}", func(r *http.Request) (any, error) {
		n, err := strconv.ParseInt(r.PathValue("number"), 10, 64)
		if err != nil {
			return nil, errNotFound
		}
		return struct{}{}, c.cfg.History.SeeAlerts(r.Context(), n)
	})
	handle("GET kept", func(r *http.Request) (any, error) { return c.cfg.History.Status(r.Context()) })
}

// checkTime bounds the proxy's check of its ledger. knownHeads bounds the runs that the check compares.
const (
	checkTime  = time.Minute
	knownHeads = 200
)

// checkLedger asks the proxy to verify its ledger, and to compare it with the checkpoints of the latest runs in the
// store.
func (c *Console) checkLedger(r *http.Request) (any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), checkTime)
	defer cancel()
	known := []proxyapi.KnownHead{}
	if page, err := c.cfg.History.ListRuns(ctx, operatorapi.RunFilter{Limit: knownHeads}, ""); err == nil {
		for _, run := range page.Runs {
			if run.Audit != "" {
				known = append(known, proxyapi.KnownHead{Run: run.ID, Audit: run.Audit})
			}
		}
	}
	found, err := c.cfg.Proxy.CheckLedger(ctx, known)
	if errors.Is(err, proxyapi.ErrNotFound) {
		return nil, &pageError{http.StatusNotImplemented, "There is no ledger: AUDIT is off."}
	}
	return found, err
}

// steps maps a period to its length and to the step of its sums, about a hundred bars per period.
var steps = map[string]struct{ time, step time.Duration }{
	"1h":  {time.Hour, 15 * time.Minute},
	"24h": {24 * time.Hour, 15 * time.Minute},
	"7d":  {7 * 24 * time.Hour, 2 * time.Hour},
	"90d": {90 * 24 * time.Hour, 24 * time.Hour},
}

// sumTraffic sums up the traffic of a period.
func (c *Console) sumTraffic(r *http.Request) (any, error) {
	s, ok := steps[r.URL.Query().Get("time")]
	if !ok {
		return nil, errNotFound
	}
	until := time.Now()
	since := until.Add(-s.time)
	l, err := c.cfg.History.SumTraffic(r.Context(), since, until)
	if err != nil {
		return nil, err
	}
	hours, err := c.cfg.History.TrafficByHour(r.Context(), since, until, s.step)
	return struct {
		operatorapi.Ledger
		Hours  []operatorapi.Hour `json:"hours"`
		StepMS int64              `json:"step_ms"`
	}{l, hours, s.step.Milliseconds()}, err
}

package console

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// Approvals gives access to the requests that wait for a person. The proxy accepts a decision only if the request's
// rule permits it here.
type Approvals interface {
	ListHeld(ctx context.Context) ([]approvalapi.HeldRequest, error)
	DecideHeld(ctx context.Context, id string, a approvalapi.Answer) (approvalapi.HeldRequest, error)
	ListPlans(ctx context.Context) ([]approvalapi.Plan, error)
	GetPlan(ctx context.Context, id string) (approvalapi.Plan, error)
	DecidePlan(ctx context.Context, id string, a approvalapi.Answer) (approvalapi.Plan, error)
}

// maxDecided bounds the stored decisions, which the page shows beside the waiting requests.
const maxDecided = 50

type consoleDecision struct {
	At      time.Time               `json:"at"`
	Approve bool                    `json:"approve"`
	Held    approvalapi.HeldRequest `json:"held"`
}

// decisionLog are the latest decisions, newest first. They are lost when mcp-server ends.
type decisionLog struct {
	mu   sync.Mutex
	list []consoleDecision
}

func (d *decisionLog) addDecision(one consoleDecision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append([]consoleDecision{one}, d.list[:min(len(d.list), maxDecided-1)]...)
}

func (d *decisionLog) listDecisions() []consoleDecision {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]consoleDecision{}, d.list...)
}

// heldRoutes are the paths of the page of waiting requests.
func (c *Console) heldRoutes(handle func(string, func(*http.Request) (any, error))) {
	handle("GET held", func(r *http.Request) (any, error) {
		ctx, cancel := context.WithTimeout(r.Context(), askTime)
		defer cancel()
		list, err := c.cfg.Approvals.ListHeld(ctx)
		plans, none := c.cfg.Approvals.ListPlans(ctx)
		return struct {
			Held    []approvalapi.HeldRequest `json:"held"`
			Decided []consoleDecision         `json:"decided"`
			Plans   []approvalapi.Plan        `json:"plans"`
		}{list, c.decided.listDecisions(), plans}, errors.Join(err, none)
	})
	handle("POST held/{id}", func(r *http.Request) (any, error) {
		h, in, err := passDecision(r, c.cfg.Approvals.DecideHeld)
		if err == nil {
			c.logDecision(r, "request", h.ID, h.Run, in)
			c.decided.addDecision(consoleDecision{time.Now(), in.Approve, h})
		}
		return h, err
	})
	handle("GET plans/{id}", func(r *http.Request) (any, error) {
		ctx, cancel := context.WithTimeout(r.Context(), askTime)
		defer cancel()
		p, err := c.cfg.Approvals.GetPlan(ctx, r.PathValue("id"))
		return p, toPageError(err)
	})
	handle("POST plans/{id}", func(r *http.Request) (any, error) {
		p, in, err := passDecision(r, c.cfg.Approvals.DecidePlan)
		if err == nil {
			c.logDecision(r, "plan", p.ID, p.Run, in)
		}
		return p, err
	})
}

// toPageError converts the proxy's reason for refusing a decision, or a missing plan, to an error for the page.
func toPageError(err error) error {
	no := (*rpc.Error)(nil)
	switch {
	case !errors.As(err, &no):
	// The proxy refused the decision, for example because the request no longer waits.
	case no.Status == proxyapi.StatusNotDecided:
		return &pageError{http.StatusConflict, no.Text}
	case no.Status == http.StatusNotFound:
		return &pageError{http.StatusNotFound, no.Text}
	}
	return err
}

// passDecision passes the decision of a request on to the proxy.
func passDecision[T any](
	r *http.Request, decide func(ctx context.Context, id string, a approvalapi.Answer) (T, error),
) (out T, in approvalapi.Answer, err error) {
	if err = readBody(r, &in); err != nil {
		return out, in, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	out, err = decide(ctx, r.PathValue("id"), in)
	return out, in, toPageError(err)
}

// logDecision logs a decision about a request or a plan.
func (c *Console) logDecision(r *http.Request, what, id, run string, in approvalapi.Answer) {
	c.cfg.Log.Info("a "+what+" was decided in the console", logline.Tag("console"),
		slog.String("session", sessionOf(r).ID), slog.String("id", id), slog.String("run", run),
		slog.Bool("approve", in.Approve))
}

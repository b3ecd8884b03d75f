package console

import (
	"context"
	"encoding/json"
	"errors"
	"io"
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

// consoleDecision is a decision made in the console.
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
	handle("POST held/{id}", c.decideRequest)
	handle("GET plans/{id}", func(r *http.Request) (any, error) {
		ctx, cancel := context.WithTimeout(r.Context(), askTime)
		defer cancel()
		p, err := c.cfg.Approvals.GetPlan(ctx, r.PathValue("id"))
		if errors.Is(err, proxyapi.ErrNotFound) {
			return nil, &pageError{http.StatusNotFound, "There is no plan with this id, or it has expired."}
		}
		return p, err
	})
	handle("POST plans/{id}", c.decidePlan)
}

// answerOf reads a decision.
func answerOf(r *http.Request, to any) error {
	text, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		return &pageError{http.StatusBadRequest, "want an answer as JSON"}
	}
	return nil
}

// toPageError converts the proxy's reason for refusing a decision to an error for the page.
func toPageError(err error) error {
	// The proxy refused the decision, for example because the request no longer waits.
	if no := (*rpc.Error)(nil); errors.As(err, &no) && no.Status == proxyapi.StatusNotDecided {
		return &pageError{http.StatusConflict, no.Text}
	}
	return err
}

func (c *Console) decidePlan(r *http.Request) (any, error) {
	var in approvalapi.Answer
	if err := answerOf(r, &in); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	p, err := c.cfg.Approvals.DecidePlan(ctx, r.PathValue("id"), in)
	if err != nil {
		return nil, toPageError(err)
	}
	c.cfg.Log.Info("a plan was decided in the console", logline.Tag("console"),
		slog.String("session", sessionOf(r).ID), slog.String("id", p.ID), slog.String("run", p.Run),
		slog.Bool("approve", in.Approve))
	return p, nil
}

func (c *Console) decideRequest(r *http.Request) (any, error) {
	var in approvalapi.Answer
	if err := answerOf(r, &in); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	h, err := c.cfg.Approvals.DecideHeld(ctx, r.PathValue("id"), in)
	if err != nil {
		return nil, toPageError(err)
	}
	c.cfg.Log.Info("a request was decided in the console", logline.Tag("console"),
		slog.String("session", sessionOf(r).ID), slog.String("id", h.ID), slog.String("run", h.Run),
		slog.Bool("approve", in.Approve))
	c.decided.addDecision(consoleDecision{time.Now(), in.Approve, h})
	return h, nil
}

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
	"github.com/codeforge-mcp/codeforge/proxy/planapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// Approvals gives access to the requests that wait for a person. The proxy accepts a decision only if the request's
// rule permits it here.
type Approvals interface {
	AllHeld(ctx context.Context) ([]approvalapi.Held, error)
	DecideAny(ctx context.Context, id string, a approvalapi.Answer) (approvalapi.Held, error)
	Plans(ctx context.Context) ([]planapi.Plan, error)
	Plan(ctx context.Context, id string) (planapi.Plan, error)
	DecidePlan(ctx context.Context, id string, a planapi.Answer) (planapi.Plan, error)
}

// maxDecided bounds the stored decisions, which the page shows beside the waiting requests.
const maxDecided = 50

// decision is a decision made in the console.
type decision struct {
	At      time.Time        `json:"at"`
	Approve bool             `json:"approve"`
	Held    approvalapi.Held `json:"held"`
}

// decisions are the latest decisions, newest first. They are lost when mcp-server ends.
type decisions struct {
	mu   sync.Mutex
	list []decision
}

func (d *decisions) add(one decision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append([]decision{one}, d.list[:min(len(d.list), maxDecided-1)]...)
}

func (d *decisions) all() []decision {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]decision{}, d.list...)
}

// heldRoutes are the paths of the page of waiting requests.
func (c *Console) heldRoutes(handle func(string, func(*http.Request) (any, error))) {
	handle("GET held", func(r *http.Request) (any, error) {
		ctx, cancel := context.WithTimeout(r.Context(), askTime)
		defer cancel()
		list, err := c.cfg.Approvals.AllHeld(ctx)
		plans, none := c.cfg.Approvals.Plans(ctx)
		return struct {
			Held    []approvalapi.Held `json:"held"`
			Decided []decision         `json:"decided"`
			Plans   []planapi.Plan     `json:"plans"`
		}{list, c.decided.all(), plans}, errors.Join(err, none)
	})
	handle("POST held/{id}", c.decide)
	handle("GET plans/{id}", func(r *http.Request) (any, error) {
		ctx, cancel := context.WithTimeout(r.Context(), askTime)
		defer cancel()
		p, err := c.cfg.Approvals.Plan(ctx, r.PathValue("id"))
		if errors.Is(err, proxyapi.ErrNotFound) {
			return nil, &told{http.StatusNotFound, "There is no plan with this id, or it has expired."}
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
		return &told{http.StatusBadRequest, "want an answer as JSON"}
	}
	return nil
}

// undecided converts the proxy's reason for refusing a decision to an error for the page.
func undecided(err error) error {
	// The proxy refused the decision, for example because the request no longer waits.
	if no := (*rpc.Error)(nil); errors.As(err, &no) && no.Status == proxyapi.StatusNotDecided {
		return &told{http.StatusConflict, no.Text}
	}
	return err
}

func (c *Console) decidePlan(r *http.Request) (any, error) {
	var in planapi.Answer
	if err := answerOf(r, &in); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	p, err := c.cfg.Approvals.DecidePlan(ctx, r.PathValue("id"), in)
	if err != nil {
		return nil, undecided(err)
	}
	c.cfg.Log.Info("a plan was decided in the console", logline.Tag("console"),
		slog.String("session", of(r).ID), slog.String("id", p.ID), slog.String("run", p.Run),
		slog.Bool("approve", in.Approve))
	return p, nil
}

func (c *Console) decide(r *http.Request) (any, error) {
	var in approvalapi.Answer
	if err := answerOf(r, &in); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	h, err := c.cfg.Approvals.DecideAny(ctx, r.PathValue("id"), in)
	if err != nil {
		return nil, undecided(err)
	}
	c.cfg.Log.Info("a request was decided in the console", logline.Tag("console"),
		slog.String("session", of(r).ID), slog.String("id", h.ID), slog.String("run", h.Run),
		slog.Bool("approve", in.Approve))
	c.decided.add(decision{time.Now(), in.Approve, h})
	return h, nil
}

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
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// Approvals are the requests that wait for a person. The proxy lets those be decided here whose rule permits it.
type Approvals interface {
	AllHeld(ctx context.Context) ([]approvalapi.Held, error)
	DecideAny(ctx context.Context, id string, a approvalapi.Answer) (approvalapi.Held, error)
}

// maxDecided bounds the decisions that are remembered, to show the next request beside the last one.
const maxDecided = 50

// decision is what somebody decided here.
type decision struct {
	At      time.Time        `json:"at"`
	Approve bool             `json:"approve"`
	Held    approvalapi.Held `json:"held"`
}

// decisions are the latest ones, the newest first. They are forgotten when mcp-server ends.
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

// heldRoutes are the page of requests that wait.
func (c *Console) heldRoutes(handle func(string, func(*http.Request) (any, error))) {
	handle("GET held", func(r *http.Request) (any, error) {
		ctx, cancel := context.WithTimeout(r.Context(), askTime)
		defer cancel()
		list, err := c.cfg.Approvals.AllHeld(ctx)
		return struct {
			Held    []approvalapi.Held `json:"held"`
			Decided []decision         `json:"decided"`
		}{list, c.decided.all()}, err
	})
	handle("POST held/{id}", c.decide)
}

func (c *Console) decide(r *http.Request) (any, error) {
	var in approvalapi.Answer
	text, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err == nil {
		err = json.Unmarshal(text, &in)
	}
	if err != nil {
		return nil, &told{http.StatusBadRequest, "want an answer as JSON"}
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	h, err := c.cfg.Approvals.DecideAny(ctx, r.PathValue("id"), in)
	if no := (*controlapi.NotDecidedError)(nil); errors.As(err, &no) {
		return nil, &told{http.StatusConflict, no.Text}
	}
	if err != nil {
		return nil, err
	}
	c.cfg.Log.Info("somebody in the console decided about a request", logline.Tag("console"),
		slog.String("session", of(r).ID), slog.String("id", h.ID), slog.String("run", h.Run),
		slog.Bool("approve", in.Approve))
	c.decided.add(decision{time.Now(), in.Approve, h})
	return h, nil
}

package approval

import (
	"context"
	"fmt"
	"time"

	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// stepTime bounds one step, and planTime a whole plan.
const (
	stepTime = 2 * time.Minute
	planTime = 10 * time.Minute
)

// Sender sends the steps of one plan for the run that recorded it.
type Sender interface {
	// Send sends an approved step, or repeats a read of the run. It returns at most most bytes of the answer's body.
	Send(ctx context.Context, s Step, isRead bool, most int) (approvalapi.Reply, []byte)
	// Close returns the ledger's checkpoint that covers the sent steps, or "".
	Close() string
}

// sendPlan sends steps of a plan in order, until one fails.
func (s *Store) sendPlan(e *entry, numbers []int) {
	ctx, cancel := context.WithTimeout(s.ctx, planTime)
	defer cancel()
	p := e.plan
	to := s.conf.Open(e.id, p.Run, e.tenant, p.version, p.apis)
	wrote := map[string]bool{}
	state := approvalapi.StateDone
	for _, n := range numbers {
		step := p.steps[n-1]
		r := sendChecked(ctx, to, step, wrote[step.URL.String()])
		// Even a failed step may have changed the object.
		wrote[step.URL.String()] = true
		s.mu.Lock()
		// GetPlan shows the replies while later steps are sent.
		p.Steps[n-1].Answer = &r
		s.mu.Unlock()
		// Later steps may rely on this one.
		if !r.IsOK() {
			state = approvalapi.StateStopped
			break
		}
	}
	// Without mu: Close flushes the ledger to disk.
	audit := to.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	p.Audit, e.state, e.until = audit, state, s.conf.Now().UTC().Add(lifeTime)
}

// sendChecked sends a step, if the object that it changes is as the run saw it. It skips the comparison after an
// earlier step on the same URL, because that step may have changed the object on purpose.
func sendChecked(ctx context.Context, to Sender, step Step, wrote bool) approvalapi.Reply {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	if ctx.Err() != nil {
		return approvalapi.Reply{Code: CodeEnding, Why: "The plan expired, or the proxy ended."}
	}
	// The approver saw the changes as a difference to this object.
	if step.guard != nil && !wrote {
		r, body := to.Send(ctx, step.guard.read, true, MaxRead)
		var now jsonObject
		// A truncated answer cannot be compared.
		if r.IsOK() && len(body) < MaxRead {
			now = readObject(body)
		}
		if what := describeDrift(step.guard.before, now, step.guard.about); what != "" {
			return approvalapi.Reply{Code: CodeDrift, Why: fmt.Sprintf(
				"The object of the step is not as the run saw it: %s. This step and later steps were not sent.", what)}
		}
	}
	r, body := to.Send(ctx, step, false, MaxReply)
	r.Body = string(body)
	return r
}

package plan

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

// sendPlan sends steps of a plan in order, until one fails.
func (b *Store) sendPlan(e *storedPlan, steps []int) {
	ctx, cancel := context.WithTimeout(b.ctx, planTime)
	defer cancel()
	to := b.conf.Open(ctx, e.id, e.run, e.tenant, e.apis)
	wrote := map[string]bool{}
	state := approvalapi.StateDone
	for _, n := range steps {
		s := e.steps[n-1]
		r := b.sendChecked(ctx, to, e, s, wrote[s.URL.String()])
		// Even a failed step may have changed the object.
		wrote[s.URL.String()] = true
		b.mu.Lock()
		// Get shows the replies while later steps are sent.
		e.replies[n-1] = &r
		b.mu.Unlock()
		// Later steps may rely on this one.
		if !r.IsOK() {
			state = approvalapi.StateStopped
			break
		}
	}
	// Without mu: Close flushes the ledger to disk.
	audit := to.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	e.state, e.audit, e.until = state, audit, b.conf.Now().UTC().Add(lifeTime)
}

// sendChecked sends a step, if the object that it changes is as the run saw it. It skips the comparison after an
// earlier step on the same URL, because that step may have changed the object on purpose.
func (b *Store) sendChecked(ctx context.Context, to Sender, e *storedPlan, s draftStep, wrote bool) approvalapi.Reply {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	if ctx.Err() != nil {
		return approvalapi.Reply{Code: CodeEnding, Why: "The plan expired, or the proxy ended."}
	}
	// The approver saw the changes as a difference to this object.
	if s.guard != nil && !wrote {
		r, body := to.RepeatRead(ctx, s.guard.read, e.version)
		var now jsonObject
		// A truncated answer cannot be compared.
		if r.IsOK() && len(body) < MaxRead {
			now = readObject(body)
		}
		if what := describeDrift(s.guard.before, now, s.guard.about); what != "" {
			return approvalapi.Reply{Code: CodeDrift, Why: fmt.Sprintf(
				"The object of the step is not as the run saw it: %s. This step and later steps were not sent.", what)}
		}
	}
	r, body := to.SendStep(ctx, s.Step, e.version, MaxReply)
	r.Body = string(body)
	return r
}

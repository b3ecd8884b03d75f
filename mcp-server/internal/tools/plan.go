package tools

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/readertext"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/userform"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

const (
	// maxReply bounds a step's answer that a model is shown, in bytes. maxReplies bounds the number of such steps.
	maxReply   = 300
	maxReplies = 20
	// sendTime is how long a call waits until an approved plan is sent.
	sendTime = 11 * time.Minute
)

// presentPlan describes the requests of a dry run. If the client's user decides at once, it also reports the results.
func (s *Surface) presentPlan(
	ctx context.Context, r execution.RunRequest, o execution.Outcome, ask userform.Asker,
) readertext.Text {
	p := o.Receipt.Plan
	switch {
	case !r.DryRun, p == nil && (o.Exit.Reason != sandboxapi.Exited || o.Exit.Code != 0):
		return readertext.Text{}
	case p == nil:
		return readertext.NewText("This was a dry run without writes, so there is no plan.")
	}
	picture := strings.Join(p.Picture, "\n")
	switch answer := s.askPlan(ctx, p, ask); {
	case answer == nil:
	case answer.Approve:
		return readertext.NewText("%PICTURE\n{The user|You} approved it. %SENT", "%PICTURE", picture, "%SENT",
			s.waitForSent(ctx, p.ID))
	default:
		return readertext.NewText(
			"%PICTURE\n{The user|You} refused it, so it was not sent{. Ask what to do|, and will not be}.",
			"%PICTURE", picture)
	}
	return readertext.NewText("%PICTURE\nIt was not sent. {The user can approve|Approve} all or some of it within "+
		"15 minutes: codeforge plan approve %ID. All of it: codeforge plan show %ID.", "%PICTURE", picture, "%ID", p.ID)
}

// askPlan asks the client's user about a plan and passes on the answer. It asks only if the rules of all steps permit
// that. Without a decision it returns nil: the plan then still waits for the command line.
func (s *Surface) askPlan(ctx context.Context, p *approvalapi.Plan, ask userform.Asker) *approvalapi.Answer {
	if p.Operator || ask == nil || ctx.Err() != nil {
		return nil
	}
	// The receipt has only a picture of the plan, and the user must see all of it.
	whole, err := s.cfg.Control.GetPlan(ctx, p.ID)
	if err != nil {
		return nil
	}
	form, ok := planForm(whole)
	if !ok {
		return nil
	}
	answer := askDecision(ctx, ask, form)
	if answer == nil || answer.Scope != "" { // the form of a plan has no scopes
		return nil
	}
	// The digest ties the approval to the plan that the user saw.
	answer.Digest = whole.Digest
	if _, err := s.cfg.Control.DecidePlan(ctx, p.ID, *answer); err != nil {
		return nil // the plan was decided elsewhere, or the configuration has changed
	}
	return answer
}

// planForm returns the question about a plan. It returns false if the plan is too long to be shown.
func planForm(p approvalapi.Plan) (userform.Question, bool) {
	var b strings.Builder
	fmt.Fprintf(&b, "Code that the model wrote wants to send these %d requests. If you approve, CodeForge replaces token "+
		"names with your credentials. This is the whole plan:\n", p.Writes)
	if p.Ended != "" {
		fmt.Fprintf(&b, "\nThe plan is incomplete. %s\n", safetext.OneLine(p.Ended))
	}
	for _, step := range p.Steps {
		fmt.Fprintf(&b, "\n  %d (%s)\n", step.N, safetext.OneLine(strings.Join(step.APIs, ", ")))
		writeBlock(&b, step.Title(), step.Headers, step.Body)
		// Checked in the loop, so that a huge plan is not built in memory.
		if b.Len() > maxShown {
			return userform.Question{}, false
		}
	}
	return newDecisionForm(b.String(), approveOnce, refuseIt)
}

// waitForSent waits until a plan has been sent, and returns the answers.
func (s *Surface) waitForSent(ctx context.Context, id string) string {
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	p, err := s.cfg.Control.WaitForPlan(ctx, id)
	switch {
	case err != nil:
		// The plan was approved, so an error here must not look like a refusal.
		return "The answers are unknown: codeforge plan show " + id
	case p.State == approvalapi.StateRunning:
		return "It is still being sent: codeforge plan show " + id
	}
	return listReplies(p)
}

// listReplies lists the results of the steps, one line each.
func listReplies(p approvalapi.Plan) string {
	var b strings.Builder
	b.WriteString("Answers:")
	for i, step := range p.Steps {
		a := step.Answer
		switch {
		case i == maxReplies:
			fmt.Fprintf(&b, "\n and %d more steps", len(p.Steps)-i)
			return b.String()
		case a == nil:
			fmt.Fprintf(&b, "\n %d not sent", step.N)
		case a.Status == 0:
			fmt.Fprintf(&b, "\n %d %s: %s", step.N, a.Code, safetext.OneLine(a.Why))
		default:
			fmt.Fprintf(&b, "\n %d %d %s", step.N, a.Status, safetext.OneLine(a.Body[:min(len(a.Body), maxReply)]))
		}
	}
	return b.String()
}

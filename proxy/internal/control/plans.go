package control

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// Plans holds the plans of dry runs; plan.Store implements it.
type Plans interface {
	ListPlans() []approvalapi.Plan
	GetPlan(id string) (approvalapi.Plan, error)
	DecidePlan(id string, a approvalapi.Answer) (approvalapi.Plan, error)
}

func (s *Control) servePlan(w http.ResponseWriter, r *http.Request) {
	p, err := s.conf.Plans.GetPlan(r.PathValue("id"))
	if err != nil {
		rpc.WriteRefusal(w, fmt.Errorf("%w: %w", proxyapi.ErrNotFound, err))
		return
	}
	rpc.WriteAnswer(w, http.StatusOK, p)
}

// serveDecidePlan passes on the decision of a client's user or of a user of the console, if the rule of every step
// permits that. A refusal sends no request, but it takes the plan from the operator, so it needs the same right.
func (s *Control) serveDecidePlan(w http.ResponseWriter, r *http.Request) {
	var in approvalapi.Answer
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		rpc.WriteError(w, http.StatusBadRequest, "want an answer as JSON")
		return
	}
	id := r.PathValue("id")
	//defence:plan-by
	if p, err := s.conf.Plans.GetPlan(id); err == nil && p.Operator {
		answerDecision(w, nil, &rpc.Error{Code: "operator_only",
			Text: "Only the operator may decide about this plan: codeforge plan approve, in a terminal."})
		return
	}
	p, err := s.conf.Plans.DecidePlan(id, in)
	answerDecision(w, p, err)
}

package control

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/proxy/planapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// Plans holds the plans of dry runs; plan.Book implements it.
type Plans interface {
	List() []planapi.Plan
	Get(id string) (planapi.Plan, error)
	Decide(id string, a planapi.Answer) (planapi.Plan, error)
}

func (s *Control) plan(w http.ResponseWriter, r *http.Request) {
	p, err := s.conf.Plans.Get(r.PathValue("id"))
	if err != nil {
		rpc.Refuse(w, fmt.Errorf("%w: %w", proxyapi.ErrNotFound, err))
		return
	}
	rpc.Answer(w, http.StatusOK, p)
}

// decidePlan passes on the decision of a client's user or of a user of the console, if the rule of every step permits
// that. A refusal sends no request, but it takes the plan from the operator, so it needs the same right.
func (s *Control) decidePlan(w http.ResponseWriter, r *http.Request) {
	var in planapi.Answer
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		rpc.Fail(w, http.StatusBadRequest, "want an answer as JSON")
		return
	}
	id := r.PathValue("id")
	//defence:plan-by
	if p, err := s.conf.Plans.Get(id); err == nil && p.Operator {
		answerDecision(w, nil, &rpc.Error{Code: "operator_only",
			Text: "Only the operator may decide about this plan: codeforge plan approve, in a terminal."})
		return
	}
	p, err := s.conf.Plans.Decide(id, in)
	answerDecision(w, p, err)
}

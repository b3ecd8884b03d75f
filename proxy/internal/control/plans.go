package control

import (
	"encoding/json"
	"net/http"

	"github.com/codeforge-mcp/codeforge/internal/httpjson"
	"github.com/codeforge-mcp/codeforge/proxy/planapi"
)

// Plans are those of dry runs: plan.Book.
type Plans interface {
	List() []planapi.Plan
	Get(id string) (planapi.Plan, error)
	Decide(id string, a planapi.Answer) (planapi.Plan, error)
}

func (s *Control) plan(w http.ResponseWriter, r *http.Request) {
	p, err := s.conf.Plans.Get(r.PathValue("id"))
	if err != nil {
		httpjson.Fail(w, http.StatusNotFound, err.Error())
		return
	}
	httpjson.Answer(w, http.StatusOK, p)
}

// decidePlan passes on what the user of a client, or somebody in the console, decided, where every step's rule permits
// that. A refusal sends nothing, but it is the operator's too: it would take the plan from them.
func (s *Control) decidePlan(w http.ResponseWriter, r *http.Request) {
	var in planapi.Answer
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		httpjson.Fail(w, http.StatusBadRequest, "want an answer as JSON")
		return
	}
	id := r.PathValue("id")
	//defence:plan-by
	if p, err := s.conf.Plans.Get(id); err == nil && p.Operator {
		httpjson.Fail(w, http.StatusForbidden,
			"Only the operator may decide about this plan: codeforge plan approve, in a terminal.")
		return
	}
	p, err := s.conf.Plans.Decide(id, in)
	answerDecision(w, p, err)
}

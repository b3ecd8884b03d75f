package control

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/codeforge-mcp/codeforge/internal/disarm"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
)

// Room is what waits for a person: hold.Room.
type Room interface {
	List() []approvalapi.Held
	Decide(id string, approve bool) (approvalapi.Held, error)
}

func (s *Control) allHeld(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, s.conf.Room.List())
}

// decideAny passes on what somebody in the console decided, where the rule permits that. mcp-server could say anything: what
// is the operator's alone does not depend on it.
func (s *Control) decideAny(w http.ResponseWriter, r *http.Request) {
	var in approvalapi.Answer
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		fail(w, http.StatusBadRequest, "want an answer as JSON")
		return
	}
	id := r.PathValue("id")
	list := s.conf.Room.List()
	i := slices.IndexFunc(list, func(h approvalapi.Held) bool { return h.ID == id })
	if i >= 0 && list[i].Operator && !disarm.Off("held-by") {
		fail(w, http.StatusForbidden, "Only the operator may decide about this request: codeforge approve, in a terminal.")
		return
	}
	h, err := s.conf.Room.Decide(id, in.Approve)
	if refused := (*credentialapi.Refused)(nil); errors.As(err, &refused) {
		fail(w, http.StatusForbidden, refused.Text)
		return
	}
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	answer(w, http.StatusOK, h)
}

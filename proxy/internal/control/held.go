package control

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/codeforge-mcp/codeforge/internal/httpjson"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
)

// Room is what waits for a person: hold.Room.
type Room interface {
	List() []approvalapi.Held
	Waiting(run string) (list []approvalapi.Held, changed <-chan struct{})
	Decide(id string, a approvalapi.Answer) (approvalapi.Held, error)
}

// decideAny passes on what the user of a client, or somebody in the console, decided, where the rule permits that.
// mcp-server could say anything: what is the operator's alone does not depend on it.
func (s *Control) decideAny(w http.ResponseWriter, r *http.Request) {
	var in approvalapi.Answer
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		httpjson.Fail(w, http.StatusBadRequest, "want an answer as JSON")
		return
	}
	id := r.PathValue("id")
	list := s.conf.Room.List()
	i := slices.IndexFunc(list, func(h approvalapi.Held) bool { return h.ID == id })
	//defence:held-by
	if i >= 0 && list[i].Operator {
		httpjson.Fail(w, http.StatusForbidden,
			"Only the operator may decide about this request: codeforge approve, in a terminal.")
		return
	}
	h, err := s.conf.Room.Decide(id, in)
	answerDecision(w, h, err)
}

// answerDecision answers with what was decided about, or says why nothing was.
func answerDecision(w http.ResponseWriter, what any, err error) {
	var refused *credentialapi.Refused
	switch {
	case errors.As(err, &refused):
		httpjson.Fail(w, http.StatusForbidden, refused.Text)
	case err != nil:
		httpjson.Fail(w, http.StatusInternalServerError, err.Error())
	default:
		httpjson.Answer(w, http.StatusOK, what)
	}
}

// waiting streams what a run waits for, a line for each change, until its lease or the reader ends.
func (s *Control) waiting(w http.ResponseWriter, r *http.Request) {
	id, generation, ok := s.leaseOf(w, r)
	if !ok {
		return
	}
	l, err := s.conf.Book.Of(id, generation)
	if err != nil {
		httpjson.Fail(w, statusOf(err), err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	rc, enc := http.NewResponseController(w), json.NewEncoder(w)
	for {
		list, changed := s.conf.Room.Waiting(l.Run)
		if enc.Encode(list) != nil || rc.Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-l.Context().Done():
			return
		case <-r.Context().Done():
			return
		}
	}
}

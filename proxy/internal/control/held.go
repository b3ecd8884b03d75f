package control

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// HeldQueue holds the requests that wait for a person; hold.Queue implements it.
type HeldQueue interface {
	ListHeld() []approvalapi.HeldRequest
	ListWaiting(run string) (list []approvalapi.HeldRequest, changed <-chan struct{})
	DecideHeld(id string, a approvalapi.Answer) (approvalapi.HeldRequest, error)
}

// serveDecideHeld passes on the decision of a client's user or of a user of the console, if the rule permits that.
// mcp-server could forge an answer. So serveDecideHeld rejects answers about requests that only the operator may
// decide.
func (s *Control) serveDecideHeld(w http.ResponseWriter, r *http.Request) {
	var in approvalapi.Answer
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		rpc.WriteError(w, http.StatusBadRequest, "want an answer as JSON")
		return
	}
	id := r.PathValue("id")
	list := s.conf.Queue.ListHeld()
	i := slices.IndexFunc(list, func(h approvalapi.HeldRequest) bool { return h.ID == id })
	//defence:held-by
	if i >= 0 && list[i].Operator {
		answerDecision(w, nil, &rpc.Error{Code: "operator_only",
			Text: "Only the operator may decide about this request: codeforge approve, in a terminal."})
		return
	}
	h, err := s.conf.Queue.DecideHeld(id, in)
	answerDecision(w, h, err)
}

// answerDecision answers with the decided item, or with the reason why the decision was refused.
func answerDecision(w http.ResponseWriter, decided any, err error) {
	if err == nil {
		rpc.WriteAnswer(w, http.StatusOK, decided)
		return
	}
	if refused := (*rpc.Error)(nil); errors.As(err, &refused) {
		err = &rpc.Error{Status: proxyapi.StatusNotDecided, Code: refused.Code, Text: refused.Text}
	}
	rpc.WriteRefusal(w, err)
}

// streamHeld streams the requests that a run waits for, one line for each change, until its lease or the reader ends.
func (s *Control) streamHeld(w http.ResponseWriter, r *http.Request) {
	id, generation, ok := s.parseLease(w, r)
	if !ok {
		return
	}
	l, err := s.conf.Leases.FindLease(id, generation)
	if err != nil {
		rpc.WriteRefusal(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	rc, enc := http.NewResponseController(w), json.NewEncoder(w)
	for {
		// List and channel come from one lock, so a change between the two is not missed.
		list, changed := s.conf.Queue.ListWaiting(l.Run)
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

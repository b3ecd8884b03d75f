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

// Room holds the requests that wait for a person; hold.Room implements it.
type Room interface {
	List() []approvalapi.Held
	Waiting(run string) (list []approvalapi.Held, changed <-chan struct{})
	Decide(id string, a approvalapi.Answer) (approvalapi.Held, error)
}

// decideAny passes on the decision of a client's user or of a user of the console, if the rule permits that. mcp-server
// could forge an answer. So decideAny rejects answers about requests that only the operator may decide.
func (s *Control) decideAny(w http.ResponseWriter, r *http.Request) {
	var in approvalapi.Answer
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		rpc.Fail(w, http.StatusBadRequest, "want an answer as JSON")
		return
	}
	id := r.PathValue("id")
	list := s.conf.Room.List()
	i := slices.IndexFunc(list, func(h approvalapi.Held) bool { return h.ID == id })
	//defence:held-by
	if i >= 0 && list[i].Operator {
		answerDecision(w, nil, &rpc.Error{Code: "operator_only",
			Text: "Only the operator may decide about this request: codeforge approve, in a terminal."})
		return
	}
	h, err := s.conf.Room.Decide(id, in)
	answerDecision(w, h, err)
}

// answerDecision answers with the decided item, or with the reason why the decision was refused.
func answerDecision(w http.ResponseWriter, decided any, err error) {
	if err == nil {
		rpc.Answer(w, http.StatusOK, decided)
		return
	}
	if refused := (*rpc.Error)(nil); errors.As(err, &refused) {
		err = &rpc.Error{Status: proxyapi.StatusNotDecided, Code: refused.Code, Text: refused.Text}
	}
	rpc.Refuse(w, err)
}

// waiting streams the requests that a run waits for, one line for each change, until its lease or the reader ends.
func (s *Control) waiting(w http.ResponseWriter, r *http.Request) {
	id, generation, ok := s.leaseOf(w, r)
	if !ok {
		return
	}
	l, err := s.conf.Book.Of(id, generation)
	if err != nil {
		rpc.Refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	rc, enc := http.NewResponseController(w), json.NewEncoder(w)
	for {
		// List and channel come from one lock, so a change between the two is not missed.
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

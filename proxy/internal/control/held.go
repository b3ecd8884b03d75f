package control

import (
	"encoding/json"
	"net/http"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
)

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
		list, changed := s.conf.Approvals.ListWaiting(l.Run)
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

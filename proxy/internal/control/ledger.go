package control

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/httpjson"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
)

// The ledger is read at most once in checkEvery, and in checkShare times what reading it took: whoever asks all the
// time costs the proxy little.
const (
	checkEvery = time.Minute
	checkShare = 50
	maxKnown   = 200
)

// ledgerCheck is what was found when the ledger was read last.
type ledgerCheck struct {
	mu   sync.Mutex
	last controlapi.LedgerCheck
	took time.Duration
}

// checkLedger reads the ledger and says whether it is whole, or what the last reading found if that is not long ago.
func (s *Control) checkLedger(w http.ResponseWriter, r *http.Request) {
	if s.conf.Ledger == nil {
		httpjson.Fail(w, http.StatusNotFound, "there is no ledger")
		return
	}
	var heads []controlapi.KnownHead
	if err := json.NewDecoder(r.Body).Decode(&heads); err != nil || len(heads) > maxKnown {
		httpjson.Fail(w, http.StatusBadRequest, "want at most 200 checkpoints of runs")
		return
	}
	var known []ledger.Known
	for _, k := range heads {
		if head, err := ledger.ParseHead(k.Audit); err == nil {
			known = append(known, ledger.Known{Head: head, Where: "the receipt of run " + k.Run})
		}
	}
	s.checked.mu.Lock()
	defer s.checked.mu.Unlock()
	if time.Since(s.checked.last.Checked) >= max(checkEvery, checkShare*s.checked.took) {
		began := time.Now()
		found, err := s.conf.Ledger.Verify(known)
		if err != nil {
			httpjson.Fail(w, http.StatusInternalServerError, err.Error())
			return
		}
		s.checked.took = time.Since(began)
		s.checked.last = controlapi.LedgerCheck{
			Checked: began, Records: found.Records, Forgotten: found.Forgotten, Unsigned: found.Unsigned,
			Compared: found.Compared, Findings: found.Findings, Head: found.Head, Lost: s.conf.Ledger.Lost(),
		}
	}
	httpjson.Answer(w, http.StatusOK, s.checked.last)
}

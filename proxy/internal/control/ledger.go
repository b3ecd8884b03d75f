package control

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// The proxy reads the ledger at most once in checkEvery, and at most once in checkShare times the duration of the last
// reading. So frequent requests cost the proxy little.
const (
	checkEvery = time.Minute
	checkShare = 50
	maxKnown   = 200
)

// ledgerCheck is the result of the last reading of the ledger.
type ledgerCheck struct {
	mu   sync.Mutex
	last proxyapi.LedgerCheck
	took time.Duration
}

// serveLedgerCheck reads the ledger and reports whether it is intact, or answers with the last result if that is
// recent.
func (s *Control) serveLedgerCheck(r *http.Request) (any, error) {
	if s.conf.Ledger == nil {
		return nil, fmt.Errorf("%w: there is no ledger", proxyapi.ErrNotFound)
	}
	var heads []proxyapi.KnownHead
	if err := json.NewDecoder(r.Body).Decode(&heads); err != nil || len(heads) > maxKnown {
		return nil, rpc.NewBadRequest("want at most 200 checkpoints of runs")
	}
	var known []ledger.KnownCheckpoint
	for _, k := range heads {
		if head, err := ledger.ParseHead(k.Audit); err == nil {
			known = append(known, ledger.KnownCheckpoint{Head: head, Where: "the receipt of run " + k.Run})
		}
	}
	// Held during the reading: concurrent requests share one result.
	s.checked.mu.Lock()
	defer s.checked.mu.Unlock()
	if time.Since(s.checked.last.Checked) >= max(checkEvery, checkShare*s.checked.took) {
		began := time.Now()
		found, err := s.conf.Ledger.Verify(known)
		if err != nil {
			return nil, err
		}
		s.checked.took = time.Since(began)
		s.checked.last = proxyapi.LedgerCheck{Checked: began, LedgerReport: found, Lost: s.conf.Ledger.LostCount()}
	}
	return s.checked.last, nil
}

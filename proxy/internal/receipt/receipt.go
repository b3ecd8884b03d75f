// Package receipt records the proxy's actions: one entry in the run's receipt, one log line and one count per exchange.
// For a person, cli/internal/cli/receipt.go writes them as text.
//
// Contract: everything is bounded, so a run cannot grow the proxy's memory by fetching. All text from outside passes
// the last scrub and redaction before it is kept or written.
package receipt

import (
	"slices"
	"sync"

	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// The bounds of one receipt.
const (
	MaxExchanges = 200  // entries; further exchanges are only counted
	MaxHints     = 32   // different hints; further ones are dropped
	maxURL       = 2048 // bytes of an entry's URL
	maxMethod    = 32   // bytes of an entry's method: HTTP/2 takes one of 64 KiB
	maxEntryList = 32   // swaps of one entry
	// maxRefused is the number of a run's refused requests in the ledger. Further ones are only counted at the end of the
	// run, because code can make them for free and could fill the ledger. A refused request of which a part has left is
	// always in the ledger.
	maxRefused = 10_000
)

// Recorder collects the receipt of one run. It is safe for concurrent use.
type Recorder struct {
	mu sync.Mutex
	r  proxyapi.Receipt
}

// NewRecorder starts the receipt of a tenant's run.
func NewRecorder(run, tenant string, generation uint64) *Recorder {
	return &Recorder{r: proxyapi.Receipt{
		Run: run, Tenant: tenant, Generation: generation, Exchanges: []proxyapi.Exchange{},
	}}
}

// AddExchange counts an exchange and, below the bound, keeps it. It keeps each hint once.
func (r *Recorder) AddExchange(e proxyapi.Exchange, hints []proxyapi.Hint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Before the bound: the counts are complete even if the list is not.
	r.r.Count.AddExchange(e)
	for _, h := range hints {
		r.addHint(h)
	}
	if len(r.r.Exchanges) >= MaxExchanges {
		r.r.Omitted++
		return
	}
	r.r.Exchanges = append(r.r.Exchanges, truncateExchange(e))
}

// countRefused returns the number of refused exchanges so far.
func (r *Recorder) countRefused() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.r.Count.Denied
}

// SetAlarm keeps the first alarm.
func (r *Recorder) SetAlarm(a proxyapi.Alarm) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.r.Alarm == nil {
		r.r.Alarm = &a
	}
}

// addHint keeps a new hint. The caller holds the lock.
func (r *Recorder) addHint(h proxyapi.Hint) {
	if len(r.r.Hints) < MaxHints && !slices.Contains(r.r.Hints, h) {
		r.r.Hints = append(r.r.Hints, h)
	}
}

// CopyReceipt returns a copy of the receipt so far.
func (r *Recorder) CopyReceipt() proxyapi.Receipt {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.r
	out.Exchanges = append([]proxyapi.Exchange{}, r.r.Exchanges...)
	out.Hints = append([]proxyapi.Hint(nil), r.r.Hints...)
	return out
}

// TakeExchanges returns and forgets the exchanges since the last TakeExchanges, except those that another run has
// caused. If run is empty, it returns all.
func (r *Recorder) TakeExchanges(run string) proxyapi.Receipt {
	r.mu.Lock()
	defer r.mu.Unlock()
	out, all := r.r, r.r.Exchanges
	r.r = proxyapi.Receipt{Run: out.Run, Tenant: out.Tenant, Generation: out.Generation}
	out.Exchanges, r.r.Exchanges = []proxyapi.Exchange{}, []proxyapi.Exchange{}
	for _, e := range all {
		if run != "" && e.CausedBy != nil && e.CausedBy.Run != run {
			r.r.Exchanges = append(r.r.Exchanges, e)
		} else {
			out.Exchanges = append(out.Exchanges, e)
		}
	}
	return out
}

// truncateExchange truncates the parts that a request can make long.
func truncateExchange(e proxyapi.Exchange) proxyapi.Exchange {
	if len(e.URL) > maxURL {
		e.URL = e.URL[:maxURL] + "..."
	}
	for _, list := range []*[]proxyapi.Swap{&e.Swapped, &e.Scrubbed} {
		n := min(len(*list), maxEntryList)
		e.Unlisted += len(*list) - n
		*list = (*list)[:n]
	}
	return e
}

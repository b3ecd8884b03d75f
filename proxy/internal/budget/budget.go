// Package budget counts what all runs together do with an API, and says when that is enough.
//
// Threat: requests in parallel, or after a restart, that spend a limit twice. What a request needs is reserved before
// it is sent, all of it at once or nothing, and given back only if nothing was sent. A window slides: in none of its
// length more than the limit is spent. Counts are stored within a second, so that a machine that stops dead forgets at
// most what was spent in that.
package budget

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
)

// windowParts is how many parts a window has. What was spent counts until the whole part is out of the window.
const windowParts = 60

// Need is what a request needs of one limit.
type Need struct {
	Key          string // of the limit
	Amount, Most int64
	Per          time.Duration
}

// Ledger counts. The zero Ledger is empty and stores nothing.
type Ledger struct {
	// Path is the file of the counts.
	Path string
	// Now is the clock. Nil means time.Now.
	Now func() time.Time

	mu    sync.Mutex
	spent map[string]*account
	dirty bool
}

// account is what was spent of one limit, by the number of the part of time.
type account struct {
	Per   time.Duration   `json:"per"`
	Parts map[int64]int64 `json:"parts"`
}

// Load reads the stored counts. No file: there are none.
func (l *Ledger) Load() error {
	text, err := os.ReadFile(l.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := json.Unmarshal(text, &l.spent); err != nil {
		return err
	}
	maps.DeleteFunc(l.spent, func(_ string, a *account) bool { return a == nil || a.Per < windowParts || a.Parts == nil })
	return nil
}

// Run stores the counts as they change until ctx ends, and once more then. failed is called when that begins to fail.
func (l *Ledger) Run(ctx context.Context, failed func(error)) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for done, failing := false, false; !done; {
		select {
		case <-ctx.Done():
			done = true
		case <-tick.C:
		}
		err := l.store()
		if err != nil && !failing { // not each second while a disk is full
			failed(err)
		}
		failing = err != nil
	}
}

func (l *Ledger) store() error {
	l.mu.Lock()
	if !l.dirty {
		l.mu.Unlock()
		return nil
	}
	l.dirty = false
	for _, a := range l.spent {
		a.forget(l.now())
	}
	text, err := json.Marshal(l.spent)
	l.mu.Unlock()
	if err == nil {
		err = atomicfile.Write(l.Path, text, 0o600)
	}
	if err != nil {
		l.mu.Lock()
		l.dirty = true
		l.mu.Unlock()
	}
	return err
}

func (l *Ledger) now() time.Time {
	if l.Now != nil {
		return l.Now()
	}
	return time.Now()
}

// part is the number of the part of time that t is in.
func (a *account) part(t time.Time) int64 { return t.UnixNano() / int64(a.Per/windowParts) }

// forget drops the oldest of what is out of the window. As much as a window has stays: it counts again when the clock,
// which was ahead, is set back. What seems to come later then counts as spent now.
func (a *account) forget(now time.Time) {
	here := a.part(now)
	for part, amount := range a.Parts {
		if part > here {
			a.Parts[here] += amount
			delete(a.Parts, part)
		}
	}
	const kept = 2 * windowParts
	if len(a.Parts) <= kept {
		return
	}
	parts := slices.Sorted(maps.Keys(a.Parts))
	for _, part := range parts[:len(parts)-kept] {
		delete(a.Parts, part)
	}
}

// Reserve spends what a request needs. ok is false if a limit has not that much left: nothing is spent then, and wait
// is how long until it has, or zero if it never has. force spends it nevertheless. back gives it back.
func (l *Ledger) Reserve(needs []Need, force bool) (back func(), wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if l.spent == nil {
		l.spent = map[string]*account{}
	}
	for _, n := range needs {
		a := l.spent[n.Key]
		if a == nil || a.Per != n.Per || a.Parts == nil {
			a = &account{Per: n.Per, Parts: map[int64]int64{}}
			l.spent[n.Key] = a
		}
		a.forget(now)
		if left, until := a.until(now, n); !left && !force {
			return nil, until, false
		}
	}
	type entry struct {
		a            *account
		part, amount int64
	}
	var made []entry
	for _, n := range needs {
		a := l.spent[n.Key]
		part := a.part(now)
		a.Parts[part] += n.Amount
		made = append(made, entry{a, part, n.Amount})
	}
	l.dirty = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, e := range made {
			if e.a.Parts[e.part] >= e.amount {
				e.a.Parts[e.part] -= e.amount
			}
		}
		l.dirty = true
	}, 0, true
}

// until reports whether there is as much left as is needed, and else how long until there is.
func (a *account) until(now time.Time, n Need) (left bool, wait time.Duration) {
	if n.Amount > n.Most {
		return false, 0
	}
	fits := func(first int64) bool {
		room := n.Most - n.Amount
		for part, amount := range a.Parts {
			if part >= first {
				room -= amount
			}
		}
		return room >= 0
	}
	here := a.part(now)
	for first := here - windowParts; ; first++ {
		if !fits(first) {
			continue
		}
		if first == here-windowParts {
			return true, 0
		}
		// The parts before first are out of the window when first is its oldest.
		return false, time.Unix(0, (first+windowParts)*int64(a.Per/windowParts)).Sub(now)
	}
}

// Package budget counts the requests of all runs together against the limits of an API.
//
// Threat: parallel requests, or requests after a restart, that spend a limit twice.
//
// Contract: the amount for a request is reserved before the request is sent, for all limits or for none. It is given
// back only if no byte was sent. A window slides: no window of its length exceeds the limit. Counts are stored within a
// second, so a crash loses at most the last second.
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

// windowParts is the number of parts of a window. An amount counts until its whole part is out of the window.
const windowParts = 60

// Need is the amount that a request needs of one limit.
type Need struct {
	Key          string // the key of the limit
	Amount, Most int64
	Per          time.Duration
}

// Ledger counts amounts. The zero Ledger is empty and has no file.
type Ledger struct {
	// Path is the file of the counts.
	Path string
	// Now is the clock. Nil means time.Now.
	Now func() time.Time

	mu    sync.Mutex
	spent map[string]*account
	dirty bool
}

// account is the amount spent of one limit, by the number of the part of time.
type account struct {
	Per   time.Duration   `json:"per"`
	Parts map[int64]int64 `json:"parts"`
}

// Load reads the stored counts. A missing file is not an error.
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
	// A damaged file must not cause a division by zero in part.
	maps.DeleteFunc(l.spent, func(_ string, a *account) bool { return a == nil || a.Per < windowParts || a.Parts == nil })
	return nil
}

// Run stores changed counts until ctx ends, and then once more. It calls failed when storing begins to fail.
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
		// Report a full disk once, not every second.
		if err != nil && !failing {
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
	// Before the write: a change during the write makes the counts dirty again.
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
		// Try again with the next tick.
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

// part returns the number of the part of time that contains t.
func (a *account) part(t time.Time) int64 { return t.UnixNano() / int64(a.Per/windowParts) }

// forget drops old amounts outside the window. It keeps the amounts of two windows, because they count again if the
// clock was ahead and is set back. An amount in the future then counts as spent now.
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

// Reserve spends the amounts that a request needs. If a limit does not have enough left, ok is false and it spends
// nothing. wait is then the time until the limit has enough, or zero if it never will. With force it spends the amounts
// in any case. back gives the amounts back.
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
	// Spend only after every limit has been checked: all or nothing.
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
			// forget may have moved or dropped the part since.
			if e.a.Parts[e.part] >= e.amount {
				e.a.Parts[e.part] -= e.amount
			}
		}
		l.dirty = true
	}, 0, true
}

// until reports whether the limit has enough left, or else the time until it has.
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

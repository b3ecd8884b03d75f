// Package budget counts the use of an API by all runs together, and decides whether a limit is reached.
//
// Threat: parallel requests, or requests after a restart, spend a limit twice. Contract: a request reserves all that it
// needs before it is sent, or is not sent. It gives the amount back only if it did not leave. A window slides: in any
// span of its length, at most the limit is spent. Counts are stored once a second, so a machine that stops dead loses
// at most the last second.
package budget

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
	"github.com/codeforge-mcp/codeforge/internal/timing"
	"github.com/codeforge-mcp/codeforge/proxy/internal/shareddb"
)

// windowParts is the number of parts of a window. An amount counts until its whole part has left the window.
const windowParts = 60

// Need is the amount that a request needs from one limit.
type Need struct {
	Key          string // identifies the limit
	Amount, Most int64
	Per          time.Duration
}

// LimitCounter counts spent amounts. It is safe for concurrent use.
type LimitCounter interface {
	// Reserve spends the amounts that a request needs. If a limit has not that much left, ok is false and Reserve spends
	// no amount. wait is then the time until the limit has enough, or zero if it never will. With force, Reserve spends
	// the amounts in any case. back returns them. After an error the request must not leave. by sends the request.
	Reserve(ctx context.Context, by shareddb.Run, needs []Need, force bool) (
		back func(), wait time.Duration, ok bool, err error)
}

// Counter is the LimitCounter of one proxy. The zero Counter is empty.
type Counter struct {
	// Path is the file of the counts.
	Path string
	// Now is the clock. Nil means time.Now.
	Now func() time.Time

	mu    sync.Mutex
	spent map[string]*limitUse
	dirty bool
}

// limitUse holds the amounts spent of one limit, by the number of the part of time.
type limitUse struct {
	Per   time.Duration   `json:"per"`
	Parts map[int64]int64 `json:"parts"`
}

// Load reads the stored counts. A missing file means that there are no counts.
func (l *Counter) Load() error {
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
	// A damaged entry would divide by zero in part, or write to a nil map.
	maps.DeleteFunc(l.spent, func(_ string, a *limitUse) bool { return a == nil || a.Per < windowParts || a.Parts == nil })
	return nil
}

// StoreEverySecond stores the counts once a second if they have changed, until ctx ends, and once more then. It calls
// failed for the first of several failures.
func (l *Counter) StoreEverySecond(ctx context.Context, failed func(error)) {
	failing := false
	for isActive := true; isActive; {
		isActive = timing.WaitFor(ctx, time.Second)
		err := l.storeCounts()
		if err != nil && !failing { // not each second while the disk is full
			failed(err)
		}
		failing = err != nil
	}
}

func (l *Counter) storeCounts() error {
	l.mu.Lock()
	if !l.dirty {
		l.mu.Unlock()
		return nil
	}
	// Before the write: a Reserve during the write sets it again.
	l.dirty = false
	// Parts that no longer count must not fill the file.
	for _, a := range l.spent {
		a.dropOldParts(l.clockTime())
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

func (l *Counter) clockTime() time.Time {
	if l.Now != nil {
		return l.Now()
	}
	return time.Now()
}

// partOf returns the number of the part of time that contains t.
func (a *limitUse) partOf(t time.Time) int64 { return t.UnixNano() / int64(a.Per/windowParts) }

// addToPart adds an amount to a part. On an overflow the part stays at the largest number.
func (a *limitUse) addToPart(part, amount int64) {
	a.Parts[part] = min(a.Parts[part], math.MaxInt64-amount) + amount
}

// dropOldParts drops the oldest parts outside the window. It keeps the parts of one more window: they count again if
// the clock was ahead and is set back. It adds parts in the future to the current part.
func (a *limitUse) dropOldParts(now time.Time) {
	here := a.partOf(now)
	// The clock was set back: the amounts were spent, so they count as of now.
	for part, amount := range a.Parts {
		if part > here {
			a.addToPart(here, amount)
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

// Reserve implements LimitCounter. It never fails.
func (l *Counter) Reserve(
	_ context.Context, _ shareddb.Run, needs []Need, force bool,
) (back func(), wait time.Duration, ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spent == nil {
		l.spent = map[string]*limitUse{}
	}
	made, wait, ok := spendNeeds(l.spent, l.clockTime(), needs, force)
	if !ok {
		return nil, wait, false, nil
	}
	l.dirty = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, one := range made {
			one.use.returnAmount(one)
		}
		l.dirty = true
	}, 0, true, nil
}

// spending is an amount that was added to a part of a limit's use.
type spending struct {
	use          *limitUse
	part, amount int64
}

// spendNeeds spends the amounts that a request needs, in spent. Its other parameters and results are those of Reserve.
func spendNeeds(
	spent map[string]*limitUse, now time.Time, needs []Need, force bool,
) (made []spending, wait time.Duration, ok bool) {
	// Check all needs before spending any: a refused request must not use up the other limits.
	for _, n := range needs {
		a := spent[n.Key]
		if a == nil || a.Per != n.Per || a.Parts == nil {
			a = &limitUse{Per: n.Per, Parts: map[int64]int64{}}
			spent[n.Key] = a
		}
		a.dropOldParts(now)
		if left, until := a.hasRoom(now, n); !left && !force {
			return nil, until, false
		}
	}
	// Spend only after every limit has been checked: all or nothing.
	for _, n := range needs {
		a := spent[n.Key]
		part := a.partOf(now)
		a.addToPart(part, n.Amount)
		made = append(made, spending{a, part, n.Amount})
	}
	return made, 0, true
}

// returnAmount returns a spent amount. If dropOldParts has moved or dropped the amount meanwhile, it stays spent, as in
// a full part.
func (a *limitUse) returnAmount(one spending) {
	if have := a.Parts[one.part]; have >= one.amount && have < math.MaxInt64 {
		a.Parts[one.part] -= one.amount
	}
}

// hasRoom reports whether the limit has enough left, and otherwise how long until it has.
func (a *limitUse) hasRoom(now time.Time, n Need) (left bool, wait time.Duration) {
	if n.Amount > n.Most {
		return false, 0
	}
	fits := func(first int64) bool {
		room := n.Most - n.Amount
		for part, amount := range a.Parts {
			if part < first {
				continue
			}
			// The check is inside the loop, because two large amounts could overflow room to a positive number.
			if room -= amount; room < 0 {
				return false
			}
		}
		return true
	}
	here := a.partOf(now)
	// Move the window forward until the amount fits.
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

// Package idempotency assigns idempotency keys to write requests.
//
// A server with idempotency keys carries out a request once per key, and answers a repetition with its earlier answer.
// A request gets the key of an earlier, equal request of its tenant only if the earlier one has no known outcome: its
// answer may be lost. After every answer, and beside a request that is still running, the same request gets a new key.
// Two charges of the same amount can both be intended.
package idempotency

import (
	"crypto/rand"
	"crypto/sha256"
	"slices"
	"sync"
	"time"
)

const (
	// keepTime is the time for which an attempt without a known outcome can be repeated. Servers commonly remember keys
	// that long.
	keepTime = 24 * time.Hour
	// maxAttempts bounds the number of kept attempts. Beyond it, the oldest attempt of the tenant with the most attempts
	// is dropped.
	maxAttempts = 10_000
)

// Group identifies requests that are the same.
type Group [sha256.Size]byte

// Keys are the keys of attempts without a known outcome. The zero Keys is ready for use. The keys end with the process.
type Keys struct {
	// Now is the clock. Nil means time.Now.
	Now func() time.Time

	mu   sync.Mutex
	open []openAttempt // the oldest first
}

type openAttempt struct {
	tenant string
	group  Group
	key    string
	until  time.Time
}

// BeginAttempt returns the key for a request of a tenant; "" is the operator. The caller must call ended once, when the
// request is over. known means that the server has answered, or that no byte of the request was sent.
func (k *Keys) BeginAttempt(tenant string, g Group) (key string, ended func(known bool)) {
	now := k.wallTime()
	k.mu.Lock()
	defer k.mu.Unlock()
	a := openAttempt{tenant: tenant, group: g, key: rand.Text(), until: now.Add(keepTime)}
	same := func(o openAttempt) bool { return o.group == g && o.tenant == tenant && now.Before(o.until) }
	if i := slices.IndexFunc(k.open, same); i >= 0 {
		a = k.open[i]
		// The attempt leaves the list while it runs, so that the same request beside it gets a new key.
		k.open = slices.Delete(k.open, i, i+1)
	}
	var once sync.Once
	return a.key, func(known bool) {
		once.Do(func() {
			if !known {
				k.keepAttempt(a)
			}
		})
	}
}

// keepAttempt stores an attempt without a known outcome, ordered by its end.
func (k *Keys) keepAttempt(a openAttempt) {
	now := k.wallTime()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open = slices.DeleteFunc(k.open, func(o openAttempt) bool { return !now.Before(o.until) })
	if len(k.open) >= maxAttempts {
		// One tenant must not push out the attempts of the others.
		who := k.findBusiestTenant()
		i := slices.IndexFunc(k.open, func(o openAttempt) bool { return o.tenant == who })
		k.open = slices.Delete(k.open, i, i+1)
	}
	k.open = append(k.open, a)
	slices.SortStableFunc(k.open, func(a, b openAttempt) int { return a.until.Compare(b.until) })
}

// findBusiestTenant returns the tenant with the most attempts. The caller holds the lock, and there is at least one
// attempt.
func (k *Keys) findBusiestTenant() string {
	of, who := map[string]int{}, k.open[0].tenant
	for _, o := range k.open {
		of[o.tenant]++
	}
	for name, n := range of {
		if n > of[who] {
			who = name
		}
	}
	return who
}

// wallTime returns the wall clock's time: servers forget keys also while this machine sleeps.
func (k *Keys) wallTime() time.Time {
	if k.Now != nil {
		return k.Now().Round(0)
	}
	return time.Now().Round(0)
}

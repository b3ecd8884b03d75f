// Package attempt gives requests that write the keys by which their servers know a repetition.
//
// A server with idempotency keys carries out a request once for each key, and answers its repetition with what it
// answered before. A request gets the key of an earlier one only if that was the same, of the same tenant, and nobody
// knows how it ended: its answer may have got lost on the way. After every answer, and beside one that is still under
// way, the same request is a new one: two charges of one amount can both be meant.
package attempt

import (
	"crypto/rand"
	"crypto/sha256"
	"slices"
	"sync"
	"time"
)

const (
	// keep is how long an attempt without a known end can be repeated: for as long as servers commonly remember keys.
	keep = 24 * time.Hour
	// most bounds the attempts that are kept. The oldest of the tenant who has most of them go first.
	most = 10_000
)

// Group identifies requests that are the same.
type Group [sha256.Size]byte

// Keys are the keys of attempts without a known end. The zero Keys is empty and ready. They end with the process.
type Keys struct {
	// Now is the clock. Nil means time.Now.
	Now func() time.Time

	mu   sync.Mutex
	open []attempt // the oldest first
}

type attempt struct {
	tenant string
	group  Group
	key    string
	until  time.Time
}

// Begin returns the key for a request of a tenant; empty: of the operator. ended must be called once, when the request
// is over: known says that its server has answered, or that nothing of it was sent.
func (k *Keys) Begin(tenant string, g Group) (key string, ended func(known bool)) {
	now := k.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	a := attempt{tenant: tenant, group: g, key: rand.Text(), until: now.Add(keep)}
	for i := range k.open {
		if o := &k.open[i]; o.group == g && o.tenant == tenant && now.Before(o.until) {
			a = *o
			k.open = append(k.open[:i], k.open[i+1:]...)
			break
		}
	}
	var once sync.Once
	return a.key, func(known bool) {
		once.Do(func() {
			if !known {
				k.keep(a)
			}
		})
	}
}

// keep keeps an attempt without a known end, where the oldest are.
func (k *Keys) keep(a attempt) {
	now := k.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	first := 0
	for first < len(k.open) && !now.Before(k.open[first].until) {
		first++
	}
	k.open = slices.Delete(k.open, 0, first)
	if len(k.open) >= most {
		who := k.most()
		i := slices.IndexFunc(k.open, func(o attempt) bool { return o.tenant == who })
		k.open = slices.Delete(k.open, i, i+1)
	}
	at := len(k.open)
	for at > 0 && k.open[at-1].until.After(a.until) {
		at--
	}
	k.open = append(k.open, attempt{})
	copy(k.open[at+1:], k.open[at:])
	k.open[at] = a
}

// most is the tenant who has most attempts. The caller holds the lock, and there is one.
func (k *Keys) most() string {
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

// now is the wall clock's time: servers forget keys while this machine sleeps too.
func (k *Keys) now() time.Time {
	if k.Now != nil {
		return k.Now().Round(0)
	}
	return time.Now().Round(0)
}

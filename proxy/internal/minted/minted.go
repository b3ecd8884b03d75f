// Package minted holds the values of credentials that change while the proxy runs, so that they are found in responses,
// requests and logs like those of config.json.
//
// Contract: Add returns once every search that begins afterwards finds the value, and every open stream does in what it
// reads afterwards. A value is forgotten when its time is over, and only then. The searches are immutable and replaced
// as a whole, so that no reader waits for another one, and no exchange ends because a token was renewed.
package minted

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/proxy/internal/engine"
)

const (
	// MaxValue is the length of the longest value in bytes. What streams hold back depends on it, not on the values.
	MaxValue = 8192
	// minValue is that of the shortest: shorter ones appear in responses by chance.
	minValue = 8
	// most is how many values of one credential are held at once, with those that belong to it, and mostBytes how long
	// they are together: each byte takes some 30 in the patterns.
	most, mostBytes = 256, 512 << 10
	// sweep is how often expired values are removed.
	sweep = 10 * time.Minute
	// stretch is how long a build works before it rests.
	stretch = 100 * time.Microsecond
)

// ErrFull is for a credential with as many values as it may have: none is forgotten early.
var ErrFull = errors.New("too many values of this credential are in use")

// Values are the values in force. Make them with New. The nil Values are none.
type Values struct {
	now     func() time.Time
	current atomic.Pointer[layer]

	mu      sync.Mutex
	live    map[key]value
	names   []string // by id, only growing
	ids     map[string]int
	version int

	building sync.Mutex
	built    int // the version that is current
}

// key is a value, and whose it is.
type key struct {
	name, value string
	inner       bool
}

// value is until when a value is known, and its patterns, which take most of the time of a build.
type value struct {
	until      time.Time
	all, lower []engine.Pattern
}

// shown is what a value is shown as.
func (k key) shown() string {
	if k.inner {
		return secret.Mask
	}
	return k.name
}

// layer is one state. It is immutable.
type layer struct {
	set, lower *engine.Set
	names      []string
}

// New makes an empty Values. now is the clock; nil: time.Now.
func New(now func() time.Time) *Values {
	if now == nil {
		now = time.Now
	}
	v := &Values{now: now, live: map[key]value{}, ids: map[string]int{}}
	v.current.Store(&layer{})
	return v
}

// Problem says why a text cannot be a value, without showing it. Nil means that it can.
func Problem(value string) error {
	switch {
	case len(value) < minValue:
		return fmt.Errorf("a value of fewer than %d bytes", minValue)
	case len(value) > MaxValue:
		return fmt.Errorf("a value of more than %d bytes", MaxValue)
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }):
		return errors.New("a value with characters other than printable ASCII")
	case strings.TrimSpace(value) != value:
		return errors.New("a value with white space at its start or end")
	}
	return nil
}

// Value is one to be known.
type Value struct {
	// Name is the token name, and what Text is shown as.
	Name, Text string
	// Inner means that Text is not the credential but belongs to it, such as a refresh token, and is shown as a mask. A
	// token name in its place would be swapped if code sent it back.
	Inner bool
	// Until is when Text is forgotten.
	Until time.Time
}

func (n Value) key() key { return key{n.Name, n.Text, n.Inner} }

// Add makes values known. What is known already gets the new time. An error means that none of them may be used.
func (v *Values) Add(values ...Value) error {
	for _, n := range values {
		if err := Problem(n.Text); err != nil {
			return err
		}
	}
	v.mu.Lock()
	v.forget()
	for _, n := range values {
		if _, known := v.live[n.key()]; !known {
			if number, bytes := v.taken(n.Name); number >= most || bytes+len(n.Text) > mostBytes {
				v.mu.Unlock()
				return ErrFull
			}
		}
		v.set(n)
	}
	want := v.version
	v.mu.Unlock()
	v.build(want)
	return nil
}

// set is Add for one value. The caller holds mu.
func (v *Values) set(n Value) {
	k := n.key()
	if _, ok := v.ids[k.shown()]; !ok {
		v.ids[k.shown()] = len(v.names)
		v.names = append(v.names, k.shown())
	}
	known, ok := v.live[k]
	if !ok {
		v.version++
		id := ^v.ids[k.shown()]
		known.all, known.lower = engine.Forms(k.value, id), engine.LowerForms(k.value, id)
	}
	known.until = n.Until
	v.live[k] = known
}

// Crowded reports whether a credential has a quarter of the values that it may have, or of their bytes.
func (v *Values) Crowded(name string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	number, bytes := v.taken(name)
	return number >= most/4 || bytes >= mostBytes/4
}

// taken is how many values of a credential there are, and their length together. The caller holds mu.
func (v *Values) taken(name string) (number, bytes int) {
	for k := range v.live {
		if k.name == name {
			number++
			bytes += len(k.value)
		}
	}
	return number, bytes
}

// forget removes expired values. The caller holds mu.
func (v *Values) forget() {
	now := v.now()
	for k, known := range v.live {
		if now.After(known.until) {
			delete(v.live, k)
			v.version++
		}
	}
}

// build puts the values in force, unless a build that began later has done so. Those who wait share one build.
func (v *Values) build(want int) {
	v.building.Lock()
	defer v.building.Unlock()
	if v.built >= want {
		return
	}
	v.mu.Lock()
	at := v.version
	l := &layer{names: v.names[:len(v.names):len(v.names)]}
	var all, lower []engine.Pattern
	for _, known := range v.live {
		all = append(all, known.all...)
		lower = append(lower, known.lower...)
	}
	v.mu.Unlock()
	rest := breather()
	l.set, l.lower = engine.NewAside(all, rest), engine.NewAside(lower, rest)
	v.current.Store(l)
	v.built = at
}

// breather returns what rests after each stretch of work for as long again, so that requests are served beside a build
// even where all processors are busy: those who wait for the value have waited for a server.
func breather() func() {
	began := time.Now()
	return func() {
		if time.Since(began) > stretch {
			time.Sleep(stretch)
			began = time.Now()
		}
	}
}

// Run forgets values in time, until ctx ends.
func (v *Values) Run(ctx context.Context) {
	tick := time.NewTicker(sweep)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			v.Sweep()
		}
	}
}

// Sweep forgets the values whose time is over.
func (v *Values) Sweep() {
	v.mu.Lock()
	v.forget()
	want := v.version
	v.mu.Unlock()
	v.build(want)
}

// Len returns how many values are known.
func (v *Values) Len() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.live)
}

// Above returns a set that finds what s finds, and the values in force in all their forms, with ids for which Name
// knows what is shown.
func (v *Values) Above(s *engine.Set) *engine.Set {
	//defence:minted-layer permits
	if v == nil {
		return s
	}
	return s.Layered(MaxValue, func() *engine.Set { return v.current.Load().set })
}

// AboveLower is Above for texts whose case does not matter.
func (v *Values) AboveLower(s *engine.Set) *engine.Set {
	//defence:minted-layer permits
	if v == nil {
		return s
	}
	return s.Layered(MaxValue, func() *engine.Set { return v.current.Load().lower })
}

// Name returns what a value is shown as. It is false for an id that is not of Above.
func (v *Values) Name(id int) (string, bool) {
	if v == nil || id >= 0 {
		return "", false
	}
	return v.current.Load().names[^id], true
}

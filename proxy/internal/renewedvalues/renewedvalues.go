// Package renewedvalues holds the values of credentials that change while the proxy runs. Responses, requests and logs
// are searched for them as for those in config.json.
//
// Contract: after Add returns, every new search finds the value, and every open stream finds it in later reads. A value
// is forgotten only when its time is over. The searches are immutable and replaced as a whole. So no reader waits for
// another, and renewing a token ends no exchange.
package renewedvalues

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/timing"
	"github.com/codeforge-mcp/codeforge/proxy/internal/multisearch"
)

const (
	// MaxValue is the length of the longest value in bytes. The number of bytes that streams hold back depends on
	// MaxValue, not on the values.
	MaxValue = 8192
	// minValue is the length of the shortest value in bytes. Shorter values occur in responses by chance.
	minValue = 8
	// maxValues is the number of values that one credential may have at once, including its inner values. maxValueBytes
	// bounds their total length; each byte takes about 30 bytes in the patterns.
	maxValues, maxValueBytes = 256, 512 << 10
	// sweepInterval is the interval for removing expired values.
	sweepInterval = 10 * time.Minute
	// workTime is the time that a build works before it rests.
	workTime = 100 * time.Microsecond
)

// ErrFull is the error for a credential that has as many values as allowed. No value is forgotten early.
var ErrFull = errors.New("too many values of this credential are in use")

// Values are the values in force. Make them with New. A nil *Values has no values.
type Values struct {
	now     func() time.Time
	current atomic.Pointer[searchLayer]

	mu      sync.Mutex
	live    map[valueKey]liveValue
	names   []string // by id; it only grows
	ids     map[string]int
	version int

	building sync.Mutex
	built    int // the version of current
}

// valueKey identifies a value and its credential.
type valueKey struct {
	name, value string
	inner       bool
}

// liveValue is the end of a value's time, and its patterns, which take most of the time of a build.
type liveValue struct {
	until      time.Time
	all, lower []multisearch.Pattern
}

func (k valueKey) replacement() string {
	if k.inner {
		return secret.Mask
	}
	return k.name
}

// searchLayer is one immutable state of the search.
type searchLayer struct {
	set, lower *multisearch.Set
	names      []string
}

// New makes an empty Values. now is the clock; nil means time.Now.
func New(now func() time.Time) *Values {
	if now == nil {
		now = time.Now
	}
	v := &Values{now: now, live: map[valueKey]liveValue{}, ids: map[string]int{}}
	v.current.Store(&searchLayer{})
	return v
}

// CheckValue returns why a text cannot be a value, without quoting the text. Nil means that it can.
func CheckValue(value string) error {
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

// Value is a value for Add.
type Value struct {
	// Name is the token name. It replaces Text.
	Name, Text string
	// Inner means that Text belongs to the credential but is not the credential, such as a refresh token. A mask replaces
	// it: if code sent back a token name, swap would replace the name by the credential.
	Inner bool
	// Until is the time at which Text is forgotten.
	Until time.Time
}

func (n Value) toKey() valueKey { return valueKey{n.Name, n.Text, n.Inner} }

// AddValues makes values known. A known value gets the new time. After an error, use no value. After
// ErrFull, the values for which there was room are known, because their server has issued them.
func (v *Values) AddValues(values ...Value) (err error) {
	// Check every value before the first change.
	for _, n := range values {
		if err := CheckValue(n.Text); err != nil {
			return err
		}
	}
	v.mu.Lock()
	v.dropExpired()
	for _, n := range values {
		if _, known := v.live[n.toKey()]; !known {
			if number, bytes := v.countTaken(n.Name); number >= maxValues || bytes+len(n.Text) > maxValueBytes {
				err = ErrFull
				continue
			}
		}
		v.setValue(n)
	}
	want := v.version
	// The build waits for a lock of its own, so that readers of mu do not wait for it.
	v.mu.Unlock()
	v.buildLayer(want)
	return err
}

// setValue adds one value. The caller holds mu.
func (v *Values) setValue(n Value) {
	k := n.toKey()
	if _, ok := v.ids[k.replacement()]; !ok {
		v.ids[k.replacement()] = len(v.names)
		v.names = append(v.names, k.replacement())
	}
	known, ok := v.live[k]
	if !ok {
		v.version++
		// The complement keeps these ids apart from those of package secretvalues, which are not negative.
		id := ^v.ids[k.replacement()]
		known.all, known.lower = multisearch.ListForms(k.value, id), multisearch.ListLowerForms(k.value, id)
	}
	// Only the time changes for a known value: its patterns stay compiled.
	known.until = n.Until
	v.live[k] = known
}

// IsCrowded reports whether a credential has a quarter of its allowed values or bytes.
func (v *Values) IsCrowded(name string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	number, bytes := v.countTaken(name)
	return number >= maxValues/4 || bytes >= maxValueBytes/4
}

// countTaken returns the number of values of a credential, and their total length in bytes. The caller holds mu.
func (v *Values) countTaken(name string) (number, bytes int) {
	for k := range v.live {
		if k.name == name {
			number++
			bytes += len(k.value)
		}
	}
	return number, bytes
}

// dropExpired removes expired values. The caller holds mu.
func (v *Values) dropExpired() {
	now := v.now()
	for k, known := range v.live {
		if now.After(known.until) {
			delete(v.live, k)
			v.version++
		}
	}
}

// buildLayer puts the values in force, unless a later build has done so. Callers that wait share one build.
func (v *Values) buildLayer(want int) {
	v.building.Lock()
	defer v.building.Unlock()
	// Another caller has built this version, or a later one, while this one waited.
	if v.built >= want {
		return
	}
	v.mu.Lock()
	at := v.version
	l := &searchLayer{names: v.names[:len(v.names):len(v.names)]}
	var all, lower []multisearch.Pattern
	for _, known := range v.live {
		all = append(all, known.all...)
		lower = append(lower, known.lower...)
	}
	// Compiling takes long, so it runs without mu. Readers use the former layer meanwhile.
	v.mu.Unlock()
	rest := newYielder()
	l.set, l.lower = multisearch.NewAside(all, rest), multisearch.NewAside(lower, rest)
	v.current.Store(l)
	v.built = at
}

// newYielder returns a function that rests after each stretch of work, for the same time. So the proxy serves requests
// beside a build even if all processors are busy. Callers of Add can wait: they have waited for a server.
func newYielder() func() {
	began := time.Now()
	return func() {
		if time.Since(began) > workTime {
			time.Sleep(workTime)
			began = time.Now()
		}
	}
}

// RunSweeps removes expired values at an interval, until ctx ends.
func (v *Values) RunSweeps(ctx context.Context) {
	for range timing.EachTick(ctx, sweepInterval) {
		v.Sweep()
	}
}

// Sweep removes expired values.
func (v *Values) Sweep() {
	v.mu.Lock()
	v.dropExpired()
	want := v.version
	v.mu.Unlock()
	v.buildLayer(want)
}

// Len returns the number of known values.
func (v *Values) Len() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.live)
}

// LayerOver returns a set that finds the matches of s, and the values in force in all their forms. Name returns the
// replacement for the ids of the values.
func (v *Values) LayerOver(s *multisearch.Set) *multisearch.Set {
	//defence:minted-layer permits
	if v == nil {
		return s
	}
	return s.WithLayer(MaxValue, func() *multisearch.Set { return v.current.Load().set })
}

// LayerOverLower is LayerOver for case-insensitive text.
func (v *Values) LayerOverLower(s *multisearch.Set) *multisearch.Set {
	//defence:minted-layer permits
	if v == nil {
		return s
	}
	return s.WithLayer(MaxValue, func() *multisearch.Set { return v.current.Load().lower })
}

// ReplacementFor returns the replacement for a value, or false if the id does not belong to LayerOver.
func (v *Values) ReplacementFor(id int) (string, bool) {
	if v == nil || id >= 0 {
		return "", false
	}
	// names only grows, so an id of an older layer is valid in a newer one.
	return v.current.Load().names[^id], true
}

package broker

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/tenant"
)

const (
	// Bounds of one session's stash, of all stashes of one tenant, and of all stashes.
	maxKeys    = 256
	maxStash   = 16 << 20
	maxStashes = 64 << 20
	maxKey     = 256
	// stashTime is how long a value is kept by default, maxStashTime how long at most.
	stashTime    = time.Hour
	maxStashTime = 24 * time.Hour
)

// stashes keep values of runs for later runs of the same MCP session, in memory only. The zero value is ready to use.
type stashes struct {
	mu  sync.Mutex
	all map[string]map[string]stashed // by session and key
	now func() time.Time              // nil: time.Now
}

type stashed struct {
	value json.RawMessage
	until time.Time
}

// stashRequest is the body of a request for the stash.
type stashRequest struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
	TTL   int64           `json:"ttl_ms"`
}

// do carries out one operation: get, set, delete or keys.
func (s *stashes) do(session, op string, r stashRequest) (any, *failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	mine := s.all[session]
	switch {
	case op == "keys":
		return map[string][]string{"keys": append([]string{}, slices.Sorted(maps.Keys(mine))...)}, nil
	case r.Key == "" || len(r.Key) > maxKey:
		return nil, &failure{code: badArguments, message: fmt.Sprintf("a key is a string of 1 to %d bytes", maxKey)}
	case op == "get":
		if v, ok := mine[r.Key]; ok {
			return map[string]json.RawMessage{"value": v.value}, nil
		}
	case op == "delete":
		s.remove(session, r.Key)
	case op == "set":
		return struct{}{}, s.set(session, r)
	default:
		return nil, &failure{code: badRequest, message: fmt.Sprintf("the stash cannot %.20q", op),
			hint: "It has get, set, delete and keys."}
	}
	return struct{}{}, nil
}

// set stores a value within the bounds. The caller holds s.mu.
func (s *stashes) set(session string, r stashRequest) *failure {
	ttl := stashTime
	if r.TTL > 0 {
		// The inner min comes first, because a large TTL times time.Millisecond would overflow.
		ttl = min(time.Duration(min(r.TTL, maxStashTime.Milliseconds()))*time.Millisecond, maxStashTime)
	}
	if len(r.Value) == 0 {
		return &failure{code: badArguments, message: "there is no value", hint: "A value is anything that JSON can hold."}
	}
	mine := s.all[session]
	_, has := mine[r.Key]
	full := func(what string) *failure {
		return &failure{code: stashFull, message: "the stash is full: " + what, hint: "Delete keys that you no longer need."}
	}
	own, total := 0, 0
	for name, values := range s.all {
		for key, v := range values {
			// The value that this one replaces does not count.
			if name == session && key == r.Key {
				continue
			}
			total += weight(key, v.value)
			// All sessions of a tenant share one bound: a client could otherwise open many sessions and fill the memory.
			if name == session || tenant.Of(name) != "" && tenant.Of(name) == tenant.Of(session) {
				own += weight(key, v.value)
			}
		}
	}
	added := weight(r.Key, r.Value)
	switch {
	case !has && len(mine) >= maxKeys:
		return full(fmt.Sprintf("it has %d keys", maxKeys))
	case own+added > maxStash:
		return full(fmt.Sprintf("it would hold more than %d MiB", maxStash>>20))
	case total+added > maxStashes:
		return full("other sessions use all of its memory")
	}
	if s.all == nil {
		s.all = map[string]map[string]stashed{}
	}
	if mine == nil {
		mine = map[string]stashed{}
		s.all[session] = mine
	}
	// A copy, because the value shares its array with the whole request body.
	mine[r.Key] = stashed{slices.Clone(r.Value), s.time().Add(ttl)}
	return nil
}

// weight returns the memory that a value takes, in bytes, with its place in the maps.
func weight(key string, value json.RawMessage) int { return len(key) + len(value) + 256 }

// expire removes expired values. The caller holds s.mu.
func (s *stashes) expire() {
	now := s.time()
	for session, values := range s.all {
		for key, v := range values {
			if now.After(v.until) {
				s.remove(session, key)
			}
		}
	}
}

// remove removes a key, and the stash with its last key. The caller holds s.mu.
func (s *stashes) remove(session, key string) {
	delete(s.all[session], key)
	if len(s.all[session]) == 0 {
		delete(s.all, session)
	}
}

// sweep frees the memory of expired values.
func (s *stashes) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
}

func (s *stashes) time() time.Time {
	if s.now != nil {
		return s.now()
	}
	return time.Now()
}

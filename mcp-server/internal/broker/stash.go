package broker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
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

// stashStore keep values of runs for later runs of the same MCP session, in memory only. The zero value is ready to
// use.
type stashStore struct {
	mu    sync.Mutex
	all   map[string]map[string]stashEntry // by session and key
	held  map[string]int                   // the weight of the entries, by owner, because each run waits for mu
	total int                              // the weight of all entries
	now   func() time.Time                 // nil: time.Now
}

type stashEntry struct {
	value json.RawMessage
	until time.Time
}

type stashRequest struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
	TTL   int64           `json:"ttl_ms"`
}

// doOperation carries out one operation: get, set, delete or keys. The result is the value that get finds, or else the
// answer.
func (s *stashStore) doOperation(session, op string, r stashRequest) (any, *callFailure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeExpired(session)
	mine := s.all[session]
	switch {
	case op == "keys":
		// encoding/json would write a nil slice as null, and code expects a list.
		return map[string][]string{"keys": append([]string{}, slices.Sorted(maps.Keys(mine))...)}, nil
	case r.Key == "" || len(r.Key) > maxKey:
		return nil, &callFailure{code: badArguments, message: fmt.Sprintf("a key is a string of 1 to %d bytes", maxKey)}
	case op == "get":
		if v, ok := mine[r.Key]; ok {
			return v.value, nil
		}
	case op == "delete":
		s.removeKey(session, r.Key)
	case op == "set":
		return struct{}{}, s.setValue(session, r)
	default:
		return nil, &callFailure{code: badRequest, message: fmt.Sprintf("the stash cannot %.20q", op),
			hint: "It has get, set, delete and keys."}
	}
	return struct{}{}, nil
}

// setValue stores a value within the bounds. The caller holds s.mu.
func (s *stashStore) setValue(session string, r stashRequest) *callFailure {
	ttl := stashTime
	if r.TTL > 0 {
		// The inner min comes first, because a large TTL times time.Millisecond would overflow.
		ttl = min(time.Duration(min(r.TTL, maxStashTime.Milliseconds()))*time.Millisecond, maxStashTime)
	}
	if len(r.Value) == 0 {
		return &callFailure{code: badArguments, message: "there is no value", hint: "A value is anything that JSON can hold."}
	}
	mine := s.all[session]
	old, has := mine[r.Key]
	full := func(what string) *callFailure {
		return &callFailure{code: stashFull, message: "the stash is full: " + what,
			hint: "Delete keys that you no longer need."}
	}
	added := entryWeight(r.Key, r.Value)
	own, total := s.held[stashOwner(session)]+added, s.total+added
	// The replaced value does not count.
	if has {
		own, total = own-entryWeight(r.Key, old.value), total-entryWeight(r.Key, old.value)
	}
	switch {
	case !has && len(mine) >= maxKeys:
		return full(fmt.Sprintf("it has %d keys", maxKeys))
	case own > maxStash:
		return full(fmt.Sprintf("it would hold more than %d MiB", maxStash>>20))
	case total > maxStashes:
		return full("other sessions use all of its memory")
	}
	s.removeKey(session, r.Key)
	if s.all == nil {
		s.all, s.held = map[string]map[string]stashEntry{}, map[string]int{}
	}
	if s.all[session] == nil {
		s.all[session] = map[string]stashEntry{}
	}
	s.all[session][r.Key] = stashEntry{r.Value, s.currentTime().Add(ttl)}
	s.held[stashOwner(session)] += added
	s.total += added
	return nil
}

// stashOwner returns the owner of a session's stash. All sessions of a tenant share one bound: a client could otherwise
// open many sessions and fill the memory.
func stashOwner(session string) string {
	if name := tenant.TenantOf(session); name != "" {
		return "@" + name // no other session begins like that
	}
	return session
}

// entryWeight returns the memory that a value takes, in bytes, with its place in the maps.
func entryWeight(key string, value json.RawMessage) int { return len(key) + len(value) + 256 }

// removeExpired removes a session's expired values. The caller holds s.mu.
func (s *stashStore) removeExpired(session string) {
	now := s.currentTime()
	for key, v := range s.all[session] {
		if now.After(v.until) {
			s.removeKey(session, key)
		}
	}
}

// removeKey removes a key, and the stash with its last key. The caller holds s.mu.
func (s *stashStore) removeKey(session, key string) {
	v, has := s.all[session][key]
	if !has {
		return
	}
	owner, weight := stashOwner(session), entryWeight(key, v.value)
	s.total -= weight
	if s.held[owner] -= weight; s.held[owner] == 0 {
		delete(s.held, owner)
	}
	delete(s.all[session], key)
	if len(s.all[session]) == 0 {
		delete(s.all, session)
	}
}

// sweepExpired frees the memory of expired values.
func (s *stashStore) sweepExpired() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for session := range s.all {
		s.removeExpired(session)
	}
}

func (s *stashStore) currentTime() time.Time {
	if s.now != nil {
		return s.now()
	}
	return time.Now()
}

// doStash carries out an operation on the stash of the run's session.
func (c *callRequest) doStash(body []byte) ([]byte, *callFailure) {
	session, ok := c.broker.cfg.Session(c.run)
	if !ok {
		return nil, &callFailure{code: cancelled, message: "the run has ended"}
	}
	var r stashRequest
	if len(bytes.TrimSpace(body)) > 0 && json.Unmarshal(body, &r) != nil {
		return nil, &callFailure{code: badArguments, message: "the body is {key, value, ttl_ms}"}
	}
	result, f := c.broker.stash.doOperation(session, c.tool, r)
	if f != nil {
		return nil, f
	}
	if value, ok := result.(json.RawMessage); ok {
		return c.joinAnswer(`{"value":`, [][]byte{value}, "}")
	}
	line, err := bridgewire.EncodeLine(result)
	if err != nil {
		return nil, &callFailure{code: badRequest, message: err.Error()}
	}
	return line, nil
}

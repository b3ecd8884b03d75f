package transport

import (
	"context"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/membudget"
)

// sessionTable stores the sessions of the older protocol versions: their last use, their open requests, and how to
// cancel these requests.
type sessionTable struct {
	mu       sync.Mutex
	sessions map[string]*sessionEntry
	renamed  map[string]string // by the old ID that a client still uses: the ID of the resumed session
	deleted  map[string]bool   // sessions that their clients deleted, by the ID that the client knows; at most maxDeleted
}

// maxDeleted bounds the stored IDs of deleted sessions. Beyond the bound, all are dropped. A client that continues a
// session it has deleted then gets an empty one.
const maxDeleted = 10_000

type sessionEntry struct {
	name string // the old ID that its client still uses, or empty
	user string // the user of the token that started it, or empty
	used time.Time
	open map[*openRequest]struct{}
}

type openRequest struct {
	cancel context.CancelFunc
	ctx    context.Context    //nolint:containedctx // of the request
	memory *membudget.Account // for its answer
}

func newBook() *sessionTable {
	return &sessionTable{sessions: map[string]*sessionEntry{}, renamed: map[string]string{}, deleted: map[string]bool{}}
}

// resolveName returns the ID of the session that a client knows by name, or else the name. known reports whether the
// session exists, or its client has deleted it.
func (b *sessionTable) resolveName(name string) (id string, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if live, ok := b.renamed[name]; ok {
		return live, true
	}
	// A deleted session counts as known, so that it is not resumed: the SDK answers 404.
	return name, b.sessions[name] != nil || b.deleted[name]
}

// renameSession records the ID by which the client of a resumed session knows it.
func (b *sessionTable) renameSession(id, name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.renamed[name] = id
	if s := b.sessions[id]; s != nil {
		s.name = name
	}
}

// markDeleted records that a client has deleted a session.
func (b *sessionTable) markDeleted(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.deleted) >= maxDeleted {
		clear(b.deleted)
	}
	b.deleted[name] = true
}

// deleteLocked removes a session. The caller holds b.mu.
func (b *sessionTable) deleteLocked(id string) {
	if s := b.sessions[id]; s != nil {
		delete(b.renamed, s.name)
	}
	delete(b.sessions, id)
}

// isOthersSession reports whether a session, by the ID that its client uses, belongs to another user.
func (b *sessionTable) isOthersSession(name, user string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if live, ok := b.renamed[name]; ok {
		name = live
	}
	s := b.sessions[name]
	return s != nil && s.user != user
}

func (b *sessionTable) addSession(id, user string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sessions[id] == nil {
		b.sessions[id] = &sessionEntry{user: user, used: time.Now(), open: map[*openRequest]struct{}{}}
	}
}

// beginRequest adds a request of a session, and returns a function that removes the request. It ignores a request of an
// unknown session.
func (b *sessionTable) beginRequest(id string, c *openRequest) func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sessions[id]
	if s == nil {
		return func() {}
	}
	s.used = time.Now()
	s.open[c] = struct{}{}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(s.open, c)
		// A long call counts as use until its end, so that its session is not idle right afterwards.
		s.used = time.Now()
	}
}

func (b *sessionTable) cancelRequests(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.sessions[id]; s != nil {
		for c := range s.open {
			c.cancel()
		}
	}
}

func (b *sessionTable) deleteSession(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deleteLocked(id)
}

func (b *sessionTable) countSessions() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.sessions)
}

// listIdle lists the sessions without an open request that were last used before the given time. If most is 1, it lists
// only the session that has been idle longest.
func (b *sessionTable) listIdle(before time.Time, most int) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ids []string
	for id, s := range b.sessions {
		if len(s.open) > 0 || s.used.After(before) {
			continue
		}
		if most == 1 && len(ids) == 1 {
			if s.used.Before(b.sessions[ids[0]].used) {
				ids[0] = id
			}
			continue
		}
		ids = append(ids, id)
	}
	return ids
}

// keepOnly removes all sessions that are not in the set and have no open request.
func (b *sessionTable) keepOnly(live map[string]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, s := range b.sessions {
		if !live[id] && len(s.open) == 0 {
			b.deleteLocked(id)
		}
	}
}

// Package alarm stores the proxy's alarms, and the sessions that they have frozen. Packages execution and tools refuse
// calls of a frozen session.
//
// Threat: a client whose model obeys a hostile text, tries to steal, and keeps trying. Contract: a frozen session stays
// frozen across restarts, until the operator unfreezes it. A client without sessions is identified by its name and
// machine. If it changes its name, it counts as another client. So this stops a misled model, but not a hostile
// program.
package alarm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/tenant"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// most bounds the stored alarms, without the alarms of frozen sessions. Each frozen session has one alarm. If a tenant
// or the operator has mostFrozen frozen sessions, all sessions of that client count as frozen until the operator
// unfreezes one. No frozen session is dropped, and only runs in progress can add further ones.
const (
	most       = 100
	mostFrozen = 1000
)

// File is the book's file. The folder also has a file for each server's accepted tools; no server has this name.
const File = ".alarms.json"

// Set holds alarms. A nil Set is empty, and ignores new alarms.
type Set struct {
	path  string
	added func(operatorapi.Alarm)
	log   *slog.Logger

	mu       sync.Mutex
	list     []operatorapi.Alarm // oldest first
	unstored bool                // the list is not in the file, for example because the disk is full

	shared  *database.Documents // the list in Postgres, or nil
	pending []listChange        // changes that are not in Postgres yet
	wake    database.WakeSignal // makes Follow write the pending changes
	known   bool                // Postgres has been read
}

// listChange makes one change to a list.
type listChange func(list []operatorapi.Alarm) []operatorapi.Alarm

// Document is the name of the list in Postgres.
const Document = "book.json"

// Open reads the book of a folder. Without a folder, alarms are lost when the process ends. added, if not nil, is
// called with each new alarm.
//
// With Postgres, all replicas have one list. Until it is read, all sessions count as frozen: the file may be older than
// an alarm at another replica. Postgres gets the sessions that only the file has as frozen: an earlier process ended
// before Postgres had them, or had no Postgres.
func Open(dir string, db *database.DB, added func(operatorapi.Alarm), log *slog.Logger) (*Set, error) {
	b := &Set{added: added, log: log, wake: make(database.WakeSignal, 1)}
	if db != nil {
		b.shared = &database.Documents{DB: db, Folder: database.Alarms}
		ctx, cancel := context.WithTimeout(context.Background(), syncTime)
		defer cancel()
		defer b.syncWithPostgres(ctx)
	}
	if dir == "" {
		return b, nil
	}
	b.path = filepath.Join(dir, File)
	text, err := os.ReadFile(b.path)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &b.list)
	}
	// An unreadable file must not free every session, so the start fails.
	if err != nil {
		return nil, fmt.Errorf("reading the frozen sessions: %w; remove %s to unfreeze all", err, b.path)
	}
	if db != nil {
		for _, a := range b.list {
			if a.Frozen {
				b.pending = append(b.pending, func(list []operatorapi.Alarm) []operatorapi.Alarm { return addAlarm(list, a) })
			}
		}
	}
	return b, nil
}

// syncTime bounds one exchange with Postgres. retryTime is the pause after a failed one.
const (
	syncTime  = 3 * time.Second
	retryTime = time.Second
)

// Follow keeps the book and Postgres identical until ctx ends. It calls changed if a sync changes the book.
func (b *Set) Follow(ctx context.Context, changed func()) {
	if b == nil || b.shared == nil {
		return
	}
	b.shared.DB.Listen(ctx, b.wake, func() {
		if b.syncWithPostgres(ctx) {
			//defence:freeze-elsewhere
			changed()
		}
	})
}

// syncWithPostgres writes the pending changes to Postgres, and reads its list. It reports whether this changes the
// book.
func (b *Set) syncWithPostgres(ctx context.Context) (changed bool) {
	ctx, cancel := context.WithTimeout(ctx, syncTime)
	defer cancel()
	b.mu.Lock()
	sent := slices.Clone(b.pending)
	b.mu.Unlock()
	var list []operatorapi.Alarm
	var err error
	if len(sent) > 0 {
		err = b.shared.Update(ctx, Document, func(old []byte) ([]byte, error) {
			list = nil
			if len(old) > 0 {
				if err := json.Unmarshal(old, &list); err != nil {
					return nil, err
				}
			}
			for _, change := range sent {
				list = change(list)
			}
			return json.Marshal(list)
		})
	} else {
		var text []byte
		if text, _, err = b.shared.Read(ctx, Document); err == nil {
			err = json.Unmarshal(text, &list)
		}
		if errors.Is(err, database.ErrNotFound) {
			err = nil
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		if len(sent) > 0 {
			time.AfterFunc(retryTime, b.wake.SendSignal)
		}
		return false // Listen triggers the next attempt
	}
	b.pending = b.pending[len(sent):]
	// Changes that came meanwhile are not in the list from Postgres yet.
	for _, change := range b.pending {
		list = change(list)
	}
	b.known = true
	if reflect.DeepEqual(b.list, list) {
		return false
	}
	b.list = list
	b.writeFile()
	return true
}

// applyChange makes a change here at once, and later in Postgres. The caller holds the lock.
func (b *Set) applyChange(c listChange) {
	b.list = c(b.list)
	b.writeFile()
	if b.shared != nil {
		b.pending = append(b.pending, c)
		b.wake.SendSignal()
	}
}

// SessionDigest distinguishes sessions without their IDs, which clients use like passwords.
func SessionDigest(session string) string {
	sum := sha256.Sum256([]byte(session))
	return hex.EncodeToString(sum[:6])
}

// Add records an alarm once, and freezes the session of its run, if it has one.
func (b *Set) Add(a proxyapi.Alarm, session *string, client string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := operatorapi.Alarm{Alarm: a, Client: client}
	if session != nil {
		n.Session, n.Frozen = SessionDigest(*session), true
	}
	i := findAlarm(b.list, a)
	if i >= 0 && !lacksSession(b.list[i], n) {
		return
	}
	b.applyChange(func(list []operatorapi.Alarm) []operatorapi.Alarm { return addAlarm(list, n) })
	if b.added != nil && i < 0 {
		n.Number = b.list[len(b.list)-1].Number
		b.added(n)
	}
}

// findAlarm returns the index of an alarm in a list, or -1. The same alarm comes in an event and in a receipt, and
// perhaps from another replica.
func findAlarm(list []operatorapi.Alarm, a proxyapi.Alarm) int {
	return slices.IndexFunc(list, func(o operatorapi.Alarm) bool { return o.Run == a.Run && o.At.Equal(a.At) })
}

// lacksSession reports whether a known alarm lacks the session that n has. All replicas that share a proxy get its
// alarms, but only the replica of the run knows the session.
func lacksSession(known, n operatorapi.Alarm) bool { return known.Session == "" && n.Session != "" }

// addAlarm returns a list with a new alarm, once. It completes a known alarm that lacks the session.
func addAlarm(list []operatorapi.Alarm, n operatorapi.Alarm) []operatorapi.Alarm {
	if i := findAlarm(list, n.Alarm); i >= 0 {
		if lacksSession(list[i], n) {
			n.Number = list[i].Number
			list, _ = unfreezeIn(list, n.Session)
			list[i] = n
		}
		return list
	}
	// Only the newest alarm of a session freezes it, so that each frozen session has one.
	if n.Frozen {
		list, _ = unfreezeIn(list, n.Session)
	}
	n.Number = 1
	for _, a := range list {
		n.Number = max(n.Number, a.Number+1)
	}
	list = append(slices.Clone(list), n)
	for i := 0; len(list) > most && i < len(list); {
		if list[i].Frozen {
			i++
			continue
		}
		list = slices.Delete(list, i, i+1)
	}
	return list
}

// writeFile writes the book. The caller holds the lock.
func (b *Set) writeFile() {
	if b.path == "" {
		return
	}
	text, err := json.Marshal(b.list)
	if err == nil {
		err = atomicfile.Write(b.path, text, 0o600)
	}
	if err != nil && !b.unstored {
		b.log.Error("a restart forgets which sessions are frozen", logline.Tag("alarm"), slog.String("error", err.Error()))
	}
	b.unstored = err != nil
}

// FreezingAlarm returns the alarm that froze a session. If the list is in a Postgres that has not answered yet, it
// returns an alarm without a number for every session.
func (b *Set) FreezingAlarm(session string) (operatorapi.Alarm, bool) {
	//defence:freeze permits
	if b == nil {
		return operatorapi.Alarm{}, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shared != nil && !b.known {
		return operatorapi.Alarm{Session: SessionDigest(session), Frozen: true}, true
	}
	if len(b.list) == 0 {
		return operatorapi.Alarm{}, false
	}
	// Tried again here: the disk may have space again.
	if b.unstored {
		b.writeFile()
	}
	name, of := SessionDigest(session), tenant.TenantOf(session)
	full := b.countFrozen(of) >= mostFrozen
	i := slices.IndexFunc(b.list, func(a operatorapi.Alarm) bool {
		return a.Frozen && (a.Session == name || full && a.Tenant == of)
	})
	if i < 0 {
		return operatorapi.Alarm{}, false
	}
	return b.list[i], true
}

// List returns the alarms, latest first.
func (b *Set) List() []operatorapi.Alarm {
	if b == nil {
		return []operatorapi.Alarm{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	out := append([]operatorapi.Alarm{}, b.list...)
	slices.Reverse(out)
	return out
}

// Unfreeze unfreezes a session by its name. The alarms stay in the list.
func (b *Set) Unfreeze(name string) error {
	if b == nil {
		return operatorapi.ErrNotFrozen
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, found := unfreezeIn(b.list, name); !found {
		return operatorapi.ErrNotFrozen
	}
	b.applyChange(func(list []operatorapi.Alarm) []operatorapi.Alarm {
		list, _ = unfreezeIn(list, name)
		return list
	})
	return nil
}

// unfreezeIn returns a list in which no alarm freezes the session, and whether one did.
func unfreezeIn(list []operatorapi.Alarm, name string) (_ []operatorapi.Alarm, found bool) {
	list = slices.Clone(list)
	for i := range list {
		if a := &list[i]; a.Frozen && a.Session == name {
			a.Frozen, found = false, true
		}
	}
	return list, found
}

// countFrozen counts the frozen sessions of a tenant. "" means the operator. The caller holds the lock.
func (b *Set) countFrozen(of string) (n int) {
	for _, a := range b.list {
		if a.Frozen && a.Tenant == of {
			n++
		}
	}
	return n
}

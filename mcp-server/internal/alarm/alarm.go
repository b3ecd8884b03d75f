// Package alarm keeps the proxy's alarms, and which sessions they have frozen.
//
// Threat: a client whose model was told by a hostile text to steal, and which goes on trying. What froze its session
// holds across restarts, until the operator ends it. A client without sessions is frozen by its name and machine: who
// calls itself otherwise is another client, so this stops what a model does, not a program that is hostile itself.
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
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// most is how many alarms are kept, those of frozen sessions aside. Each of these has one. If a tenant, or the
// operator, has mostFrozen of them, all sessions of that client count as frozen until the operator frees one: none
// gives way, and what is still running adds its own at most.
const (
	most       = 100
	mostFrozen = 1000
)

// File is the book's file. No server has that name: the accepted tools of each server are in the same folder.
const File = ".alarms.json"

// Book holds alarms. The nil Book is empty, and takes none.
type Book struct {
	path  string
	added func(operatorapi.Alarm)
	log   *slog.Logger

	mu       sync.Mutex
	list     []operatorapi.Alarm // the oldest first
	unstored bool                // the list is not in the file, because the disk is full for instance

	shared  *database.Documents // that of Postgres, or nil
	pending []change            // changes that Postgres does not have yet
	wake    chan struct{}
	known   bool // Postgres, or the file of an earlier process, has been read
}

// change makes one change to a list.
type change func(list []operatorapi.Alarm) []operatorapi.Alarm

// Document is the name of the list in Postgres.
const Document = "book.json"

// Open reads the book of a folder. Without a folder, alarms are lost with the process. added, if not nil, is called
// with each new alarm.
//
// With Postgres, all replicas have one list, and the file is a copy for the time when Postgres does not answer. Until
// either is read, all sessions count as frozen. Postgres gets the sessions that only the file has as frozen: an earlier
// process ended before Postgres had them, or had no Postgres.
func Open(dir string, db *database.DB, added func(operatorapi.Alarm), log *slog.Logger) (*Book, error) {
	b := &Book{added: added, log: log, wake: make(chan struct{}, 1)}
	if db != nil {
		b.shared = &database.Documents{DB: db, Folder: database.Alarms}
		ctx, cancel := context.WithTimeout(context.Background(), syncTime)
		defer cancel()
		defer b.sync(ctx)
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
	if err != nil {
		return nil, fmt.Errorf("reading which sessions are frozen: %w; removing %s frees all", err, b.path)
	}
	b.known = true
	if db != nil {
		for _, a := range b.list {
			if a.Frozen {
				b.pending = append(b.pending, func(list []operatorapi.Alarm) []operatorapi.Alarm { return addAlarm(list, a) })
			}
		}
	}
	return b, nil
}

// syncTime bounds one exchange with Postgres, retryTime is the pause after one that failed.
const (
	syncTime  = 3 * time.Second
	retryTime = time.Second
)

// Follow keeps the book and Postgres alike until ctx ends.
func (b *Book) Follow(ctx context.Context) {
	if b == nil || b.shared == nil {
		return
	}
	var listener sync.WaitGroup
	defer listener.Wait()
	listener.Go(func() { b.shared.DB.Listen(ctx, b.notify) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.wake:
			b.sync(ctx)
		}
	}
}

// notify wakes Follow.
func (b *Book) notify() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// sync brings the pending changes into Postgres, and the list of Postgres here.
func (b *Book) sync(ctx context.Context) {
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
			time.AfterFunc(retryTime, b.notify)
		}
		return // Listen tries again
	}
	b.pending = b.pending[len(sent):]
	for _, change := range b.pending {
		list = change(list)
	}
	b.known = true
	if !reflect.DeepEqual(b.list, list) {
		b.list = list
		b.store()
	}
}

// apply makes a change here at once, and later in Postgres. The caller holds the lock.
func (b *Book) apply(c change) {
	b.list = c(b.list)
	b.store()
	if b.shared != nil {
		b.pending = append(b.pending, c)
		b.notify()
	}
}

// Name tells sessions apart without their ids, which clients use like passwords.
func Name(session string) string {
	sum := sha256.Sum256([]byte(session))
	return hex.EncodeToString(sum[:6])
}

// Add records an alarm, once, and freezes the session of its run, if it has one.
func (b *Book) Add(a controlapi.Alarm, session *string, client string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := operatorapi.Alarm{Alarm: a, Client: client}
	if session != nil {
		n.Session, n.Frozen = Name(*session), true
	}
	if has(b.list, a) {
		return
	}
	b.apply(func(list []operatorapi.Alarm) []operatorapi.Alarm { return addAlarm(list, n) })
	if b.added != nil {
		n.Number = b.list[len(b.list)-1].Number
		b.added(n)
	}
}

// has reports whether a list has an alarm: it comes by an event and on a receipt, and perhaps from another replica.
func has(list []operatorapi.Alarm, a controlapi.Alarm) bool {
	return slices.ContainsFunc(list, func(o operatorapi.Alarm) bool { return o.Run == a.Run && o.At.Equal(a.At) })
}

// addAlarm returns a list with a new alarm, once.
func addAlarm(list []operatorapi.Alarm, n operatorapi.Alarm) []operatorapi.Alarm {
	if has(list, n.Alarm) {
		return list
	}
	if n.Frozen {
		list, _ = thaw(list, n.Session)
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

// store writes the book. The caller holds the lock.
func (b *Book) store() {
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

// Frozen returns the alarm that froze a session. It returns an alarm without a number for every session if the list of
// alarms is in a Postgres that has not answered yet.
func (b *Book) Frozen(session string) (operatorapi.Alarm, bool) {
	//defence:freeze permits
	if b == nil {
		return operatorapi.Alarm{}, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shared != nil && !b.known {
		return operatorapi.Alarm{Session: Name(session), Frozen: true}, true
	}
	if len(b.list) == 0 {
		return operatorapi.Alarm{}, false
	}
	if b.unstored {
		b.store()
	}
	name, of := Name(session), tenant.Of(session)
	full := b.frozen(of) >= mostFrozen
	i := slices.IndexFunc(b.list, func(a operatorapi.Alarm) bool {
		return a.Frozen && (a.Session == name || full && a.Tenant == of)
	})
	if i < 0 {
		return operatorapi.Alarm{}, false
	}
	return b.list[i], true
}

// List lists the alarms, latest first.
func (b *Book) List() []operatorapi.Alarm {
	if b == nil {
		return []operatorapi.Alarm{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	out := append([]operatorapi.Alarm{}, b.list...)
	slices.Reverse(out)
	return out
}

// Unfreeze frees a session by its name. The alarms stay.
func (b *Book) Unfreeze(name string) error {
	if b == nil {
		return operatorapi.ErrNotFrozen
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, found := thaw(b.list, name); !found {
		return operatorapi.ErrNotFrozen
	}
	b.apply(func(list []operatorapi.Alarm) []operatorapi.Alarm {
		list, _ = thaw(list, name)
		return list
	})
	return nil
}

// thaw returns a list in which the alarms of a session freeze nothing, and whether one did.
func thaw(list []operatorapi.Alarm, name string) (_ []operatorapi.Alarm, found bool) {
	list = slices.Clone(list)
	for i := range list {
		if a := &list[i]; a.Frozen && a.Session == name {
			a.Frozen, found = false, true
		}
	}
	return list, found
}

// frozen counts the frozen sessions of a tenant; empty: of the operator. The caller holds the lock.
func (b *Book) frozen(of string) (n int) {
	for _, a := range b.list {
		if a.Frozen && a.Tenant == of {
			n++
		}
	}
	return n
}

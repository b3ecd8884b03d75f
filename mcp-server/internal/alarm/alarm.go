// Package alarm keeps the proxy's alarms, and which sessions they have frozen.
//
// Threat: a client whose model was told by a hostile text to steal, and which goes on trying. What froze its session
// holds across restarts, until the operator ends it. A client without sessions is frozen by its name and machine: who
// calls itself otherwise is another client, so this stops what a model does, not a program that is hostile itself.
package alarm

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
	"github.com/codeforge-mcp/codeforge/internal/logline"
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

// file is the book's file. No server has that name: the accepted tools of each server are in the same folder.
const file = ".alarms.json"

// Book holds alarms. The nil Book is empty, and takes none.
type Book struct {
	path  string
	added func(operatorapi.Alarm)
	log   *slog.Logger

	mu       sync.Mutex
	last     int64
	list     []operatorapi.Alarm // the oldest first
	unstored bool                // the list is not in the file, because the disk is full for instance
}

// Open reads the book of a folder. Without a folder, alarms are lost with the process. added, if not nil, is called
// with each new alarm.
func Open(dir string, added func(operatorapi.Alarm), log *slog.Logger) (*Book, error) {
	b := &Book{added: added, log: log}
	if dir == "" {
		return b, nil
	}
	b.path = filepath.Join(dir, file)
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
	for _, a := range b.list {
		b.last = max(b.last, a.Number)
	}
	return b, nil
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
	if slices.ContainsFunc(b.list, func(o operatorapi.Alarm) bool { return o.Run == a.Run && o.At.Equal(a.At) }) {
		return
	}
	b.last++
	n := operatorapi.Alarm{Number: b.last, Alarm: a, Client: client}
	if session != nil {
		n.Session, n.Frozen = Name(*session), true
		b.thaw(n.Session)
	}
	b.list = append(b.list, n)
	for i := 0; len(b.list) > most && i < len(b.list); {
		if b.list[i].Frozen {
			i++
			continue
		}
		b.list = slices.Delete(b.list, i, i+1)
	}
	b.store()
	if b.added != nil {
		b.added(n)
	}
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

// Frozen returns the alarm that froze a session.
func (b *Book) Frozen(session string) (operatorapi.Alarm, bool) {
	//defence:freeze permits
	if b == nil {
		return operatorapi.Alarm{}, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
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
	if !b.thaw(name) {
		return operatorapi.ErrNotFrozen
	}
	b.store()
	return nil
}

// thaw makes the alarms of a session those of one that is not frozen. The caller holds the lock.
func (b *Book) thaw(name string) (found bool) {
	for i := range b.list {
		if a := &b.list[i]; a.Frozen && a.Session == name {
			a.Frozen, found = false, true
		}
	}
	return found
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

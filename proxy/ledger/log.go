//go:build unix

package ledger

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/logline"
)

const (
	// saltBytes is the length of a salt. It is long enough to stop a search for a record by trying salts.
	saltBytes = 16
	// tryAgain is the pause between a failed write and the next attempt.
	tryAgain = time.Second
)

// Config configures a Log.
type Config struct {
	// Dir is the ledger's folder. Open creates it.
	Dir string
	// Patience is how long Open waits for the end of another process that writes the folder.
	Patience time.Duration
	// Keep is how long records are kept. Their hashes stay. 0 means for ever.
	Keep time.Duration
	// Most bounds the folder in bytes: one half for today, the other for earlier days, of which the oldest are dropped
	// first, as by Keep. If today's half is full, every write fails, as on a full disk. 0 means no bound.
	Most int64
	// Anchor is a file or a named pipe that gets the short form of every checkpoint. It may be empty.
	Anchor string
	// Version is the program's version, for the first record.
	Version string
	Log     *slog.Logger
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
}

func (c Config) halfOfMost() int64 { return c.Most / 2 }

// maxTodayBytes returns how many bytes today's records may take. The rest of the half is for the roots of the oldest
// days, a few hundred bytes each.
func (c Config) maxTodayBytes() int64 { return c.halfOfMost() - c.halfOfMost()/16 }

// maxOrdinaryBytes returns today without the part for starts, checkpoints, and the records that count lost ones.
func (c Config) maxOrdinaryBytes() int64 { return c.maxTodayBytes() - c.halfOfMost()/16 }

// Log writes the ledger. It is safe for concurrent use. One process at a time writes a folder. A nil *Log takes records
// and keeps none.
type Log struct {
	conf   Config
	lock   *os.File
	signer note.Signer
	anchor *anchor      // nil without Config.Anchor
	lost   atomic.Int64 // records lost since the start, for the metric

	forgetting sync.WaitGroup // goroutines that drop earlier days
	forgetMu   sync.Mutex     // held by the one that is dropping

	mu       sync.Mutex
	day      *dayFile
	previous string // the day of the previous file, or empty
	tree     tree
	prev     tlog.Hash
	signed   Head // the head of the last checkpoint
	broken   error
	brokeAt  time.Time
	gap      int // records lost since the last written one
}

// AppendRecord writes a record. An error means that the record is not in the ledger. A record that counts the lost ones
// precedes the next record that can be written.
func (l *Log) AppendRecord(e Entry) error {
	if l == nil {
		return nil
	}
	entry, err := convert.ToJSON(e)
	if err != nil {
		return fmt.Errorf("writing the ledger: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	most := l.conf.maxOrdinaryBytes()
	if e.Start != nil {
		most = l.conf.maxTodayBytes()
	}
	// The gap comes first: after it, each record follows the one before without a silent loss.
	if err = l.retryWrite(); err == nil {
		err = l.appendRecord(entry, most)
	}
	if err != nil {
		l.noteLost(err)
	}
	return err
}

// appendRecord writes one record, if today's records then take at most most bytes. The caller holds mu.
func (l *Log) appendRecord(entry []byte, most int64) error {
	now := l.conf.Now()
	if err := l.beginDay(now); err != nil {
		return err
	}
	var salt [saltBytes]byte
	_, _ = rand.Read(salt[:]) // crypto/rand never fails
	text := formatRecord(l.tree.size, now, l.prev, salt[:], entry)
	if l.conf.Most > 0 && l.day.written.Load()+int64(len(text)) > most {
		return errMost
	}
	h := tlog.RecordHash(text)
	if err := l.day.writeLine(text); err != nil {
		return err
	}
	// Only after the write: after an error the tree must not have a leaf that the file lacks.
	l.tree.addLeaf(h)
	l.prev = h
	return nil
}

// errMost is the error if today's part of Config.Most is full.
var errMost = errors.New("today's records have reached the most that is kept of a day")

// retryWrite tries to write again after a failed write. The caller holds mu.
func (l *Log) retryWrite() error {
	if l.broken == nil {
		return nil
	}
	// A full disk must not cost a system call for each record.
	if l.conf.Now().Sub(l.brokeAt) < tryAgain {
		return l.broken
	}
	entry, err := json.Marshal(Entry{Gap: &Gap{Lost: l.gap}})
	if err == nil {
		err = l.appendRecord(entry, l.conf.maxTodayBytes())
	}
	if err != nil {
		return err
	}
	l.broken, l.gap = nil, 0
	l.conf.Log.Info("the ledger is written again", logline.Tag("audit"))
	return nil
}

// noteLost counts a lost record. The caller holds mu.
func (l *Log) noteLost(err error) {
	l.lost.Add(1)
	l.gap++
	// Log the first failure only, not each lost record.
	if l.broken == nil {
		l.conf.Log.Error("the ledger cannot be written", logline.Tag("audit"), slog.String("error", err.Error()))
	}
	if l.broken == nil || l.conf.Now().Sub(l.brokeAt) >= tryAgain {
		l.broken, l.brokeAt = err, l.conf.Now()
	}
}

// Verify reads the ledger from its files, also while the Log writes them, and compares it with known checkpoints.
func (l *Log) Verify(known []KnownCheckpoint) (Report, error) {
	return Verify(Dir(l.conf.Dir), "", known)
}

// LostCount returns how many records could not be written since the start.
func (l *Log) LostCount() int64 {
	if l == nil {
		return 0
	}
	return l.lost.Load()
}

// WriteCheckpoint signs the current state of the ledger and flushes it to disk. run is the run for whose end it is
// made, or empty.
func (l *Log) WriteCheckpoint(run string) (Head, error) {
	l.mu.Lock()
	head, d, upTo, err := l.checkpointLocked(run)
	l.mu.Unlock()
	// Without mu: a slow disk must not block AppendRecord.
	if err == nil {
		err = d.syncTo(upTo)
	}
	if err != nil {
		l.conf.Log.Error("a checkpoint of the ledger cannot be written", logline.Tag("audit"), slog.String("run", run),
			slog.String("error", err.Error()))
		return Head{}, fmt.Errorf("writing the ledger: %w", err)
	}
	return head, nil
}

// checkpointLocked writes a checkpoint, if there are records since the last one. The caller holds mu, and must then
// call syncTo of the returned day.
func (l *Log) checkpointLocked(run string) (Head, *dayFile, int64, error) {
	if l.broken != nil {
		return Head{}, nil, 0, l.broken
	}
	head := l.tree.currentHead()
	if head == l.signed {
		return head, l.day, l.day.written.Load(), nil
	}
	text, err := l.signHead(run, head)
	if err == nil {
		err = l.day.writeLine(text)
	}
	if err != nil {
		return Head{}, nil, 0, err
	}
	l.signed = head
	if l.anchor != nil {
		l.anchor.addLine(fmt.Sprintf("%s %s %s", l.conf.Now().UTC().Format(time.RFC3339), run, head))
	}
	return head, l.day, l.day.written.Load(), nil
}

// signHead returns the line of a checkpoint. The caller holds mu.
func (l *Log) signHead(run string, head Head) ([]byte, error) {
	signed, err := note.Sign(&note.Note{Text: head.noteText(l.signer.Name())}, l.signer)
	if err != nil {
		return nil, err
	}
	return json.Marshal(checkpointLine{&Checkpoint{
		At: l.conf.Now().UTC(), Run: run, Note: string(signed), Edge: l.tree.completeRoots(), Last: l.prev,
	}})
}

// Close signs the records since the last checkpoint and lets another process write the folder.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.gap > 0 { // only this process knows how many records were lost
		l.brokeAt = time.Time{}
		_ = l.retryWrite() // the checkpoint below reports the same error
	}
	l.mu.Unlock()
	// The lock must not be released while this process still drops days.
	l.forgetting.Wait()
	_, err := l.WriteCheckpoint("")
	l.mu.Lock()
	defer l.mu.Unlock()
	err = errors.Join(err, l.day.close())
	if l.anchor != nil {
		l.anchor.close()
		l.anchor = nil
	}
	return errors.Join(err, l.lock.Close())
}

// beginDay begins the file of a new day. Every file begins with a checkpoint, so that a start needs only the last file.
// The caller holds mu.
func (l *Log) beginDay(now time.Time) error {
	today := now.UTC().Format(dayLayout)
	// A clock that was set back must not begin an earlier file: files must be in the order of their records.
	if l.day != nil && today <= l.day.name {
		if today < l.day.name {
			l.renameToday(today)
		}
		return nil
	}
	if l.day != nil { // otherwise the checkpoint could reach the disk before the records that it covers
		if err := l.day.syncTo(l.day.written.Load()); err != nil {
			return err
		}
	}
	var head []byte
	if l.tree.size > 0 {
		var err error
		if head, err = l.signHead("", l.tree.currentHead()); err != nil {
			return err
		}
	}
	next, err := createDay(l.conf.Dir, today)
	if err != nil {
		return err
	}
	if l.tree.size > 0 {
		err = next.writeLine(head)
		if err == nil {
			err = next.syncTo(next.written.Load())
		}
		if err != nil {
			_ = next.close()
			_ = os.Remove(next.f.Name())
			return err
		}
		l.signed = l.tree.currentHead()
	}
	last := l.day
	l.day = next
	if last != nil {
		l.previous = last.name
		err = last.close()
	}
	l.dropOlder(now)
	return err
}

// renameToday gives the current file the name of an earlier day, if its name is a day in the future. The clock was
// ahead when the file began, and would put all records until that day into the file. If the clock is before the
// previous file's day, the clock is wrong now, and rename keeps the name. The caller holds mu.
func (l *Log) renameToday(today string) {
	after, err := time.Parse(dayLayout, l.previous)
	if err != nil || today < l.previous {
		return
	}
	name := max(today, after.AddDate(0, 0, 1).Format(dayLayout))
	// TryLock, because forget holds forgetMu while it waits for mu.
	if name >= l.day.name || !l.forgetMu.TryLock() {
		return
	}
	defer l.forgetMu.Unlock()
	// After an error the next record tries again.
	if os.Rename(l.filePath(l.day.name+recordsName), l.filePath(name+recordsName)) == nil {
		l.day.name = name
		_ = atomicfile.SyncDir(l.conf.Dir) // not needed for safety: the records are in the file under either name
	}
}

// dropOlder starts to drop earlier days that are no longer kept.
func (l *Log) dropOlder(now time.Time) {
	if l.conf.Keep == 0 && l.conf.Most == 0 {
		return
	}
	// In the background: rehashing a day takes long, and the caller holds mu.
	l.forgetting.Go(func() {
		if err := l.forgetDays(now); err != nil {
			l.conf.Log.Error("older days of the ledger cannot be dropped", logline.Tag("audit"),
				slog.String("error", err.Error()))
		}
	})
}

type dayFile struct {
	name    string
	f       *os.File
	written atomic.Int64 // the length of all whole lines

	mu     sync.Mutex
	synced int64
	closed bool
}

// createDay opens the file of a day, and creates it if it is missing.
func createDay(dir, name string) (*dayFile, error) {
	f, err := os.OpenFile(filepath.Join(dir, name+recordsName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	d := &dayFile{name: name, f: f}
	size, err := f.Seek(0, 2)
	d.written.Store(size)
	return d, errors.Join(err, atomicfile.SyncDir(dir))
}

// writeLine appends a line. After an error the file has no part of the line.
func (d *dayFile) writeLine(text []byte) error {
	at := d.written.Load()
	n, err := d.f.WriteAt(append(text, '\n'), at)
	if err != nil {
		// A part of a line would make the next record unreadable.
		if n > 0 {
			err = errors.Join(err, d.f.Truncate(at))
		}
		return err
	}
	d.written.Store(at + int64(n))
	return nil
}

// syncTo flushes the file to disk, at least up to an offset. Callers that wait share one flush.
func (d *dayFile) syncTo(upTo int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.synced >= upTo || d.closed {
		return nil // turn flushed the file before it closed it
	}
	// Records that came while this call waited for the lock are flushed too.
	upTo = d.written.Load()
	if err := d.f.Sync(); err != nil {
		return err
	}
	d.synced = upTo
	return nil
}

func (d *dayFile) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return d.f.Close()
}

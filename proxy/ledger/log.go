//go:build unix

package ledger

import (
	"bytes"
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
	"github.com/codeforge-mcp/codeforge/internal/logline"
)

const (
	// saltBytes are enough that no record is found by trying salts.
	saltBytes = 16
	// tryAgain is how long after a failed write the next one is tried.
	tryAgain = time.Second
)

// Config configures a Log.
type Config struct {
	// Dir is the ledger's folder. It is created.
	Dir string
	// Patience is how long Open waits for another process that ends.
	Patience time.Duration
	// Keep is how long records are kept. 0: for ever. Their hashes stay.
	Keep time.Duration
	// Most bounds the folder in bytes: one half is for today, the other for the days before, of which the oldest are
	// dropped as by Keep. While today's half is full nothing can be written, as on a full disk. 0: no bound.
	Most int64
	// Anchor is a file or a named pipe that gets the short form of every checkpoint. Empty: none.
	Anchor string
	// Version is the program's, for the first record.
	Version string
	Log     *slog.Logger
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
}

// half is the half of Most.
func (c Config) half() int64 { return c.Most / 2 }

// today is what today's records may have: a part of its half is for the roots of the oldest days, a few hundred bytes
// each.
func (c Config) today() int64 { return c.half() - c.half()/16 }

// ordinary is today without a part for starts, checkpoints, and the records that say how many others were lost.
func (c Config) ordinary() int64 { return c.today() - c.half()/16 }

// Log writes the ledger. It is safe for concurrent use. One process at a time writes a folder.
type Log struct {
	conf   Config
	lock   *os.File
	signer note.Signer
	anchor *anchor      // nil: none
	lost   atomic.Int64 // in all, for the metric

	forgetting sync.WaitGroup // older days
	forgetMu   sync.Mutex     // one at a time

	mu       sync.Mutex
	day      *day
	previous string // the day of the file before, or empty
	tree     tree
	prev     tlog.Hash
	signed   Head // of the last checkpoint
	broken   error
	brokeAt  time.Time
	gap      int // records lost since the last one written
}

// Append writes a record. The error means that it is not in the ledger; the next record that can be written is preceded
// by one that says how many were lost.
func (l *Log) Append(e Entry) error {
	entry, err := encode(e)
	if err != nil {
		return fmt.Errorf("writing the ledger: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	most := l.conf.ordinary()
	if e.Start != nil {
		most = l.conf.today()
	}
	if err = l.mend(); err == nil {
		err = l.append(entry, most)
	}
	if err != nil {
		l.failed(err)
	}
	return err
}

// encode is an entry as JSON in which <, > and & stand as they are: escaped, a URL could take six times the room.
func encode(e Entry) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(e)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// append writes one record, if today's have at most so many bytes then. The caller holds mu.
func (l *Log) append(entry []byte, most int64) error {
	now := l.conf.Now()
	if err := l.turn(now); err != nil {
		return err
	}
	var salt [saltBytes]byte
	_, _ = rand.Read(salt[:]) // it never fails
	text := line(l.tree.size, now, l.prev, salt[:], entry)
	if l.conf.Most > 0 && l.day.written.Load()+int64(len(text)) > most {
		return errMost
	}
	h := tlog.RecordHash(text)
	if err := l.day.write(text); err != nil {
		return err
	}
	l.tree.add(h)
	l.prev = h
	return nil
}

// errMost is the error while today's part of Config.Most is full.
var errMost = errors.New("today's records have reached the most that is kept of a day")

// mend tries to go on after a failed write. The caller holds mu.
func (l *Log) mend() error {
	if l.broken == nil {
		return nil
	}
	if l.conf.Now().Sub(l.brokeAt) < tryAgain {
		return l.broken
	}
	entry, err := json.Marshal(Entry{Gap: &Gap{Lost: l.gap}})
	if err == nil {
		err = l.append(entry, l.conf.today())
	}
	if err != nil {
		return err
	}
	l.broken, l.gap = nil, 0
	l.conf.Log.Info("the ledger is written again", logline.Tag("audit"))
	return nil
}

// failed counts a lost record. The caller holds mu.
func (l *Log) failed(err error) {
	l.lost.Add(1)
	l.gap++
	if l.broken == nil {
		l.conf.Log.Error("the ledger cannot be written", logline.Tag("audit"), slog.String("error", err.Error()))
	}
	if l.broken == nil || l.conf.Now().Sub(l.brokeAt) >= tryAgain {
		l.broken, l.brokeAt = err, l.conf.Now()
	}
}

// Verify reads the ledger from its files, while it is written, and compares it with checkpoints that others kept.
func (l *Log) Verify(known []Known) (Report, error) { return Verify(Dir(l.conf.Dir), "", known) }

// Lost is how many records could not be written since the start.
func (l *Log) Lost() int64 { return l.lost.Load() }

// Checkpoint signs the ledger as it is and brings it to the disk. run is for whose end it is made, or empty.
func (l *Log) Checkpoint(run string) (Head, error) {
	l.mu.Lock()
	head, d, upTo, err := l.checkpoint(run)
	l.mu.Unlock()
	if err == nil {
		err = d.sync(upTo)
	}
	if err != nil {
		l.conf.Log.Error("a checkpoint of the ledger cannot be written", logline.Tag("audit"), slog.String("run", run),
			slog.String("error", err.Error()))
		return Head{}, fmt.Errorf("writing the ledger: %w", err)
	}
	return head, nil
}

// checkpoint writes a checkpoint, if there is a record since the last one. The caller holds mu, and calls sync of the
// day that is returned.
func (l *Log) checkpoint(run string) (Head, *day, int64, error) {
	if l.broken != nil {
		return Head{}, nil, 0, l.broken
	}
	head := l.tree.head()
	if head == l.signed {
		return head, l.day, l.day.written.Load(), nil
	}
	text, err := l.sign(run, head)
	if err == nil {
		err = l.day.write(text)
	}
	if err != nil {
		return Head{}, nil, 0, err
	}
	l.signed = head
	if l.anchor != nil {
		l.anchor.add(fmt.Sprintf("%s %s %s", l.conf.Now().UTC().Format(time.RFC3339), run, head))
	}
	return head, l.day, l.day.written.Load(), nil
}

// sign is the line of a checkpoint. The caller holds mu.
func (l *Log) sign(run string, head Head) ([]byte, error) {
	signed, err := note.Sign(&note.Note{Text: head.text(l.signer.Name())}, l.signer)
	if err != nil {
		return nil, err
	}
	return json.Marshal(checkpointLine{&Checkpoint{
		At: l.conf.Now().UTC(), Run: run, Note: string(signed), Edge: l.tree.complete(), Last: l.prev,
	}})
}

// Close signs what is not signed yet and lets another process write the folder.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.gap > 0 { // nobody else knows how many were lost
		l.brokeAt = time.Time{}
		_ = l.mend() // what follows fails too
	}
	l.mu.Unlock()
	l.forgetting.Wait()
	_, err := l.Checkpoint("")
	l.mu.Lock()
	defer l.mu.Unlock()
	err = errors.Join(err, l.day.close())
	if l.anchor != nil {
		l.anchor.close()
		l.anchor = nil
	}
	return errors.Join(err, l.lock.Close())
}

// turn begins the file of a new day. Every file begins with a checkpoint, so that the next start needs no other file.
// The caller holds mu.
func (l *Log) turn(now time.Time) error {
	today := now.UTC().Format(dayLayout)
	if l.day != nil && today <= l.day.name { // a clock that was set back makes no earlier day
		if today < l.day.name {
			l.rename(today)
		}
		return nil
	}
	if l.day != nil { // else the checkpoint could be on the disk without what it covers
		if err := l.day.sync(l.day.written.Load()); err != nil {
			return err
		}
	}
	var head []byte
	if l.tree.size > 0 {
		var err error
		if head, err = l.sign("", l.tree.head()); err != nil {
			return err
		}
	}
	next, err := createDay(l.conf.Dir, today)
	if err != nil {
		return err
	}
	if l.tree.size > 0 {
		err = next.write(head)
		if err == nil {
			err = next.sync(next.written.Load())
		}
		if err != nil {
			_ = next.close()
			_ = os.Remove(next.f.Name())
			return err
		}
		l.signed = l.tree.head()
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

// rename gives the current file the name of an earlier day if it has that of a day that is still to come: the clock was
// ahead when it began, and all records until then would be in it. Where the clock is before the file before, it is the
// clock that is wrong now. The caller holds mu.
func (l *Log) rename(today string) {
	after, err := time.Parse(dayLayout, l.previous)
	if err != nil || today < l.previous {
		return
	}
	name := max(today, after.AddDate(0, 0, 1).Format(dayLayout))
	if name >= l.day.name || !l.forgetMu.TryLock() {
		return
	}
	defer l.forgetMu.Unlock()
	if os.Rename(l.path(l.day.name+recordsName), l.path(name+recordsName)) == nil { // else the next record tries
		l.day.name = name
		_ = atomicfile.SyncDir(l.conf.Dir) // the records are in the file under either name
	}
}

// dropOlder begins to drop what is no longer kept of the days before today.
func (l *Log) dropOlder(now time.Time) {
	if l.conf.Keep == 0 && l.conf.Most == 0 {
		return
	}
	l.forgetting.Go(func() {
		if err := l.forget(now); err != nil {
			l.conf.Log.Error("older days of the ledger cannot be dropped", logline.Tag("audit"),
				slog.String("error", err.Error()))
		}
	})
}

// day is the file of a day.
type day struct {
	name    string
	f       *os.File
	written atomic.Int64 // bytes that are whole lines

	mu     sync.Mutex
	synced int64
	closed bool
}

// createDay creates the file of a day, or takes the one that is there.
func createDay(dir, name string) (*day, error) {
	f, err := os.OpenFile(filepath.Join(dir, name+recordsName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	d := &day{name: name, f: f}
	size, err := f.Seek(0, 2)
	d.written.Store(size)
	return d, errors.Join(err, atomicfile.SyncDir(dir))
}

// write appends a line. After an error the file has none of it.
func (d *day) write(text []byte) error {
	at := d.written.Load()
	n, err := d.f.WriteAt(append(text, '\n'), at)
	if err != nil {
		if n > 0 {
			err = errors.Join(err, d.f.Truncate(at))
		}
		return err
	}
	d.written.Store(at + int64(n))
	return nil
}

// sync brings the file to the disk up to an offset at least. Callers that wait share one flush.
func (d *day) sync(upTo int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.synced >= upTo || d.closed {
		return nil // closing has flushed
	}
	upTo = d.written.Load()
	if err := d.f.Sync(); err != nil {
		return err
	}
	d.synced = upTo
	return nil
}

func (d *day) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return d.f.Close()
}

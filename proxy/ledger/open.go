//go:build unix

package ledger

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
	"github.com/codeforge-mcp/codeforge/internal/folderlock"
	"github.com/codeforge-mcp/codeforge/internal/logline"
)

const (
	keyName = "key"
	// searchChunk is how many bytes are read at once in the search for the last checkpoint.
	searchChunk = 1 << 20
)

// Open opens the ledger of a folder, or creates one. If a ledger does not verify, Open sets it aside and creates a new
// one, whose first record names the old. The proxy must record requests in any case.
func Open(c Config) (*Log, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	l := &Log{conf: c}
	if c.Anchor != "" {
		l.anchor = newAnchor(c.Anchor, c.Log)
	}
	start, err := l.openFolder()
	if err == nil {
		err = l.AppendRecord(Entry{Start: &start})
	}
	switch {
	case errors.Is(err, errMost): // the start counts as a lost record, like others of today
		err = nil
	case err == nil:
		_, err = l.WriteCheckpoint("")
	}
	if err != nil {
		if l.day != nil {
			_ = l.day.close()
		}
		if l.lock != nil {
			_ = l.lock.Close()
		}
		if l.anchor != nil {
			l.anchor.close()
		}
		return nil, fmt.Errorf("opening the ledger: %w", err)
	}
	return l, nil
}

// openFolder continues the log where the previous process stopped.
func (l *Log) openFolder() (Start, error) {
	start := Start{Version: l.conf.Version}
	if err := os.MkdirAll(l.conf.Dir, 0o700); err != nil {
		return start, err
	}
	var err error
	// The lock comes before everything else: two writers would each continue the same tree.
	if l.lock, err = folderlock.LockFolder(l.conf.Dir, l.conf.Patience); err != nil {
		return start, err
	}
	if err = l.readKey(); err != nil {
		return start, err
	}
	start.Dropped, err = l.resumeLast()
	if bad, ok := errors.AsType[*damagedError](err); ok {
		start.SetAside, err = l.setAside()
		l.conf.Log.Error("the ledger did not verify and was set aside", logline.Tag("audit"),
			slog.String("error", bad.Error()), slog.String("folder", start.SetAside))
	}
	if err == nil {
		err = l.findPrevious()
	}
	if err == nil {
		err = l.beginDay(l.conf.Now())
	}
	if err == nil { // the previous process may have stopped while it dropped days
		l.dropOlder(l.conf.Now())
	}
	return start, err
}

// findPrevious finds the file before the current one.
func (l *Log) findPrevious() error {
	names, err := listDays(l.conf.Dir)
	for _, name := range names {
		if day := dayOf(name); l.day != nil && day < l.day.name {
			l.previous = day
		}
	}
	return err
}

func (l *Log) filePath(name string) string { return filepath.Join(l.conf.Dir, name) }

// readKey reads the signing key, or makes one.
func (l *Log) readKey() error {
	text, err := readSmall(l.filePath(keyName))
	if errors.Is(err, os.ErrNotExist) {
		if text, err = l.makeKey(); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	l.signer, err = note.NewSigner(strings.TrimSpace(text))
	if err != nil {
		return fmt.Errorf("%s: not the key of a ledger", l.filePath(keyName))
	}
	return nil
}

// makeKey makes the ledger's key, with a name that identifies the ledger.
func (l *Log) makeKey() (string, error) {
	private, public, err := note.GenerateKey(rand.Reader, "codeforge-"+strings.ToLower(rand.Text()[:8]))
	if err != nil {
		return "", err
	}
	// The public key first: after a crash between the two writes, the next start makes both again.
	if err = atomicfile.Write(l.filePath(pubName), []byte(public+"\n"), 0o600); err != nil {
		return "", err
	}
	return private, atomicfile.Write(l.filePath(keyName), []byte(private+"\n"), 0o600)
}

// damagedError is the error for a ledger that does not verify.
type damagedError struct{ what string }

func (d *damagedError) Error() string { return d.what }

// resumeLast continues at the end of the last file. It drops the bytes after the last whole record, which no caller got
// acknowledged.
func (l *Log) resumeLast() (dropped int64, err error) {
	days, err := listDays(l.conf.Dir)
	if err != nil {
		return 0, err
	}
	for len(days) > 0 {
		last := days[len(days)-1]
		days = days[:len(days)-1]
		if !strings.HasSuffix(last, recordsName) {
			return dropped, &damagedError{"the files of the last days are missing"}
		}
		n, empty, err := l.resumeDay(strings.TrimSuffix(last, recordsName), len(days) == 0)
		dropped += n
		if err != nil || !empty {
			return dropped, err
		}
		// The previous process stopped while it began this file.
		if err := os.Remove(l.filePath(last)); err != nil {
			return dropped, err
		}
	}
	return dropped, nil
}

// resumeDay continues at the end of a day's file. first means that there is no earlier file. empty means that the file
// has neither a record nor a checkpoint.
func (l *Log) resumeDay(name string, first bool) (dropped int64, empty bool, err error) {
	d, err := createDay(l.conf.Dir, name)
	if err != nil {
		return 0, false, err
	}
	keep := false
	defer func() {
		if !keep {
			_ = d.close()
		}
	}()
	size := d.written.Load()
	at, c, err := findLastCheckpoint(d.f, size)
	if err != nil {
		return 0, false, err
	}
	t := tree{}
	if c != nil {
		v, err := l.newVerifier()
		if err != nil {
			return 0, false, err
		}
		if l.signed, t, err = c.verifyNote(v); err != nil {
			return 0, false, &damagedError{"the last checkpoint: " + err.Error()}
		}
	} else if n, err := findFirstRecord(d.f, size); err != nil || n < 0 {
		return size, true, err
		// Only the very first file begins without a checkpoint.
	} else if !first || n > 0 {
		return 0, false, &damagedError{"the checkpoint that the last file begins with is missing"}
	}
	end, prev, err := replayRecords(d.f, at, size, &t)
	if err != nil {
		return 0, false, err
	}
	if prev == (tlog.Hash{}) && c != nil { // there are no records after the checkpoint
		prev = c.Last
	}
	if err := d.f.Truncate(end); err != nil {
		return 0, false, err
	}
	d.written.Store(end)
	l.day, l.tree, l.prev, keep = d, t, prev, true
	return size - end, false, nil
}

// newVerifier returns the verifier of the key's signatures.
func (l *Log) newVerifier() (note.Verifier, error) {
	text, err := readSmall(l.filePath(pubName))
	if err != nil {
		return nil, err
	}
	v, err := note.NewVerifier(strings.TrimSpace(text))
	// A replaced key.pub would make every checkpoint look forged.
	if err != nil || v.KeyHash() != l.signer.KeyHash() {
		return nil, &damagedError{pubName + " does not belong to the key"}
	}
	return v, nil
}

// findLastCheckpoint finds the last whole line that is a checkpoint, and the offset of the next line. Without a
// checkpoint it returns 0 and nil.
func findLastCheckpoint(f *os.File, size int64) (at int64, c *Checkpoint, err error) {
	mark := []byte("\n" + checkpointPrefix)
	part := make([]byte, min(size, searchChunk)+int64(len(mark)))
	for end := size; end > 0; {
		begin := max(0, end-searchChunk)
		// A mark may begin before end and go on behind it.
		n, err := f.ReadAt(part[:min(size, end+int64(len(mark)))-begin], begin)
		if err != nil {
			return 0, nil, err
		}
		for found := n; found > 0; {
			found = bytes.LastIndex(part[:found], mark)
			line := begin + int64(found) + 1
			if found < 0 && (begin > 0 || !bytes.HasPrefix(part, mark[1:])) {
				break
			}
			lines := newLineReader(io.NewSectionReader(f, line, size-line))
			text, err := lines.nextLine()
			if err != nil {
				return 0, nil, err
			}
			// An incomplete line has no checkpoint.
			if c := parseCheckpoint(text); c != nil && c.Note != "" {
				return line + lines.read, c, nil
			}
		}
		end = begin
	}
	return 0, nil, nil
}

// replayRecords adds the records from an offset to the tree, up to the first line that is not the next record.
func replayRecords(f *os.File, at, size int64, t *tree) (end int64, prev tlog.Hash, err error) {
	lines := newLineReader(io.NewSectionReader(f, at, size-at))
	for end = at; ; end = at + lines.read {
		text, err := lines.nextLine()
		if err != nil {
			return end, prev, err
		}
		if text == nil {
			return end, prev, nil
		}
		n, of, ok := parsePlace(text)
		// The first record after a checkpoint has no known predecessor here.
		if !ok || n != t.size || text[len(text)-1] != '}' || prev != (tlog.Hash{}) && !isNext(of, prev) {
			return end, prev, nil
		}
		prev = tlog.RecordHash(text)
		t.addLeaf(prev)
	}
}

// findFirstRecord returns the number of the first line that is a record, or -1.
func findFirstRecord(f *os.File, size int64) (int64, error) {
	for lines := newLineReader(io.NewSectionReader(f, 0, size)); ; {
		text, err := lines.nextLine()
		if err != nil || text == nil {
			return -1, err
		}
		if n, _, ok := parsePlace(text); ok {
			return n, nil
		}
	}
}

// setAside moves the ledger's files, but not its key, into a new folder.
func (l *Log) setAside() (string, error) {
	to := "set-aside-" + l.conf.Now().UTC().Format("20060102T150405")
	if err := os.Mkdir(l.filePath(to), 0o700); err != nil {
		return "", err
	}
	names, err := listDays(l.conf.Dir)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if err := os.Rename(l.filePath(name), filepath.Join(l.filePath(to), name)); err != nil {
			return "", err
		}
	}
	l.day, l.tree, l.prev, l.signed = nil, tree{}, tlog.Hash{}, Head{}
	return to, atomicfile.SyncDir(l.conf.Dir)
}

func fileSize(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// readSmall reads a file of one line, up to maxKeyFile bytes.
func readSmall(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	return string(text), err
}

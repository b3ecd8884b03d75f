//go:build unix

package ledger

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
)

// forgetDays replaces the records of days that are no longer kept by their hashes. It counts days from the day after
// the last file before the current one, so that a clock that is ahead does not make records old.
func (l *Log) forgetDays(now time.Time) error {
	l.forgetMu.Lock()
	defer l.forgetMu.Unlock()
	l.mu.Lock()
	current, previous := l.day.name, l.previous
	l.mu.Unlock()
	names, err := listDays(l.conf.Dir)
	if err != nil {
		return err
	}
	first := "" // the first day that is kept
	if last, err := time.Parse(dayLayout, previous); err == nil && l.conf.Keep > 0 {
		if next := last.AddDate(0, 0, 1); next.Before(now) {
			now = next
		}
		first = now.UTC().Add(-l.conf.Keep).Format(dayLayout)
	}
	room := l.conf.halfOfMost() // the other half is for today
	// The newest first: the oldest days lose their records if the bytes do not suffice.
	for _, name := range slices.Backward(names) {
		day := dayOf(name)
		if day >= current || strings.HasSuffix(name, rootsName) {
			continue
		}
		size, err := fileSize(l.filePath(name))
		if err != nil {
			return err
		}
		full := func() bool { return l.conf.Most > 0 && room < size }
		if strings.HasSuffix(name, recordsName) && (full() || day < first) {
			if err := l.forgetDay(day); err != nil {
				return err
			}
			name = day + hashesName
			if size, err = fileSize(l.filePath(name)); err != nil {
				return err
			}
		}
		if strings.HasSuffix(name, hashesName) && full() {
			if size, err = l.forgetHashes(names, day); err != nil {
				return err
			}
		}
		room -= size
	}
	return nil
}

// forgetDay writes the hashes of a day's records and removes the records.
func (l *Log) forgetDay(day string) error {
	f, err := os.Open(l.filePath(day + recordsName))
	if err != nil {
		return err
	}
	defer f.Close()
	// Fill writes a temporary file: after a crash the records are still there.
	err = atomicfile.Fill(l.filePath(day+hashesName), 0o600, func(w *os.File) error {
		hashes := bufio.NewWriter(w)
		for lines := newLineReader(f); ; {
			text, err := lines.nextLine()
			if err != nil {
				return err
			}
			if text == nil {
				return hashes.Flush()
			}
			if !bytes.HasPrefix(text, []byte(checkpointPrefix)) {
				h := tlog.RecordHash(text)
				_, _ = hashes.Write(h[:]) // Flush reports the error
			}
		}
	})
	if err != nil {
		return err
	}
	return os.Remove(f.Name())
}

// forgetHashes writes the roots of a day's hashes, and removes the hashes if the roots are smaller. It returns the size
// of the file that stays.
func (l *Log) forgetHashes(names []string, day string) (size int64, err error) {
	f, err := os.Open(l.filePath(day + hashesName))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if size, err = fileSize(f.Name()); err != nil {
		return 0, err
	}
	begin, err := l.countBefore(names, day)
	if err != nil {
		return size, nil //nolint:nilerr // an earlier day has its records still
	}
	roots, err := computeRoots(bufio.NewReader(f), begin)
	if err != nil || int64(len(roots)) >= size {
		return size, err
	}
	if err := atomicfile.Write(l.filePath(day+rootsName), roots, 0o600); err != nil {
		return 0, err
	}
	return int64(len(roots)), os.Remove(f.Name())
}

// countBefore returns the number of records before a day. It returns an error if an earlier day still has its records.
func (l *Log) countBefore(names []string, day string) (n int64, err error) {
	for _, name := range names {
		switch {
		case dayOf(name) >= day:
			return n, nil
		case strings.HasSuffix(name, hashesName):
			size, err := fileSize(l.filePath(name))
			if err != nil {
				return 0, err
			}
			n += size / tlog.HashSize
		case strings.HasSuffix(name, rootsName):
			text, err := os.ReadFile(l.filePath(name))
			if err != nil {
				return 0, err
			}
			for i := 0; i+rootSize <= len(text); i += rootSize {
				n += 1 << min(text[i], maxHeight)
			}
		default:
			return 0, errors.New(name + " has its records still")
		}
	}
	return n, nil
}

package sandboxapi

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// File is a file that a run left in /out, or data that its code passed to show.
type File struct {
	// Name is valid: see IsFileName. Shown data have the name "shown-N", with N from 1 on.
	Name string `json:"name"`
	// Shown means that the code passed the data to show.
	Shown bool `json:"shown,omitempty"`
	// Data follows the line of the event.
	Data []byte `json:"-"`
	// Dropped means that the client had no memory for the data.
	Dropped bool `json:"-"`
}

// fileTurns bounds the files that this process holds while it receives and handles them. A run waits for a turn at most
// turnTime, because sandboxd drops a client that does not read: see stalledFor.
var fileTurns = make(chan struct{}, 2)

const turnTime = 2 * time.Second

// readData reads the n bytes that follow the line of a file. The caller must call done after it has handled the file.
func (f *File) readData(r io.Reader, n int) (done func(), err error) {
	if n < 0 || n > MaxOut || !IsFileName(f.Name) {
		return nil, fmt.Errorf("an event with %d bytes of the file %q", n, f.Name)
	}
	wait := time.NewTimer(turnTime)
	defer wait.Stop()
	select {
	case fileTurns <- struct{}{}:
		f.Data = make([]byte, n)
		_, err = io.ReadFull(r, f.Data)
		return func() { <-fileTurns }, err
	case <-wait.C:
		f.Dropped = true
		_, err = io.CopyN(io.Discard, r, int64(n))
		return func() {}, err
	}
}

// Limits of the files of one run. Those of show are in the scripts of package runner too.
const (
	MaxOut        = 16 << 20 // bytes of all files in /out
	MaxOutFiles   = 100
	MaxShown      = 4
	MaxShownBytes = 2 << 20 // of all shown data
	maxFileName   = 120     // bytes
)

// IsFileName reports whether a name is only a name. It rejects paths, control and invisible characters, and markup. It
// also rejects characters that Windows forbids, or that are special in a URL or a shell.
func IsFileName(name string) bool {
	isForbidden := func(r rune) bool { return !unicode.IsPrint(r) || strings.ContainsRune("/\\<>:\"'`|?*&%#$;", r) }
	//defence:file-names instead true
	return name != "" && len(name) <= maxFileName && utf8.ValidString(name) && !strings.ContainsFunc(name, isForbidden) &&
		strings.Trim(name, ". ") == name && name[0] != '-'
}

package sandboxapi

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/internal/membudget"
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

// fileMemory bounds the files that this process holds while it receives and handles them. It has room for two of the
// largest files, of different owners. Each of 16 owners always finds 3 MiB.
var fileMemory = membudget.New(6 * MaxOut)

// fileWait is how long a file waits for memory. It is shorter than stalledFor, after which sandboxd drops a client that
// does not read.
const fileWait = 4 * time.Second

// readData reads the n bytes that follow the line of a file. The caller must call done after it has handled the file.
func (f *File) readData(r io.Reader, n int, owner string) (done func(), err error) {
	if n < 0 || n > MaxOut || !IsFileName(f.Name) {
		return nil, fmt.Errorf("an event with %d bytes of the file %q", n, f.Name)
	}
	account := fileMemory.OpenAccount(chooseHolder(owner))
	ctx, cancel := context.WithTimeout(context.Background(), fileWait)
	defer cancel()
	if account.WaitAndTake(ctx, int64(n)) != nil {
		f.Dropped = true
		_, err = io.CopyN(io.Discard, r, int64(n))
		return account.Close, err
	}
	f.Data = make([]byte, n)
	_, err = io.ReadFull(r, f.Data)
	return account.Close, err
}

// chooseHolder returns the holder of the memory for an owner's files. So the files of one owner displace no others.
func chooseHolder(owner string) string {
	//defence:file-share instead ""
	return owner
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

package mint

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
	"github.com/codeforge-mcp/codeforge/internal/folderlock"
)

// kept is the stored state of a credential: the file tokens/NAME.json.
type kept struct {
	// Digest identifies the configuration with which the value was obtained (catalog.Credential.MintDigest). Under another
	// configuration the value must not be sent anywhere.
	Digest string `json:"digest"`
	// Access is the credential, if there is one. Minted is the time at which it was requested, and Expires the time at
	// which it expires. A nil Expires means never.
	Access  string     `json:"access,omitempty"`
	Minted  time.Time  `json:"minted,omitzero"`
	Expires *time.Time `json:"expires,omitempty"`
	// Renew is the time for a renewal, if it is not a while before Expires.
	Renew *time.Time `json:"renew,omitempty"`
	// Forget is the time from which on responses are no longer searched for Access. Nil means never while Access is
	// current.
	Forget *time.Time `json:"forget,omitempty"`
	// Refresh is the refresh token.
	Refresh string `json:"refresh,omitempty"`
	// Inner are further secrets that are used with Access.
	Inner []string `json:"inner,omitempty"`
	// Client is the registration with the authorization server, and the addresses of the server.
	Client *client `json:"client,omitempty"`
}

// maxStored is the largest stored file in bytes.
const maxStored = 128 << 10

var errStored = errors.New("the stored token cannot be used")

// store is a folder that only the proxy can enter. A lock admits one proxy at a time: two would use up each other's
// refresh tokens.
type store struct {
	dir  string
	lock *os.File // the folder
}

// openStore makes the folder if necessary and locks it. It waits at most patience for another process. Then it removes
// the drafts of interrupted writes.
func openStore(dir string, patience time.Duration) (_ *store, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	// Lstat and the owner check reject a symbolic link or a folder that another user has put there.
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	own, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(own.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%s: not a folder that belongs to the proxy", dir)
	}
	if info.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(dir, 0o700); err != nil {
			return nil, err
		}
	}
	s := &store{dir: dir}
	if s.lock, err = folderlock.Take(dir, patience); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		// A process that was killed has left its draft. The lock shows that no other process writes.
		if strings.HasSuffix(e.Name(), draftSuffix) {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// close releases the folder for another process. A nil store is closed.
func (s *store) close() {
	if s != nil {
		_ = s.lock.Close()
	}
}

const draftSuffix = ".draft"

// reserved is the room in bytes that a draft takes on the disk before the proxy sends a request.
const reserved = 16 << 10

// path returns the file of a credential. It checks the name once more, because the name becomes a file name.
func (s *store) path(name string) (string, error) {
	if !catalog.ValidTokenName(name) {
		return "", errStored
	}
	return filepath.Join(s.dir, name+".json"), nil
}

// read returns the stored state of a credential, of any configuration. Without a file it returns the zero kept.
func (s *store) read(name string) (kept, error) {
	path, err := s.path(name)
	if err != nil {
		return kept{}, err
	}
	// O_NOFOLLOW and O_NONBLOCK: a symbolic link or a pipe must not redirect or block the read.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return kept{}, nil
	}
	if err != nil {
		return kept{}, errStored
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return kept{}, errStored
	}
	data, err := io.ReadAll(io.LimitReader(f, maxStored+1))
	var k kept
	if err != nil || len(data) > maxStored || decode(data, &k) != nil {
		return kept{}, errStored
	}
	return k, nil
}

// draft is a file that will replace the stored one.
type draft struct {
	*os.File
	store *store
	to    string
}

// begin opens a draft and takes its room on the disk, before the proxy sends a request. If the disk is full, no token
// is requested and no refresh token is used up.
func (s *store) begin(name string) (*draft, error) {
	to, err := s.path(name)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(s.dir, name+"."+rand.Text()+draftSuffix),
		os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	d := &draft{f, s, to}
	// Written zeros take the room; an empty file would not.
	_, err = f.Write(make([]byte, reserved))
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		d.discard()
		return nil, err
	}
	return d, nil
}

// commit replaces the stored file. When commit returns nil, the file survives a power failure.
func (d *draft) commit(k kept) error {
	data, err := json.Marshal(k)
	if err != nil {
		return err
	}
	step("write")
	if _, err := d.Write(data); err != nil {
		return err
	}
	// Cut off the reserved zeros.
	if err := d.Truncate(int64(len(data))); err != nil {
		return err
	}
	step("sync")
	// Without this, a power failure after the rename could leave an empty file.
	if err := d.Sync(); err != nil {
		return err
	}
	step("rename")
	if err := os.Rename(d.Name(), d.to); err != nil {
		return err
	}
	step("sync folder")
	// The rename survives a power failure only after this.
	err = atomicfile.SyncDir(d.store.dir)
	step("stored")
	return err
}

// discard closes the draft, and removes it unless it was committed.
func (d *draft) discard() {
	_ = d.Close()
	_ = os.Remove(d.Name())
}

// write stores a state without a request in between.
func (s *store) write(name string, k kept) error {
	d, err := s.begin(name)
	if err != nil {
		return err
	}
	defer d.discard()
	return d.commit(k)
}

// remove removes the stored file. A missing file is not an error.
func (s *store) remove(name string) error {
	path, err := s.path(name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return atomicfile.SyncDir(s.dir)
}

// step is called between the steps of a renewal. A test can end the process there.
var step = func(string) {}

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

// storedToken is the stored state of a credential: the file tokens/NAME.json.
type storedToken struct {
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

// isUntil reports whether the value is the current one, with this end.
func (k storedToken) isUntil(value string, end time.Time) bool {
	return k.Access == value && k.Expires != nil && k.Expires.Equal(end)
}

// maxStored is the largest stored file in bytes.
const maxStored = 128 << 10

var errStored = errors.New("the stored token cannot be used")

// tokenStore is a folder that only the proxy can enter. A lock admits one proxy at a time: two would use up each
// other's refresh tokens.
type tokenStore struct {
	dir  string
	lock *os.File // the folder
}

// openStore makes the folder if necessary and locks it. It waits at most patience for another process. Then it removes
// the drafts of interrupted writes.
func openStore(dir string, patience time.Duration) (_ *tokenStore, err error) {
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
	s := &tokenStore{dir: dir}
	if s.lock, err = folderlock.LockFolder(dir, patience); err != nil {
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
func (s *tokenStore) close() {
	if s != nil {
		_ = s.lock.Close()
	}
}

const draftSuffix = ".draft"

// reservedBytes is the room in bytes that a draft takes on the disk before the proxy sends a request.
const reservedBytes = 16 << 10

// filePath returns the file of a credential. It checks the name once more, because the name becomes a file name.
func (s *tokenStore) filePath(name string) (string, error) {
	if !catalog.ValidTokenName(name) {
		return "", errStored
	}
	return filepath.Join(s.dir, name+".json"), nil
}

// readState returns the stored state of a credential, of any configuration. Without a file it returns the zero
// storedToken.
func (s *tokenStore) readState(name string) (storedToken, error) {
	path, err := s.filePath(name)
	if err != nil {
		return storedToken{}, err
	}
	// O_NOFOLLOW and O_NONBLOCK: a symbolic link or a pipe must not redirect or block the read.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return storedToken{}, nil
	}
	if err != nil {
		return storedToken{}, errStored
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return storedToken{}, errStored
	}
	data, err := io.ReadAll(io.LimitReader(f, maxStored+1))
	var k storedToken
	if err != nil || len(data) > maxStored || decodeObject(data, &k) != nil {
		return storedToken{}, errStored
	}
	return k, nil
}

// tokenDraft is a file that will replace the stored one.
type tokenDraft struct {
	*os.File
	store *tokenStore
	to    string
}

// beginDraft opens a draft and takes its room on the disk, before the proxy sends a request. If the disk is full, no
// token is requested and no refresh token is used up.
func (s *tokenStore) beginDraft(name string) (*tokenDraft, error) {
	to, err := s.filePath(name)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(s.dir, name+"."+rand.Text()+draftSuffix),
		os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	d := &tokenDraft{f, s, to}
	// Written zeros take the room; an empty file would not.
	_, err = f.Write(make([]byte, reservedBytes))
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		d.discardDraft()
		return nil, err
	}
	return d, nil
}

// commit replaces the stored file. When commit returns nil, the file survives a power failure.
func (d *tokenDraft) commit(k storedToken) error {
	data, err := json.Marshal(k)
	if err != nil {
		return err
	}
	atStep("write")
	if _, err := d.Write(data); err != nil {
		return err
	}
	// Cut off the reserved zeros.
	if err := d.Truncate(int64(len(data))); err != nil {
		return err
	}
	atStep("sync")
	// Without this, a power failure after the rename could leave an empty file.
	if err := d.Sync(); err != nil {
		return err
	}
	atStep("rename")
	if err := os.Rename(d.Name(), d.to); err != nil {
		return err
	}
	atStep("sync folder")
	// The rename survives a power failure only after this.
	err = atomicfile.SyncDir(d.store.dir)
	atStep("stored")
	return err
}

// discardDraft closes the draft, and removes it unless it was committed.
func (d *tokenDraft) discardDraft() {
	_ = d.Close()
	_ = os.Remove(d.Name())
}

// writeState stores a state without a request in between.
func (s *tokenStore) writeState(name string, k storedToken) error {
	d, err := s.beginDraft(name)
	if err != nil {
		return err
	}
	defer d.discardDraft()
	return d.commit(k)
}

// removeState removes the stored file. A missing file is not an error.
func (s *tokenStore) removeState(name string) error {
	path, err := s.filePath(name)
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

// atStep is called between the steps of a renewal. A test can end the process there.
var atStep = func(string) {}

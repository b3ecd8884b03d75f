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

// kept is what is stored of a credential: tokens/NAME.json.
type kept struct {
	// Digest is that of the configuration that it was obtained with (catalog.Credential.MintDigest). Under another one it
	// is of no use, and must not be sent anywhere.
	Digest string `json:"digest"`
	// Access is the credential, if there is one, with the time at which it was asked for and the time at which it ends. No
	// Expires: it does not end.
	Access  string     `json:"access,omitempty"`
	Minted  time.Time  `json:"minted,omitzero"`
	Expires *time.Time `json:"expires,omitempty"`
	// Renew is when it should be replaced, if not a while before Expires.
	Renew *time.Time `json:"renew,omitempty"`
	// Forget is when Access is no longer looked for in responses. Nil means never while it is the current one.
	Forget *time.Time `json:"forget,omitempty"`
	// Refresh gets the next one.
	Refresh string `json:"refresh,omitempty"`
	// Inner are further secrets, that Access is used with.
	Inner []string `json:"inner,omitempty"`
	// Client is a registration with the authorization server, and where that server is.
	Client *client `json:"client,omitempty"`
}

// maxStored bounds a stored file in bytes.
const maxStored = 128 << 10

var errStored = errors.New("the stored token cannot be used")

// store is a folder that only the proxy can enter, and one proxy at a time: two would use up each other's refresh
// tokens.
type store struct {
	dir  string
	lock *os.File // the folder
}

// openStore makes the folder if need be, waits a while for another process to leave it, and removes what an interrupted
// write left.
func openStore(dir string, patience time.Duration) (_ *store, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	own, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(own.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%s: not a folder of the proxy's own", dir)
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
		if strings.HasSuffix(e.Name(), draftSuffix) {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// close lets another process have the folder. The nil store is closed.
func (s *store) close() {
	if s != nil {
		_ = s.lock.Close()
	}
}

const draftSuffix = ".draft"

// reserved is how much room a draft has in bytes before a server is asked.
const reserved = 16 << 10

// path is where a credential is stored. The name is checked once more, because it becomes a file's.
func (s *store) path(name string) (string, error) {
	if !catalog.ValidTokenName(name) {
		return "", errStored
	}
	return filepath.Join(s.dir, name+".json"), nil
}

// read returns what is stored for a credential, with whatever configuration. Nothing: the zero kept.
func (s *store) read(name string) (kept, error) {
	path, err := s.path(name)
	if err != nil {
		return kept{}, err
	}
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

// draft is a file that will become the stored one.
type draft struct {
	*os.File
	store *store
	to    string
}

// begin opens the file before a server is asked, and takes the room on the disk: where nothing can be written, no token
// is fetched and no refresh token is used up.
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

// commit replaces the stored file. When it returns nil, what was written survives a loss of power.
func (d *draft) commit(k kept) error {
	data, err := json.Marshal(k)
	if err != nil {
		return err
	}
	step("write")
	if _, err := d.Write(data); err != nil {
		return err
	}
	if err := d.Truncate(int64(len(data))); err != nil {
		return err
	}
	step("sync")
	if err := d.Sync(); err != nil {
		return err
	}
	step("rename")
	if err := os.Rename(d.Name(), d.to); err != nil {
		return err
	}
	step("sync folder")
	err = atomicfile.SyncDir(d.store.dir)
	step("stored")
	return err
}

// discard closes the draft, and removes it unless it was committed.
func (d *draft) discard() {
	_ = d.Close()
	_ = os.Remove(d.Name())
}

// write stores at once.
func (s *store) write(name string, k kept) error {
	d, err := s.begin(name)
	if err != nil {
		return err
	}
	defer d.discard()
	return d.commit(k)
}

// remove forgets what is stored. Nothing stored is not an error.
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

// step is called between the steps of a renewal, so that a test can end the process there.
var step = func(string) {}

package broker

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
)

// toolCache is the folder that caches the tool definitions of servers, so that listing them after a restart starts no
// server. Each server has one file, which is replaced as a whole. The empty path disables the cache.
//
// A cached definition may be out of date. Before a tool is called, the running server lists its tools again.
type toolCache string

// definitionsSuffix is the end of the files' names.
const definitionsSuffix = ".tools"

type cacheFile struct {
	Digest string            `json:"digest"` // of everything that the server is started with
	Tools  []json.RawMessage `json:"tools"`
}

// cachePath returns a server's file. It is a hash, because an API's name may have any length and letters.
func (r toolCache) cachePath(server string) string {
	sum := sha256.Sum256([]byte(server))
	return filepath.Join(string(r), hex.EncodeToString(sum[:])+definitionsSuffix)
}

// readCached returns the cached tools of a server, if they were listed with the same configuration.
func (r toolCache) readCached(server, digest string) (d cacheFile, ok bool) {
	if r == "" {
		return d, false
	}
	path := r.cachePath(server)
	info, err := os.Stat(path)
	// A file that another program enlarged must not fill the memory.
	if err != nil || info.Size() > 2*maxDefinitions {
		return d, false
	}
	data, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(data, &d) != nil || d.Digest != digest {
		return cacheFile{}, false
	}
	return d, true
}

func (r toolCache) writeCached(server string, d cacheFile) error {
	if r == "" {
		return nil
	}
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(r.cachePath(server)); err == nil && string(old) == string(data) {
		return nil
	}
	if err := os.MkdirAll(string(r), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(r.cachePath(server), data, 0o600)
}

// removeOthers removes the cached tools of all servers but these.
func (r toolCache) removeOthers(servers map[string]*configuredServer) error {
	if r == "" {
		return nil
	}
	entries, err := os.ReadDir(string(r))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	stay := map[string]bool{}
	for name := range servers {
		stay[filepath.Base(r.cachePath(name))] = true
	}
	for _, e := range entries {
		if strings.Contains(e.Name(), definitionsSuffix) && !stay[e.Name()] {
			err = errors.Join(err, os.Remove(filepath.Join(string(r), e.Name())))
		}
	}
	return err
}

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

// remembered is the folder of the definitions of tools that servers gave, so that listing them starts no server after a
// restart. There is one file for each server, which is replaced as a whole. The empty path remembers nothing.
//
// What it says is what some server said once. Before a tool is called, the server that is called says it anew.
type remembered string

// definitionsSuffix ends the names of the files.
const definitionsSuffix = ".tools"

// document is the content of a file.
type document struct {
	Digest string            `json:"digest"` // of all that the server is started with
	Tools  []json.RawMessage `json:"tools"`
}

// path is the file of a server. Names of APIs are names of folders, of whatever length and letters.
func (r remembered) path(server string) string {
	sum := sha256.Sum256([]byte(server))
	return filepath.Join(string(r), hex.EncodeToString(sum[:])+definitionsSuffix)
}

// recall is what was remembered of a server that is configured like this.
func (r remembered) recall(server, digest string) (d document, ok bool) {
	if r == "" {
		return d, false
	}
	path := r.path(server)
	info, err := os.Stat(path)
	if err != nil || info.Size() > 2*maxDefinitions {
		return d, false
	}
	data, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(data, &d) != nil || d.Digest != digest {
		return document{}, false
	}
	return d, true
}

// keep remembers the tools of a server in place of what was remembered before.
func (r remembered) keep(server string, d document) error {
	if r == "" {
		return nil
	}
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(r.path(server)); err == nil && string(old) == string(data) {
		return nil
	}
	if err := os.MkdirAll(string(r), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(r.path(server), data, 0o600)
}

// forget removes what is remembered of servers other than these.
func (r remembered) forget(servers map[string]*server) error {
	if r == "" {
		return nil
	}
	entries, err := os.ReadDir(string(r))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	stay := map[string]bool{}
	for name := range servers {
		stay[filepath.Base(r.path(name))] = true
	}
	for _, e := range entries {
		if strings.Contains(e.Name(), definitionsSuffix) && !stay[e.Name()] {
			err = errors.Join(err, os.Remove(filepath.Join(string(r), e.Name())))
		}
	}
	return err
}

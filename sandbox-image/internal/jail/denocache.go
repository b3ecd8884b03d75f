package jail

import (
	"bytes"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
)

// denoCache holds copies of the databases that Deno makes in an empty DENO_DIR. An interpreter that gets copies starts
// in a tenth less processor time, and does not parse warm.js.
type denoCache struct {
	files atomic.Pointer[map[string][]byte] // by their names in DENO_DIR
}

// cacheFiles is the number of files that keepFrom wants: two databases, each with its write-ahead log. maxCacheFile
// bounds one of them, in bytes.
const (
	cacheFiles   = 4
	maxCacheFile = 1 << 20
)

// keepFrom copies the databases from the DENO_DIR of an interpreter that is up and has no code yet. It does nothing if
// it has copies already, or if Deno is still making the databases: a later interpreter then gets the chance.
func (c *denoCache) keepFrom(dir string) {
	if c.files.Load() != nil {
		return
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return // without copies, Deno makes the databases
	}
	defer root.Close()
	names, _ := fs.Glob(root.FS(), "*_analysis_cache_v*[0-9l]") // not the index in shared memory, -shm
	files := map[string][]byte{}
	for _, name := range names {
		info, err := root.Lstat(name)
		if err != nil || !info.Mode().IsRegular() || info.Size() > maxCacheFile {
			return
		}
		if files[name], err = root.ReadFile(name); err != nil {
			return
		}
		// Deno's last step writes its version into the log.
		if strings.HasSuffix(name, "-wal") && !bytes.Contains(files[name], []byte("CLI_VERSION")) {
			return
		}
	}
	if len(files) == cacheFiles {
		c.files.Store(&files)
	}
}

// listFiles returns the copies, which the caller must not change. There are none before keepFrom has succeeded.
func (c *denoCache) listFiles() map[string][]byte {
	if files := c.files.Load(); files != nil {
		return *files
	}
	return nil
}

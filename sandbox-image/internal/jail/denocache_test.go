package jail

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestDenoCache: only complete databases are copied, without other files and links, and only once.
func TestDenoCache(t *testing.T) {
	dir, other := t.TempDir(), filepath.Join(t.TempDir(), "other")
	write := func(name, text string) {
		t.Helper()
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	var c denoCache
	keeps := func(want bool, when string) {
		t.Helper()
		if c.keepFrom(dir); (c.listFiles() != nil) != want {
			t.Errorf("%s: copies %v", when, c.listFiles())
		}
	}
	c.keepFrom(other) // missing
	want := map[string][]byte{}
	for _, name := range []string{"dep_analysis_cache_v2", "node_analysis_cache_v2"} {
		write(name, "pages of "+name)
		write(name+"-shm", "index")
		keeps(false, "without the log of "+name)
		write(name+"-wal", "frames")
		keeps(false, "while Deno makes "+name)
		write(name+"-wal", "frames CLI_VERSION 2")
		want[name], want[name+"-wal"] = []byte("pages of "+name), []byte("frames CLI_VERSION 2")
	}
	testkit.Must(t, os.WriteFile(other, []byte("CLI_VERSION"), 0o600))
	link := filepath.Join(dir, "dep_analysis_cache_v2-wal")
	testkit.Must(t, os.Remove(link))
	testkit.Must(t, os.Symlink(other, link))
	keeps(false, "with a link")
	testkit.Must(t, os.Remove(link))
	write("dep_analysis_cache_v2-wal", string(make([]byte, maxCacheFile+1)))
	keeps(false, "with a large file")
	write("dep_analysis_cache_v2-wal", "frames CLI_VERSION 2")
	keeps(true, "when they are complete")
	write("dep_analysis_cache_v2", "changed")
	c.keepFrom(dir)
	if got := c.listFiles(); !maps.EqualFunc(got, want, func(a, b []byte) bool { return string(a) == string(b) }) {
		t.Errorf("copies %q, want %q", got, want)
	}
}

//go:build disarm

package ledger

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestDisarmed: without its check, what somebody did to a ledger is not found. e2e/negative runs it, under the tag disarm.
func TestDisarmed(t *testing.T) {
	for defence, attack := range map[string]func(t *testing.T, dir string) []KnownCheckpoint{
		"ledger-hash": func(t *testing.T, dir string) []KnownCheckpoint { // a record is changed
			paths, err := filepath.Glob(filepath.Join(dir, "*.ndjson"))
			testkit.Must(t, err)
			data, err := os.ReadFile(paths[0])
			testkit.Must(t, err)
			changed := bytes.Replace(data, []byte("https://a.test/2"), []byte("https://b.test/2"), 1)
			if bytes.Equal(changed, data) {
				t.Fatal("there is no such record")
			}
			testkit.Must(t, os.WriteFile(paths[0], changed, 0o600))
			return nil
		},
		"ledger-signature": func(t *testing.T, dir string) []KnownCheckpoint { // all of it is written anew, by who has not the key
			kept, err := os.ReadFile(filepath.Join(dir, pubName))
			testkit.Must(t, err)
			name, _, _ := strings.Cut(string(kept), "+")
			key, _, err := note.GenerateKey(rand.Reader, name)
			testkit.Must(t, err)
			elsewhere := t.TempDir()
			testkit.Must(t, os.WriteFile(filepath.Join(elsewhere, keyName), []byte(key+"\n"), 0o600))
			forged := open(t, elsewhere)
			forged.send(t, "ra", "https://a.test/forged")
			testkit.Must(t, forged.Close())
			testkit.Must(t, os.RemoveAll(dir))
			testkit.Must(t, os.CopyFS(dir, os.DirFS(elsewhere)))
			testkit.Must(t, os.WriteFile(filepath.Join(dir, pubName), kept, 0o600))
			return nil
		},
		"ledger-known": func(t *testing.T, dir string) []KnownCheckpoint { // an older copy is put back
			older := t.TempDir()
			testkit.Must(t, os.CopyFS(older+"/x", os.DirFS(dir)))
			l := open(t, dir)
			seen := l.send(t, "rb", "https://a.test/3")
			testkit.Must(t, l.Close())
			testkit.Must(t, os.RemoveAll(dir))
			testkit.Must(t, os.CopyFS(dir, os.DirFS(older+"/x")))
			return []KnownCheckpoint{{seen, "the checkpoint of run rb"}}
		},
	} {
		t.Run(defence, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "audit")
			l := open(t, dir)
			l.send(t, "ra", "https://a.test/1", "https://a.test/2")
			testkit.Must(t, l.Close())
			known := attack(t, dir)
			if r := verify(t, dir, known...); len(r.Findings) == 0 {
				t.Error("it is not found although the check is there")
			}
			t.Setenv("CODEFORGE_DISARM", defence)
			if r := verify(t, dir, known...); len(r.Findings) > 0 {
				t.Errorf("it is found by something else: %s", strings.Join(r.Findings, "; "))
			}
		})
	}
}

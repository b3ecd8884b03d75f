package control

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/proxy/internal/receipt"
	"github.com/codeforge-mcp/codeforge/proxy/internal/reload"
)

// TestUnread: a start does not wait for large files of operations. Who asks for one gets it once it was checked; one
// that is bad reaches nobody, and its API is refused then, as it is where everything is read at once. What decides over
// requests, and what has no digest, is read before the start.
// Promise: configuration-fails-closed
func TestUnread(t *testing.T) {
	var large strings.Builder
	const lines = 12_000
	fmt.Fprintf(&large, `{"format":1,"server":"https://a.test","operations":%d,"types":0}`+"\n", lines)
	for i := range lines {
		fmt.Fprintf(&large, `{"m":"GET","p":"/items/%d","s":"Get one of the many items that there are, with what belongs to it"}`+"\n", i)
	}
	apis := t.TempDir()
	write := func(name, text, only, digest string) {
		t.Helper()
		if digest == "right" {
			digest = fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
		}
		config := fmt.Sprintf(`{"description": "d", "domains": ["%s.test"], "credentials": {"%s_TOKEN": "%s"}, "operations": {"source": "x.json"%s%s}}`,
			name, strings.ToUpper(name), canary+name, only, map[bool]string{true: `, "sha256": "` + digest + `"`}[digest != ""])
		dir := filepath.Join(apis, name)
		for _, err := range []error{os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600),
			os.WriteFile(filepath.Join(dir, "operations.jsonl"), []byte(text), 0o600)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	write("a", operations, "", "right")
	write("large", large.String(), "", "right")
	write("only", large.String(), `, "only": true`, "right")
	write("plain", large.String(), "", "")
	write("shows", strings.Replace(large.String(), "Get one", canary+"shows", 1), "", "right")
	write("wrong", large.String(), "", strings.Repeat("0", 64))

	log := logline.New(io.Discard, "text", nil)
	changes := make(chan reload.ReloadChange, 2)
	r := reload.New(reload.Config{Dir: apis, Changed: func(c reload.ReloadChange) { changes <- c }})
	r.LoadFirst(log)
	<-changes
	unread := map[string]bool{"large": true, "shows": true, "wrong": true}
	for _, a := range r.Current().Rules.Catalog.APIs() {
		if a.OperationsFile.IsUnread() != unread[a.Name] {
			t.Errorf("%s: unread is %v", a.Name, !unread[a.Name])
		}
	}
	digest := func() string {
		for _, a := range r.Current().Public.APIs {
			if a.Name == "large" {
				return a.Operations
			}
		}
		return ""
	}
	before := digest()

	control := New(Config{Journal: receipt.NewJournal(receipt.Config{Log: log}), Current: r.Current})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	control.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(gone, "GET", "/v1/catalog/large/operations", nil)) // it returns
	client := serve(t, control)
	type answer struct {
		name, text string
		err        error
	}
	answers := make(chan answer, len(unread))
	for name := range unread {
		go func() {
			text, err := read(client.OpenOperations(t.Context(), name))
			answers <- answer{name, text, err}
		}()
	}
	if text, err := read(client.OpenOperations(t.Context(), "a")); err != nil || text != operations {
		t.Errorf("a small one: %v, %d bytes", err, len(text))
	}
	select {
	case a := <-answers:
		t.Fatalf("%s was answered unread: %v, %d bytes", a.name, a.err, len(a.text))
	case <-time.After(100 * time.Millisecond):
	}
	r.Load()
	for range unread {
		a := <-answers
		if a.name == "large" && (a.err != nil || a.text != large.String()) || a.name != "large" && a.err == nil {
			t.Errorf("%s: %v, %d bytes", a.name, a.err, len(a.text))
		}
	}
	if c := <-changes; c.Now.Superseded != nil || c.NewValues || c.Removed["large"] || !c.Removed["shows"] || !c.Removed["wrong"] || digest() != before {
		t.Errorf("afterwards: %+v, digest %s and %s; %s", c.Removed, before, digest(), c.Now.Problems)
	}
	if r.Load(); len(changes) > 0 {
		t.Error("a third load changed something")
	}
}

package mcpclient

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/internal/secret"
)

// TestLocate: a state directory that was asked for by name is not replaced by whatever answers on the usual port.
func TestLocate(t *testing.T) {
	dir, err := statedir.CreateDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const usual, other = "http://127.0.0.1:8080/mcp", "http://127.0.0.1:9999/mcp"
	if p, err := LocateServer(t.Context(), Config{State: dir, Fallback: usual}); err != nil || p.URL != usual || p.State != nil {
		t.Errorf("without a choice: %+v, %v", p, err)
	}
	if p, err := LocateServer(t.Context(), Config{State: dir, URL: other}); err != nil || p.URL != other {
		t.Errorf("a URL: %+v, %v", p, err)
	}
	p, err := LocateServer(t.Context(), Config{State: dir})
	if !errors.Is(err, statedir.ErrNotRunning) || !strings.Contains(err.Error(), "codeforge up --state "+dir.Path()) {
		t.Errorf("a state directory by name: %+v, %v", p, err)
	}
}

// TestNoSocket: where the state directory has no socket, or none of its folders, it is certain that nothing was sent.
func TestNoSocket(t *testing.T) {
	dir, err := statedir.CreateDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"no socket", "no folder"} {
		p := Place{State: &dir, URL: socketURL}
		resp, err := p.newClient(secret.Value{}).Get(p.URL)
		if err == nil {
			_ = resp.Body.Close()
		}
		if !isUnsent(err) {
			t.Errorf("%s: %v", what, err)
		}
		if err := os.RemoveAll(dir.Join("run")); err != nil {
			t.Fatal(err)
		}
	}
}

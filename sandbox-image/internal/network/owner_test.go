package network

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

func TestSuccessor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "owner")
	if err := AnnounceNamespace(path); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	done := make(chan struct{})
	go func() { AwaitSuccessor(ctx, path); close(done) }()
	select {
	case <-done:
		t.Fatal("our own namespace is taken for another one")
	case <-time.After(2 * pollEvery):
	}
	if err := os.WriteFile(path, []byte("net:[1]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	<-done
	if ctx.Err() != nil {
		t.Error("the successor is not seen")
	}
	ctx, cancel = context.WithTimeout(t.Context(), pollEvery)
	defer cancel()
	AwaitSuccessor(ctx, filepath.Join(t.TempDir(), "none")) // ends with ctx
}

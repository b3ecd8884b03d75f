package apidoc

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"

	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// stuck is a Source that never answers.
type stuck struct{}

func (stuck) OpenOperations(ctx context.Context, _ string) (io.ReadCloser, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestWaitsForNobody: who starts and who asks does not wait for documents that are still being read.
func TestWaitsForNobody(t *testing.T) {
	l := NewLibrary(stuck{}, slog.New(slog.DiscardHandler))
	done := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	go func() { defer close(done); l.Run(ctx) }()
	for i := range 10 {
		l.Follow(proxyapi.Catalog{Version: fmt.Sprint(i), APIs: []proxyapi.API{{Name: "shop", Operations: fmt.Sprint(i)}}})
	}
	now, cancel := context.WithCancel(t.Context())
	cancel()
	if docs := l.WaitForDocuments(now); len(docs) > 0 || !l.IsBehind() {
		t.Errorf("%v, behind %v", docs, l.IsBehind())
	}
	stop()
	<-done
}

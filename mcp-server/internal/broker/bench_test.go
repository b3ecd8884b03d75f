package broker

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// BenchmarkCall is a call through broker and bridge, without a sandbox or a proxy; BenchmarkDirect is the same call by
// the SDK's client.
func BenchmarkCall(b *testing.B) {
	api := proxyapi.API{Name: "a", Server: &mcpserver.Settings{Command: []string{fakepeers.BuildHostile(b)}, TimeoutMS: 60_000, ConnectTimeoutMS: 30_000, IdleMS: 600_000, MaxConcurrent: 8, State: "shared"}}
	br := newQuiet(Config{
		Launcher: &local{t: b, slots: 1, open: map[*localSlot]bool{}},
		Catalog:  func() proxyapi.Catalog { return proxyapi.Catalog{Version: "1", APIs: []proxyapi.API{api}} },
		Log:      logline.New(b.Output(), "text", nil),
	})
	defer br.Close(context.Background())
	call := func() {
		r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/a/echo", strings.NewReader(`{"text":"hi"}`))
		r.Header.Set(proxyapi.HeaderRun, "r1")
		w := httptest.NewRecorder()
		if br.ServeHTTP(w, r); w.Code != http.StatusOK {
			b.Fatal(w.Body)
		}
	}
	call()
	b.Run("one after the other", func(b *testing.B) {
		for b.Loop() {
			call()
		}
	})
	b.Run("at once", func(b *testing.B) {
		b.SetParallelism(4)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				call()
			}
		})
	})
}

func BenchmarkDirect(b *testing.B) {
	client := mcp.NewClient(&mcp.Implementation{Name: "bench"}, nil)
	cs, err := client.Connect(b.Context(), &mcp.CommandTransport{Command: exec.CommandContext(b.Context(), fakepeers.BuildHostile(b))}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer cs.Close()
	for b.Loop() {
		if _, err := cs.CallTool(b.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]string{"text": "hi"}}); err != nil {
			b.Fatal(err)
		}
	}
}

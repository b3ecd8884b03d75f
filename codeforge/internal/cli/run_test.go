package cli

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/codeforge/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestInterruptedAfterRun: Ctrl-C after a run has ended does not hide its result.
func TestInterruptedAfterRun(t *testing.T) {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	type in struct {
		Code string `json:"code"`
	}
	type call = mcp.CallToolRequest
	mcp.AddTool(s, &mcp.Tool{Name: "execute_code"}, func(context.Context, *call, in) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{
			Meta:    mcp.Meta{"codeforge/exit": map[string]any{"reason": "exited"}},
			Content: []mcp.Content{&mcp.TextContent{Text: "printed\n"}},
		}, nil, nil
	})
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
	ctx, interrupt := context.WithCancel(t.Context())
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete { // the session is over
			interrupt()
		}
		h.ServeHTTP(w, r)
	}))
	defer srv.Close()
	dir := t.TempDir()
	script := filepath.Join(dir, "a.ts")
	testkit.Must(t, os.WriteFile(script, []byte("console.log('printed')"), 0o600))
	out, err := os.Create(filepath.Join(dir, "out"))
	testkit.Must(t, err)
	defer out.Close()
	code := Run(ctx, &Env{
		Args: []string{"run", script}, Environ: []string{"CODEFORGE_URL=" + srv.URL, "HOME=" + dir}, home: dir,
		Stdin: os.Stdin, Stdout: terminal.Open(out), Stderr: terminal.Open(os.Stderr),
	})
	text, err := os.ReadFile(out.Name())
	if ctx.Err() == nil || code != 0 || string(text) != "printed\n" || err != nil {
		t.Errorf("exit code %d, %q, %v; interrupted: %v", code, text, err, ctx.Err())
	}
}

package main

import (
	"context"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// BenchmarkCall measures what mcp-server adds to a call over HTTP: of a tool that does nothing else, and of
// execute_code with a sandbox and a proxy that answer at once.
func BenchmarkCall(b *testing.B) {
	p := start(b, 8, nil)
	p.sandbox.Script = func(_ context.Context, _ sandboxapi.RunRequest, emit func(sandboxapi.Event)) sandboxapi.Exit {
		emit(sandboxapi.Event{Stdout: "1\n"})
		return sandboxapi.Exit{Reason: sandboxapi.Exited}
	}
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		c := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
		s, err := c.Connect(b.Context(), &mcp.StreamableClientTransport{Endpoint: p.url()}, &mcp.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			b.Fatal(err)
		}
		for tool, args := range map[string]any{"get_instructions": map[string]any{}, "execute_code": map[string]any{"code": "console.log(1)"}} {
			b.Run(version+"/"+tool, func(b *testing.B) {
				for b.Loop() {
					if _, err := s.CallTool(b.Context(), &mcp.CallToolParams{Name: tool, Arguments: args}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		_ = s.Close()
	}
}

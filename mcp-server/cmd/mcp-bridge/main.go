// Command mcp-bridge is the MCP client in a server slot. It exchanges frames (package bridgewire) on its standard input
// and output. It connects the server that the first frame names, and ends with its input or with the server.
//
// sandboxd starts it as the slot's user. See package bridge.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/codeforge-mcp/codeforge/internal/version"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridge"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// gcPercent trades a few megabytes for time: answers are read with large buffers that soon become garbage.
const gcPercent = 400

func main() {
	debug.SetGCPercent(gcPercent)
	// Each message passes through several goroutines. On one processor they pass it on without waking each other's
	// threads, which would take longer than the work.
	runtime.GOMAXPROCS(1)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := runBridge(ctx, os.Environ(), os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mcp-bridge:", err)
		os.Exit(1)
	}
}

// runBridge is the program without its process.
func runBridge(ctx context.Context, env []string, stdin io.Reader, stdout io.Writer) error {
	return bridge.New(bridge.Config{
		In: stdin, Out: stdout, Env: env, Programs: sandboxapi.ProgramsDir, Version: version.Version,
	}).Run(ctx)
}

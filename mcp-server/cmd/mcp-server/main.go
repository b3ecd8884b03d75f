// Command mcp-server serves CodeForge to MCP clients: over Streamable HTTP, on addresses and a unix socket.
//
//	mcp-server --listen 127.0.0.1:8080 --sandbox unix:SOCKET|docker:SHIM:CONTAINER --control SOCKET --skills DIR
//	           [--also-listen ADDR] [--socket SOCKET] [--history DIR] [--pins DIR]
//	           [--owner-uid N] [--drain TIME]
//	mcp-server --sandbox kubernetes:NAMESPACE/SERVICE --identity DIR ...   in a cluster, without --control
//	mcp-server health --listen ADDR [--linger TIME]
//	mcp-server settings
//	mcp-server move [--history DIR] [--skills DIR] [--tenants DIR] [--pins DIR] postgres|sqlite
//
// settings checks the settings of all parts and ends: in Docker, before any of them starts.
//
// move copies the state between files and the Postgres of DATABASE_URL, for codeforge state move.
//
// Settings come from the environment (package internal/settings). It also reads CODEFORGE_CONTAINER. 1 means a
// container whose port is published only on the host's loopback address. kubernetes means a pod.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/codeforge-mcp/codeforge/internal/health"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	go paceCollector(ctx, paceEvery)
	err := runServer(ctx, os.Args[1:], os.Getenv, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mcp-server:", err)
		health.HoldUntilStopped(ctx, err)
		stop()
		os.Exit(1)
	}
	stop()
}

// runServer is the program without signals, environment and exit code.
func runServer(ctx context.Context, args []string, getenv func(string) string, stderr io.Writer) error {
	if len(args) > 0 && args[0] == "health" {
		return checkHealth(ctx, args[1:], stderr)
	}
	if len(args) == 1 && args[0] == "settings" {
		return checkSettings(getenv)
	}
	if len(args) > 0 && args[0] == "move" {
		return moveState(ctx, args[1:], getenv, os.Stdout, stderr)
	}
	f, err := parseFlags(args, getenv, stderr)
	if err != nil {
		return err
	}
	d, err := newDaemon(ctx, f, getenv, stderr)
	if err != nil {
		return health.CannotStart(err)
	}
	return d.serveUntilDone(ctx)
}

// Command codeforge is the command line of CodeForge. It runs the embedded mode, talks to a running server, and helps
// with apis/. codeforge help lists the commands.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/codeforge-mcp/codeforge/cli/internal/cli"
	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
)

func main() {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores SIGHUP
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	// A second Ctrl-C ends the process at once.
	context.AfterFunc(ctx, stop)
	code := cli.Run(ctx, &cli.Env{
		Program: os.Args[0], Args: os.Args[1:], Environ: os.Environ(),
		Stdin: os.Stdin, Stdout: terminal.NewStream(os.Stdout), Stderr: terminal.NewStream(os.Stderr),
	})
	stop()
	os.Exit(code)
}

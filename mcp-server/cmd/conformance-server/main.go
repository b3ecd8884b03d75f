// Command conformance-server serves the fixtures of the MCP conformance suite over the transport of mcp-server. It is
// for tests only and is not shipped.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/conformance"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/endpoint"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/guard"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/transport"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := serveFixtures(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance-server:", err)
		os.Exit(1)
	}
}

// serveFixtures serves until ctx ends.
func serveFixtures(ctx context.Context, args []string, stderr io.Writer) error {
	set := flag.NewFlagSet("conformance-server", flag.ContinueOnError)
	set.SetOutput(stderr)
	listen := set.String("listen", "127.0.0.1:0", "address, host:port")
	if err := set.Parse(args); err != nil {
		return err
	}
	log := logline.New(stderr, "text", nil)
	mcp := transport.New(transport.Config{Server: conformance.New(ctx, log), Log: log})
	e, err := endpoint.OpenEndpoint(ctx, endpoint.Config{
		Listen: []string{*listen}, Guard: guard.New(guard.Config{}), UIDs: []int{os.Getuid()}, MCP: mcp, Log: log,
		Ready: func(context.Context) error { return nil }, Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "listening http://%s/mcp\n", e.ListAddrs()[0])
	ended := make(chan error, 1)
	go func() { ended <- e.Serve() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	mcp.Close(stopping)
	e.Close(stopping)
	return err
}

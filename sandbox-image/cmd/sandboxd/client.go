package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"

	"github.com/codeforge-mcp/codeforge/internal/health"
	"github.com/codeforge-mcp/codeforge/internal/stdiorelay"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/endpoint"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

func parseSocket(flags *flag.FlagSet, args []string) (string, error) {
	flags.SetOutput(io.Discard)
	socket := flags.String("socket", "", "")
	if err := flags.Parse(args); err != nil {
		return "", err
	}
	if *socket == "" || flags.NArg() > 0 {
		return "", fmt.Errorf("%s: want only --socket SOCKET", flags.Name())
	}
	return *socket, nil
}

func dialSocket(ctx context.Context, socket string) (net.Conn, error) {
	conn, err := endpoint.DialOwner(ctx, socket)
	if err != nil {
		return nil, fmt.Errorf("reaching sandboxd: %w", err)
	}
	return conn, nil
}

// attachStdio relays one connection to sandboxd. docker-shim starts it for mcp-server.
func attachStdio(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	socket, err := parseSocket(flag.NewFlagSet("attach", flag.ContinueOnError), args)
	if err != nil {
		return err
	}
	conn, err := dialSocket(ctx, socket)
	if err != nil {
		return err
	}
	stdiorelay.RelayConn(ctx, conn, stdin, stdout)
	return nil
}

func checkHealth(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("health", flag.ContinueOnError)
	linger := flags.Duration("linger", 0, "")
	socket, err := parseSocket(flags, args)
	if err != nil {
		return err
	}
	client := sandboxapi.NewClient(sandboxapi.ClientConfig{
		Dial: func(ctx context.Context) (net.Conn, error) { return dialSocket(ctx, socket) },
	})
	defer client.Close()
	var h sandboxapi.Health
	err = health.Check(ctx, *linger, func(ctx context.Context) error {
		if h, err = client.Health(ctx); err != nil {
			return err
		}
		if !h.Ready {
			return fmt.Errorf("not ready: %s", h.Problem)
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "ready: %d slots, Deno %s\n", h.Slots, h.Deno)
	return err
}

// Command docker-shim lets mcp-server start `sandboxd attach` in the sandbox's container. It allows no other use of the
// Docker engine. Package shim explains the checks.
//
//	docker-shim --listen SOCKET --engine unix:///var/run/docker.sock --container NAME_OF_SANDBOX
//	docker-shim health --listen SOCKET [--linger TIME]
//
// health exits 0 if the shim answers and reaches the engine. LOG_FORMAT=json selects JSON logs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/moby/moby/client"

	"github.com/codeforge-mcp/codeforge/internal/health"
	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/unixsocket"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/shim"
)

// socketMode gives access to the shim's user and group, which mcp-server belongs to.
const socketMode = 0o660

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := runShim(ctx, os.Args[1:], os.Getenv, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "docker-shim:", err)
		health.HoldUntilStopped(ctx, err)
		os.Exit(1)
	}
}

// runShim is the program without its process.
func runShim(ctx context.Context, args []string, getenv func(string) string, stderr io.Writer) error {
	check := len(args) > 0 && args[0] == "health"
	if check {
		args = args[1:]
	}
	flags := flag.NewFlagSet("docker-shim", flag.ContinueOnError)
	flags.SetOutput(stderr)
	listen := flags.String("listen", "/run/codeforge/shim/docker.sock", "unix socket to answer on")
	engine := flags.String("engine", client.DefaultDockerHost, "address of the Docker engine")
	stay, container := new(time.Duration), new(string)
	if check {
		stay = flags.Duration("linger", 0, "keep checking for this long")
	} else {
		container = flags.String("container", "", "name of the sandbox's container (required)")
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if check {
		return checkHealth(ctx, *listen, *stay)
	}
	if *container == "" {
		return health.CannotStart(errors.New("--container is required"))
	}
	log := logline.New(stderr, getenv("LOG_FORMAT"), nil).With(logline.Tag("shim"))
	s, err := shim.New(shim.Config{Engine: *engine, Spec: shim.SandboxSpec(*container), Log: log})
	if err != nil {
		return health.CannotStart(err)
	}
	l, err := unixsocket.Listen(ctx, *listen, socketMode)
	if err != nil {
		return health.CannotStart(err)
	}
	log.Info("ready", "listen", *listen, "engine", *engine)
	return s.Serve(ctx, l)
}

// checkHealth asks a running shim whether it reaches the engine.
func checkHealth(ctx context.Context, socket string, stay time.Duration) error {
	api, err := client.New(client.WithHost("unix://" + socket))
	if err != nil {
		return err
	}
	defer api.Close()
	return health.Check(ctx, stay, func(ctx context.Context) error {
		if _, err := api.Ping(ctx, client.PingOptions{}); err != nil {
			return fmt.Errorf("no answer from the engine through %s: %w", socket, err)
		}
		return nil
	})
}

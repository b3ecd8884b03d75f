package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/health"
	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/privilege"
	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/network"
)

// holdNetwork sets up the network namespace, gives up the capability for that, and waits. With --check, as another
// process of the container, it checks that all this is so.
func holdNetwork(ctx context.Context, args []string, getenv func(string) string, stderr io.Writer) error {
	s, err := settings.Parse(getenv)
	if err != nil {
		return err
	}
	flags := flag.NewFlagSet("hold", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	check := flags.Bool("check", false, "")
	stay := flags.Duration("linger", 0, "")
	announce := flags.String("announce", "", "")
	slots := flags.Int("slots", s.Slots, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *slots < 1 || flags.NArg() > 0 {
		return fmt.Errorf("hold: want [--check [--linger TIME]] [--slots N] [--announce FILE] and nothing else")
	}
	if *check {
		return checkNetwork(ctx, *slots, *stay)
	}
	log := logline.New(stderr, s.LogFormat, nil).With(logline.Tag("sandbox"))
	if err := network.SetUp(*slots); err != nil {
		return err
	}
	if err := privilege.Drop(); err != nil {
		return err
	}
	if *announce != "" {
		if err := network.Announce(*announce); err != nil {
			return fmt.Errorf("announcing the network: %w", err)
		}
	}
	log.Info("the network of the slots is set up and checked; capabilities are dropped", "slots", *slots)
	<-ctx.Done()
	return nil
}

// checkNetwork looks at everything once, and then, for what only the engine can change, at the interface.
func checkNetwork(ctx context.Context, slots int, stay time.Duration) error {
	if err := privilege.Check(1); err != nil {
		return err
	}
	if err := network.Look(slots); err != nil {
		return err
	}
	return health.Check(ctx, stay, func(context.Context) error { return network.Present() })
}

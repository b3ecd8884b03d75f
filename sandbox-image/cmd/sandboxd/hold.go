package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/health"
	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/privilege"
	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/network"
)

// holdNetwork sets up the network namespace, drops NET_ADMIN, and waits. With --check, as a second process of the
// container, it only verifies the namespace. With --pod it runs as a pod's init container: it sets up the pod's
// namespace and ends.
func holdNetwork(ctx context.Context, args []string, getenv func(string) string, stderr io.Writer) error {
	s, err := settings.Parse(getenv)
	if err != nil {
		return err
	}
	flags := flag.NewFlagSet("hold", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	check := flags.Bool("check", false, "")
	linger := flags.Duration("linger", 0, "")
	announce := flags.String("announce", "", "")
	var ports []uint16
	pod := flags.Bool("pod", false, "")
	flags.Func("port", "", func(text string) error {
		port, err := strconv.ParseUint(text, 10, 16)
		ports = append(ports, uint16(port))
		return err
	})
	size := network.Size{Network: s.Network}
	flags.IntVar(&size.Runs, "slots", s.Slots, "")
	flags.IntVar(&size.Servers, "servers", s.Servers, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if size.Runs < 1 || size.Servers < 0 || flags.NArg() > 0 {
		return fmt.Errorf("hold: want only [--check [--linger TIME]] [--pod [--port N]...] [--slots N] [--servers N] " +
			"[--announce FILE]")
	}
	if *pod {
		return network.SetUpPod(network.Pod{Size: size, ProxyGID: slot.ServiceUID, Ports: ports})
	}
	if *check {
		return checkNetwork(ctx, size, *linger)
	}
	log := logline.New(stderr, s.LogFormat, nil).With(logline.Tag("sandbox"))
	if err := network.SetUp(size); err != nil {
		return err
	}
	if err := privilege.DropCapabilities(); err != nil {
		return err
	}
	if *announce != "" {
		if err := network.AnnounceNamespace(*announce); err != nil {
			return fmt.Errorf("announcing the network: %w", err)
		}
	}
	log.Info("the network of the slots is set up and checked; capabilities are dropped",
		"slots", size.Runs, "servers", size.Servers)
	<-ctx.Done()
	return nil
}

// checkNetwork verifies the whole namespace once. Until linger has passed it then checks only the interface. No process
// without a restart of this container can change the rest.
func checkNetwork(ctx context.Context, size network.Size, linger time.Duration) error {
	verified := false
	return health.Check(ctx, linger, func(context.Context) error {
		if verified {
			return network.CheckInterface(size.Network)
		}
		err := privilege.CheckCapabilities(1)
		if err == nil {
			err = network.VerifyQuick(size)
		}
		verified = err == nil
		return err
	})
}

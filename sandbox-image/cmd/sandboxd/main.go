// Command sandboxd owns the slots of the sandbox and runs code in them.
//
//	sandboxd serve --mode embedded|container --socket SOCKET --deno PATH --ca FILE --runs DIR --skills DIR --tmp DIR
//	               --state DIR [--slots N] [--warm N] [--memory BYTES] [--skills-readonly] [--bwrap PATH] [--code DIR] [--owner FILE]
//	sandboxd attach --socket SOCKET                   hands stdio to serve, and stays as long as that uses it
//	sandboxd health --socket SOCKET [--linger TIME]   exits 0 when runs can be served
//	sandboxd hold [--announce FILE]                   owns the network namespace of the container, and does nothing else
//	sandboxd hold --check [--linger TIME]             exits 0 when that is so
//
// What the command line of serve leaves out is as SANDBOX_SLOTS, SANDBOX_WARM, SANDBOX_MEMORY and SKILLS_READONLY say;
// TZ and LOG_FORMAT are read too.
//
// Its directories: --state keeps the last generation. --code (code/ in --state when not given) has the private files of
// slots; in the container its path is what code sees as its own. --owner is the file
// in which hold announces the namespace. The directory of
// --socket must have mode 0700 and belong to mcp-server's user: slot.ServiceUID in the container, slot.ServerUID
// embedded under root, the user itself otherwise; a missing one is made so. In the container serve is process 1, as root with SETUID, SETGID and KILL.
//
// It starts itself as "sandboxd enter" (the last step before a program of a slot), "sandboxd stage" (mounts what
// embedded sandboxes are made of), "sandboxd reap", "sandboxd wipe" and "sandboxd unnamed" (end processes, remove files, add
// up those that have no name, as a slot's user).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/enter"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandboxd:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, getenv func(string) string, stdin, stdout, stderr *os.File) error {
	if len(args) == 0 {
		return errors.New("want a command: serve, attach, health, hold or enter")
	}
	command, args := args[0], args[1:]
	switch command {
	case "serve":
		return serve(ctx, args, getenv, stderr)
	case "attach":
		return attachStdio(ctx, args, stdin, stdout)
	case "health":
		return checkHealth(ctx, args, stdout)
	case "hold":
		return holdNetwork(ctx, args, getenv, stderr)
	case "enter":
		plan, err := enter.Parse(args)
		if err != nil {
			return err
		}
		return plan.Exec()
	case "stage":
		return enter.ServeStage(args, stdin, stdout)
	case "reap":
		return reap()
	case "unnamed":
		return unnamed(args, stdout)
	case "wipe":
		return wipe(args)
	}
	return fmt.Errorf("unknown command %q: want serve, attach, health, hold or enter", strings.ToValidUTF8(command, "?"))
}

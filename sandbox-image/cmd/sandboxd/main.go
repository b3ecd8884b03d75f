// Command sandboxd owns the slots of the sandbox and runs code in them.
//
//	sandboxd serve --mode embedded|container --socket SOCKET --deno PATH --ca FILE --runs DIR --skills DIR --tmp DIR
//	               --state DIR [--slots N] [--warm N] [--memory BYTES] [--skills-readonly] [--bwrap PATH]
//	               [--code DIR] [--owner FILE] [--servers N] [--server-memory BYTES] [--bridge PATH]
//	               [--packages DIR] [--programs DIR] [--typescript DIR] [--uv PATH]
//	               [--listen ADDR --identity DIR] [--drain TIME] [--health ADDR --authority ADDR [--closed ADDR]]
//	sandboxd attach --socket SOCKET                   relays its stdio to serve until either side ends it
//	sandboxd health --socket SOCKET [--linger TIME]   exits 0 when runs can be served
//	sandboxd hold [--announce FILE]                   sets up and owns the network namespace of the container
//	sandboxd hold --check [--linger TIME]             exits 0 when that namespace is set up
//	sandboxd hold --pod [--port N]...                 sets up the namespace of a pod, and ends
//
// The defaults of the options are in SANDBOX_SLOTS, SANDBOX_WARM, SANDBOX_MEMORY, SANDBOX_SERVERS,
// SANDBOX_SERVER_MEMORY, CANARIES and SKILLS_READONLY. TZ and LOG_FORMAT are read too.
//
// Directories of serve:
//
//   - --state keeps the last generation.
//   - --code (default: code/ in --state) has the private files of the slots. In the container, code sees this path.
//   - --packages (default: packages/ in --state) has the installed packages of MCP servers. In the container it is
//     /packages.
//   - --programs has the operator's programs. In the container it is /programs.
//   - --owner is the file in which hold announces the network namespace.
//   - The directory of --socket must have mode 0700 and belong to mcp-server's user: slot.ServiceUID in the container,
//     slot.ServerUID embedded under root, otherwise the user who started it. A missing directory is created that way.
//
// In a pod mcp-server connects to --listen, with the certificates in --identity (package internal/mtls). On SIGTERM
// serve refuses new leases and waits up to --drain for runs to end.
//
// In the container serve is process 1: root with SETUID, SETGID and KILL. With --authority its pod shares a proxy with
// other pods, and serve is not root. It then:
//
//   - has one slot, which runs as the same user
//   - fetches the certificate of the proxy's authority from --authority
//   - answers the kubelet at --health
//   - is not ready while it can connect to --closed, an address that no sandbox may reach
//
// serve starts itself with other commands. Package enter carries out the first two:
//
//   - "sandboxd enter" is the last step before a program of a slot.
//   - "sandboxd stage" mounts the files for embedded sandboxes.
//   - As the user of a slot: "sandboxd reap" kills processes, "sandboxd wipe" removes files, "sandboxd share" makes
//     files readable for their group, "sandboxd unnamed" adds up open files that were removed, "sandboxd usage" adds up
//     a directory, and "sandboxd written" adds up the files of a directory that were written since a time.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/codeforge-mcp/codeforge/internal/health"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandboxd:", err)
		health.HoldUntilStopped(ctx, err)
		stop()
		os.Exit(1)
	}
	stop()
}

func run(ctx context.Context, args []string, getenv func(string) string, stdin, stdout, stderr *os.File) error {
	if len(args) == 0 {
		return errors.New("want a command: serve, attach, health or hold")
	}
	command, args := args[0], args[1:]
	switch command {
	case "serve":
		return serveRuns(ctx, args, getenv, stderr)
	case "attach":
		return attachStdio(ctx, args, stdin, stdout)
	case "health":
		return checkHealth(ctx, args, stdout)
	case "hold":
		return health.CannotStart(holdNetwork(ctx, args, getenv, stderr))
	case "reap":
		return killOwnProcesses()
	case "unnamed":
		return printRemovedBytes(args, stdout)
	case "usage":
		return printUsage(args, stdout)
	case "written":
		return printWritten(args, stdout)
	case "share":
		return shareFolder(args)
	case "wipe":
		return wipeFolder(args)
	}
	return fmt.Errorf("unknown command %q: want serve, attach, health or hold", strings.ToValidUTF8(command, "?"))
}

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strconv"
	"syscall"

	"github.com/codeforge-mcp/codeforge/internal/health"
	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/attach"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/endpoint"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

// dial parses --socket, and what else the command has, and connects.
func dial(ctx context.Context, flags *flag.FlagSet, args []string) (net.Conn, error) {
	command := flags.Name()
	flags.SetOutput(io.Discard)
	socket := flags.String("socket", "", "")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if *socket == "" || flags.NArg() > 0 {
		return nil, fmt.Errorf("%s: want --socket SOCKET and nothing else", command)
	}
	conn, err := endpoint.Dial(ctx, *socket)
	if err != nil {
		return nil, fmt.Errorf("reaching sandboxd: %w", err)
	}
	return conn, nil
}

func attachStdio(ctx context.Context, args []string, stdin, stdout *os.File) error {
	conn, err := dial(ctx, flag.NewFlagSet("attach", flag.ContinueOnError), args)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	err = attach.Hand(conn.(*net.UnixConn), stdin, stdout)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func checkHealth(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("health", flag.ContinueOnError)
	stay := flags.Duration("linger", 0, "")
	conn, err := dial(ctx, flags, args)
	if err != nil {
		return err
	}
	client := runapi.NewClient(runapi.ClientConfig{Dial: func(context.Context) (net.Conn, error) { return conn, nil }})
	defer client.Close()
	var h runapi.Health
	err = health.Check(ctx, *stay, func(ctx context.Context) error {
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

// reap ends every process of this process's user, itself aside.
func reap() error {
	if os.Getuid() == 0 {
		return errors.New("reap: not as root")
	}
	if err := syscall.Kill(-1, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("reap: %w", err)
	}
	return nil
}

// unnamed prints what this process's user holds in open files of a file system that no directory names, in bytes.
func unnamed(args []string, stdout io.Writer) error {
	if len(args) != 1 {
		return errors.New("unnamed: want the number of a device")
	}
	device, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil {
		return fmt.Errorf("unnamed: %w", err)
	}
	pids, _, err := proc.OfUser(os.Getuid(), func(pid int) bool { return pid == os.Getpid() })
	if err != nil {
		return fmt.Errorf("unnamed: %w", err)
	}
	_, err = fmt.Fprint(stdout, proc.Unnamed(pids, device))
	return err
}

// wipe empties a directory below another one as this process's user, also where that user has closed its own
// directories. No link leads out of the one above.
func wipe(args []string) error {
	if os.Getuid() == 0 || len(args) != 2 {
		return errors.New("wipe: want a directory and one below it, and not as root")
	}
	above, err := os.OpenRoot(args[0])
	if err != nil {
		return err
	}
	defer above.Close()
	_ = above.Chmod(args[1], 0o700) // if it is this user's
	root, err := above.OpenRoot(args[1])
	if err != nil {
		return err
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && path != "." {
			_ = root.Chmod(path, 0o700) // before it is read: WalkDir calls for a directory first
		}
		return nil
	})
	if err != nil {
		return err
	}
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	errs := []error{err}
	for _, name := range names {
		errs = append(errs, root.RemoveAll(name))
	}
	return errors.Join(errs...)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/history"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/operator"
)

// openHistory opens the store of runs.
func (d *daemon) openHistory() {
	c := history.Config{
		Dir: d.flags.history, Mode: d.settings.History, Clean: newRedactor(d.settings.RedactingStrings),
		Scrub: d.control.ScrubTexts, ScrubFile: d.control.ScrubFile, Database: d.database, Log: d.log,
		Cancel: func(run string) bool { return d.executor.StopRun(run) }, // the executor does not exist yet
	}
	d.history = history.OpenStore(c)
}

// serveHistory is `mcp-server history`. It answers requests about a folder's stored runs on its standard input, which
// is a socket.
func serveHistory(ctx context.Context, dir string, stdin *os.File) error {
	conn, err := net.FileConn(stdin)
	if err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	dir, remove, err := makeReadableCopy(dir)
	if err != nil {
		return err
	}
	defer remove()
	s, err := history.OpenForReading(dir)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	server := http.Server{
		Handler: operator.HistoryHandler(s), ReadHeaderTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	if err := server.Serve(rpc.ListenOnce(conn)); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// makeReadableCopy returns a folder in which this process may open the store. That is the folder itself, unless root
// reads a folder of mcp-server's user. SQLite would create files there that mcp-server could not open. It would also
// follow symbolic links from a hostile mcp-server. So root works on a copy.
func makeReadableCopy(dir string) (path string, remove func(), err error) {
	//nolint:gosec // a path that the operator gives on the command line
	info, err := os.Stat(dir)
	if err != nil {
		return "", nil, fmt.Errorf("reading the history: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 || stat.Uid == 0 {
		return dir, func() {}, nil
	}
	copied, err := os.MkdirTemp("", "codeforge-history-")
	if err != nil {
		return "", nil, fmt.Errorf("reading the history: %w", err)
	}
	remove = func() { _ = os.RemoveAll(copied) }
	// The write-ahead log may have the latest runs.
	for _, name := range []string{database.Name, database.Name + "-wal"} {
		err := copyFile(filepath.Join(dir, name), filepath.Join(copied, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			remove()
			return "", nil, fmt.Errorf("reading the history: %w", err)
		}
	}
	return copied, remove, nil
}

func copyFile(from, to string) error {
	// O_NOFOLLOW refuses a symbolic link, and O_NONBLOCK keeps a FIFO from blocking the open.
	//nolint:gosec // a path that the operator gives on the command line
	in, err := os.OpenFile(from, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	// A special file that a hostile mcp-server made could block the copy or give it no end.
	if info, err := in.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, fmt.Errorf("%s is not a regular file", from))
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

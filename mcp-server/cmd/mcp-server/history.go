package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/history"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/operator"
)

// serveHistory is `mcp-server history`: it answers requests on its standard input, which is a socket, with what is kept in
// a folder.
func serveHistory(ctx context.Context, dir string, stdin *os.File) error {
	conn, err := net.FileConn(stdin)
	if err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	if err := becomeOwner(filepath.Join(dir, history.Name)); err != nil {
		return err
	}
	s, err := history.Read(dir)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	ended := make(chan struct{})
	server := http.Server{
		Handler: operator.History(s), ReadHeaderTimeout: time.Minute, BaseContext: func(net.Listener) context.Context { return ctx },
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				close(ended)
			}
		},
	}
	err = server.Serve(&once{conn: conn, ended: ended})
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// becomeOwner makes this process that of the file's owner, if root has started it: SQLite may have to make files beside
// it, and mcp-server must be able to open these.
func becomeOwner(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("reading what is kept of runs: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Getuid() != 0 || stat.Uid == 0 {
		return nil
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(int(stat.Gid)), syscall.Setuid(int(stat.Uid))); err != nil {
		return fmt.Errorf("becoming the owner of %s: %w", path, err)
	}
	return nil
}

// once is a listener with one connection. It ends with that.
type once struct {
	mu    sync.Mutex
	conn  net.Conn
	ended chan struct{}
}

// Accept implements net.Listener.
func (l *once) Accept() (net.Conn, error) {
	l.mu.Lock()
	conn := l.conn
	l.conn = nil
	l.mu.Unlock()
	if conn != nil {
		return conn, nil
	}
	<-l.ended
	return nil, io.EOF
}

// Close implements net.Listener.
func (l *once) Close() error { return nil }

// Addr implements net.Listener.
func (l *once) Addr() net.Addr { return address{} }

// address is that of standard input.
type address struct{}

func (address) Network() string { return "stdin" }
func (address) String() string  { return "stdin" }

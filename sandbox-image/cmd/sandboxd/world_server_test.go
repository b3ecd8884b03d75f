package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

var puppet struct {
	once sync.Once
	path string
	err  error
}

// BuildPuppet builds, once for all tests of the process, a bridge that executes the commands of its input.
func BuildPuppet(t testing.TB) string {
	t.Helper()
	dir := filepath.Dir(BuildBinary(t))
	puppet.once.Do(func() {
		puppet.path = filepath.Join(dir, "puppet")
		cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", puppet.path, "./testdata/puppet")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			puppet.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if puppet.err != nil {
		t.Fatal(puppet.err)
	}
	return puppet.path
}

// Server is a puppet in the slot of a lease.
type Server struct {
	sandboxapi.Lease
	*sandboxapi.Stream
	lines *bufio.Reader
}

// StartServer starts a puppet, and ends it with the test.
func (w *World) StartServer(t testing.TB, h sandboxapi.ServerHead) *Server {
	t.Helper()
	s, err := w.TryServer(t, h)
	if err != nil {
		t.Fatalf("server: %v\nsandboxd:\n%s", err, w.log)
	}
	return s
}

// TryServer is Server for starts that may fail.
func (w *World) TryServer(t testing.TB, h sandboxapi.ServerHead) (*Server, error) {
	t.Helper()
	l, err := w.Client.AcquireServer(context.Background())
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		err := w.Client.Release(context.Background(), l.Generation)
		if err != nil && !errors.Is(err, sandboxapi.ErrLeaseGone) {
			t.Error(err)
		}
	})
	s, err := w.Client.StartServer(context.Background(), l.Generation, h)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = s.Close() })
	return &Server{Lease: l, Stream: s, lines: bufio.NewReader(s)}, nil
}

// SendCommand sends a command to the puppet and returns the result.
func (s *Server) SendCommand(command string) (string, error) {
	if _, err := io.WriteString(s, command+"\n"); err != nil {
		return "", err
	}
	line, err := s.lines.ReadBytes('\n')
	if err != nil {
		return "", err
	}
	var answer [2]string
	if err := json.Unmarshal(line, &answer); err != nil {
		return "", fmt.Errorf("%w: %s", err, line)
	}
	if answer[1] != "" {
		return answer[0], errors.New(answer[1])
	}
	return answer[0], nil
}

// WaitForEnd waits until the puppet has ended.
func (s *Server) WaitForEnd(t testing.TB) sandboxapi.Exit {
	t.Helper()
	timer := time.AfterFunc(30*time.Second, func() { _ = s.Close() })
	defer timer.Stop()
	if _, err := io.Copy(io.Discard, s.lines); err != nil {
		t.Fatalf("the server goes on, or its stream broke: %v", err)
	}
	e, err := s.Exit()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

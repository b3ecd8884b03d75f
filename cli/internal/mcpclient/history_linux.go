package mcpclient

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// OpenHistory returns a client of the run history in a state directory without a running CodeForge. It starts
// mcp-server from the folder bin, which reads the history. stop ends that process.
func OpenHistory(d statedir.Dir, bin string) (client operatorapi.Client, stop func(), err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return client, nil, fmt.Errorf("starting mcp-server: %w", err)
	}
	theirs, file := os.NewFile(uintptr(fds[0]), "history"), os.NewFile(uintptr(fds[1]), "history")
	defer theirs.Close()
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return client, nil, fmt.Errorf("starting mcp-server: %w", err)
	}
	var said strings.Builder
	cmd := exec.Command(filepath.Join(bin, "mcp-server"), "history", d.Join("history")) //nolint:noctx,gosec // until stop
	cmd.Stdin, cmd.Stderr = theirs, &said
	if err := cmd.Start(); err != nil {
		_ = conn.Close()
		return client, nil, fmt.Errorf("starting mcp-server, which reads stored runs: %w", err)
	}
	stop = func() {
		_ = conn.Close()
		_ = cmd.Wait() // its answers have reported any error
	}
	dialled := false
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		// The process serves exactly one connection. A second dial means that it has ended.
		if dialled {
			_ = cmd.Wait()
			return nil, fmt.Errorf("mcp-server ended: %s", strings.TrimSpace(said.String()))
		}
		dialled = true
		return conn, nil
	}}
	return operatorapi.Client{HTTP: &http.Client{Transport: transport}}, stop, nil
}

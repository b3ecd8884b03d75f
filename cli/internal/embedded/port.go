package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/codeforge-mcp/codeforge/internal/tcpsocket"
)

// ChoosePort returns the port if it is free on both loopback addresses. If want is 0, Port chooses a free one.
func ChoosePort(ctx context.Context, want int) (int, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp4", "127.0.0.1:"+strconv.Itoa(want))
	if err != nil {
		return 0, explainPort(want, err)
	}
	defer l.Close()
	got := l.Addr().(*net.TCPAddr).Port
	// mcp-server also listens on ::1, so the port must be free there too.
	l6, err := lc.Listen(ctx, "tcp6", "[::1]:"+strconv.Itoa(got))
	if errors.Is(err, syscall.EADDRINUSE) {
		return 0, explainPort(got, err)
	}
	if err == nil {
		_ = l6.Close()
	}
	return got, nil // other errors mean that the machine has no IPv6
}

// explainPort adds a remedy to the error for a port that cannot be used.
func explainPort(port int, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		user := "another program"
		if name := describeListener(port); name != "" {
			user = name
		}
		return fmt.Errorf("port %d on this machine is in use by %s: "+
			"stop it, or choose another port with --port N or MCP_PORT in .env", port, user)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("only root may listen on port %d: choose 1024 or above with --port N or MCP_PORT in .env", port)
	}
	return fmt.Errorf("listening on port %d: %w", port, err)
}

// describeListener names the process that listens on a port. It returns "" if this user may not see the process.
func describeListener(port int) string {
	links := map[string]bool{}
	for _, address := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		if s, err := tcpsocket.FindListener(netip.AddrPortFrom(address, uint16(port))); err == nil {
			links[fmt.Sprintf("socket:[%d]", s.Inode)] = true
		}
	}
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err != nil || !links[target] {
			continue
		}
		dir := filepath.Dir(filepath.Dir(fd))
		name, _ := os.ReadFile(filepath.Join(dir, "comm"))
		return fmt.Sprintf("%s (process %s)", strconv.Quote(strings.TrimSpace(string(name))), filepath.Base(dir))
	}
	return ""
}

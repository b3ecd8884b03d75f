package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// CheckPort returns the port if it is free on both loopback addresses. If want is 0, Port chooses a free one.
func CheckPort(ctx context.Context, want int) (int, error) {
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
	inodes := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table)
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			// Fields: sl local_address rem_address st ... inode. State 0A is LISTEN.
			if len(f) > 9 && f[3] == "0A" && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				inodes["socket:["+f[9]+"]"] = true
			}
		}
	}
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err != nil || !inodes[target] {
			continue
		}
		dir := filepath.Dir(filepath.Dir(fd))
		name, _ := os.ReadFile(filepath.Join(dir, "comm"))
		return fmt.Sprintf("%s (process %s)", strconv.Quote(strings.TrimSpace(string(name))), filepath.Base(dir))
	}
	return ""
}

package network

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
)

// Announce writes the name of our network namespace to the file at path. Call it when the namespace is set up.
func Announce(path string) error {
	space, err := namespace()
	if err != nil {
		return err
	}
	return atomicfile.Write(path, []byte(space+"\n"), 0o644) // read by sandboxd
}

// AwaitSuccessor waits until the file at path announces a namespace other than ours, or ctx ends. The engine restarts a
// container that shares a namespace immediately and only once, so a process that lost its namespace must not exit until
// the replacement exists.
func AwaitSuccessor(ctx context.Context, path string) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		ours, err := namespace()
		data, readErr := os.ReadFile(path)
		announced := strings.TrimSpace(string(data))
		if err == nil && readErr == nil && announced != "" && announced != ours {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// namespace is the name of our network namespace. No other namespace can have it while a process is in ours.
func namespace() (string, error) { return os.Readlink("/proc/self/ns/net") }

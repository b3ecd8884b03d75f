package network

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/atomicfile"
)

// AnnounceNamespace writes the name of this network namespace to the file at path. Call it when the namespace is set
// up.
func AnnounceNamespace(path string) error {
	space, err := namespaceName()
	if err != nil {
		return err
	}
	return atomicfile.Write(path, []byte(space+"\n"), 0o644) // read by sandboxd
}

// AwaitSuccessor waits until the file at path announces another namespace than this one, or until ctx ends. The engine
// restarts a container that shares a namespace immediately and only once. So a process that lost its namespace must not
// exit before the replacement exists.
func AwaitSuccessor(ctx context.Context, path string) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		ours, err := namespaceName()
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

// namespaceName returns the name of this network namespace. The kernel gives the name to no other namespace while a
// process is in this one.
func namespaceName() (string, error) { return os.Readlink("/proc/self/ns/net") }

package network

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"
)

// Announce writes to the file at path which network namespace this is, once it is ready for the slots.
func Announce(path string) error {
	space, err := namespace()
	if err != nil {
		return err
	}
	draft := path + ".new"
	return errors.Join(os.WriteFile(draft, []byte(space+"\n"), 0o644), os.Rename(draft, path)) //nolint:gosec // read by sandboxd
}

// Successor waits until another namespace than ours has been announced in the file at path, or ctx ends. The engine
// starts what shares a namespace again at once and only once: who has lost his must not end before there is a new one.
func Successor(ctx context.Context, path string) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		ours, err := namespace()
		data, readErr := os.ReadFile(path)
		if announced := strings.TrimSpace(string(data)); err == nil && readErr == nil && announced != "" && announced != ours {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// namespace names our network namespace. As long as a process is in it no other has that name.
func namespace() (string, error) { return os.Readlink("/proc/self/ns/net") }

package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestCloseFolders: Kubernetes makes volumes on disk with mode 777, and those in memory with mode 1777. An engine with
// runc 1.1.5 gives a tmpfs the mode of the image's folder.
// Promise: least-privilege
func TestCloseFolders(t *testing.T) {
	if os.Geteuid() != 0 {
		testkit.SkipBecause(t, "only root gives directories to a group")
	}
	for _, made := range []os.FileMode{0o755, 0o777, 0o777 | os.ModeSticky} {
		for _, listen := range []string{"", "127.0.0.1:8443"} {
			f, homes := foldersOf(t, made)
			f.listen = listen
			want := map[string]os.FileMode{f.tmp: 0o770 | os.ModeSticky, f.runs: 0o750, f.code: 0o711, homes: 0o711}
			if listen == "" {
				want[f.skills], want[f.state] = 0o770|os.ModeSetgid, made
			} else {
				want[f.skills], want[f.state], want[f.packages] = 0o750, 0o711, 0o755
				f.servers = 1
			}
			testkit.Must(t, closeFolders(f, homes))
			if info, err := os.Stat(filepath.Join(f.skills, "page-through.ts")); listen != "" && (err != nil || info.Mode() != 0o644) {
				t.Errorf("a shipped skill: %v %v", info, err)
			}
			for path, mode := range want {
				info, err := os.Stat(path)
				if err != nil || info.Mode() != mode|os.ModeDir {
					t.Errorf("%s of mode %v, listening at %q: %v %v, want %v", filepath.Base(path), made, listen, info.Mode(), err, mode)
				}
			}
			var st unix.Stat_t
			if err := unix.Stat(f.tmp, &st); err != nil || st.Gid != slot.GroupID {
				t.Errorf("the group of /tmp: %d %v", st.Gid, err)
			}
		}
	}
}

// foldersOf makes the folders of a container, all with one mode, and returns the flags that name them and the folder of
// homes.
func foldersOf(t *testing.T, mode os.FileMode) (f serveFlags, homes string) {
	t.Helper()
	dir := t.TempDir()
	for name, path := range map[string]*string{
		"tmp": &f.tmp, "runs": &f.runs, "code": &f.code, "skills": &f.skills, "state": &f.state, "packages": &f.packages, "home": &homes,
	} {
		*path = filepath.Join(dir, name)
		testkit.Must(t, os.Mkdir(*path, 0o700))
		testkit.Must(t, os.Chmod(*path, mode))
	}
	return f, homes
}

// An address is closed only if the network answers a connection with silence or a refusal: not if the connection
// succeeds, and not if it could not be attempted.
// Promise: closed-network-first
func TestCheckClosed(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	testkit.Must(t, err)
	address := l.Addr().String()
	if err := checkClosed(t.Context(), address); err == nil || !strings.Contains(err.Error(), "NetworkPolicy") {
		t.Errorf("a listener: %v", err)
	}
	past, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	if err := checkClosed(past, address); err != nil {
		t.Errorf("silence: %v", err)
	}
	testkit.Must(t, l.Close())
	if err := checkClosed(t.Context(), address); err != nil {
		t.Errorf("a refusal: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for ctx, address := range map[context.Context]string{t.Context(): "127.0.0.1:99999", over: address} {
		if err := checkClosed(ctx, address); err == nil || strings.Contains(err.Error(), "NetworkPolicy") {
			t.Errorf("%s, which could not be tried: %v", address, err)
		}
	}
}

// The options of a pod that shares its proxy belong together. Its generations begin with the time, so they are greater
// than all of an earlier pod with the same address.
func TestSharedOptions(t *testing.T) {
	const given = "--mode=container --socket=/s --deno=/d --ca=/c --runs=/r --skills=/k --tmp=/t --state=/v --identity=/i --listen=1.2.3.4:1"
	for options, good := range map[string]bool{
		"":                            true,
		"--health=:1 --authority=a:1": true,
		"--health=:1 --authority=a:1 --closed=1.2.3.4:1": true,
		"--health=:1":                                      false,
		"--authority=a:1":                                  false,
		"--closed=1.2.3.4:1":                               false,
		"--health=:1 --closed=1.2.3.4:1":                   false,
		"--health=:1 --authority=a:1 --closed=b:1":         false,
		"--health=:1 --authority=a:1 --closed=[fd00::1]:1": false,
		"--health=:1 --authority=a:1 --closed=$(KUBERNETES_SERVICE_HOST):443": false,
		"--health=:1 --authority=a:1 --mode=embedded":                         false,
		"--health=:1 --authority=a:1 --listen= --identity=":                   false,
	} {
		f, err := parseServe(strings.Fields(given+" "+options), settings.Settings{Slots: 1, Memory: 1 << 30, ServerMemory: 1 << 30})
		if (err == nil) != good {
			t.Errorf("%q: %v", options, err)
		}
		want := uint64(0)
		if f.isProxyShared() {
			want = 5000
		}
		if got := firstGeneration(f, time.Unix(5, 0)); good && got != want {
			t.Errorf("%q: the first generation is after %d, want %d", options, got, want)
		}
	}
}

package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestCloseVolumes: Kubernetes makes volumes on disk with mode 777, and those in memory with mode 1777.
func TestCloseVolumes(t *testing.T) {
	if os.Geteuid() != 0 {
		testkit.SkipBecause(t, "only root gives directories to a group")
	}
	for _, made := range []os.FileMode{0o777, 0o777 | os.ModeSticky} {
		dir := t.TempDir()
		f := serveFlags{
			tmp: filepath.Join(dir, "tmp"), runs: filepath.Join(dir, "runs"), code: filepath.Join(dir, "code"),
			skills: filepath.Join(dir, "skills"), state: filepath.Join(dir, "state"), packages: filepath.Join(dir, "packages"),
		}
		want := map[string]os.FileMode{
			f.tmp: 0o770 | os.ModeSticky, f.runs: 0o750, f.code: 0o711, f.skills: 0o750, f.state: 0o711, f.packages: 0o755,
		}
		for path := range want {
			testkit.Must(t, os.Mkdir(path, 0o700))
			testkit.Must(t, os.Chmod(path, made))
		}
		testkit.Must(t, closeVolumes(f))
		if info, err := os.Stat(filepath.Join(f.skills, "page-through.ts")); err != nil || info.Mode() != 0o644 {
			t.Errorf("a shipped skill: %v %v", info, err)
		}
		for path, mode := range want {
			if info, err := os.Stat(path); err != nil || info.Mode() != mode|os.ModeDir {
				t.Errorf("%s of mode %v: %v %v, want %v", filepath.Base(path), made, info.Mode(), err, mode)
			}
		}
	}
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

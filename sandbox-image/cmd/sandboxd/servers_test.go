package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

func servers(t *testing.T, m Mode, n int) *World {
	t.Helper()
	return StartWorld(t, Options{Mode: m, Slots: 1, Servers: n, Bridge: BuildPuppet(t)})
}

// TestServer: a program runs in a server slot with the environment of one, and its end frees the slot.
// Promise: server-confinement
func TestServer(t *testing.T) {
	RunInModes(t, func(t *testing.T, m Mode) {
		w := servers(t, m, 2)
		s := w.StartServer(t, sandboxapi.ServerHead{})
		home := sandboxapi.HomeDir(s.Slot)
		if !s.Slot.IsServer() {
			t.Errorf("slot %d", s.Slot)
		}
		if out, err := s.SendCommand("echo hello"); out != "hello" || err != nil {
			t.Errorf("%q %v", out, err)
		}
		if out, err := s.SendCommand("cwd"); out != home || err != nil {
			t.Errorf("%q %v", out, err)
		}
		env, err := s.SendCommand("env")
		for _, want := range []string{"HOME=" + home, "TMPDIR=" + home, "DENO_CERT=/etc/codeforge/", "PATH=/programs:", "TZ=UTC"} {
			if !strings.Contains("\n"+env, "\n"+want) {
				t.Errorf("no %s in %q %v", want, env, err)
			}
		}
		if _, err := s.SendCommand("write " + home + "/file text"); err != nil {
			t.Error(err)
		}
		if out, err := s.SendCommand("read " + home + "/file"); out != "text" || err != nil {
			t.Errorf("%q %v", out, err)
		}
		if m != Container || canMoveFiles() {
			if _, err := s.SendCommand("move " + home + "/file " + home + "/below/file"); err != nil {
				t.Error(err)
			}
		}
		_, _ = s.SendCommand("exit 3")
		if e := s.WaitForEnd(t); e.Code != 3 || e.Reason != sandboxapi.Exited {
			t.Errorf("%+v", e)
		}
		if err := w.Client.Release(t.Context(), s.Generation); err != nil {
			t.Error(err)
		}
		// The same slot again: nothing of the previous server is left.
		again := w.StartServer(t, sandboxapi.ServerHead{})
		if again.Slot != s.Slot || again.Generation <= s.Generation {
			t.Errorf("%+v after %+v", again.Lease, s.Lease)
		}
		if out, err := again.SendCommand("list " + home); out != "" || err != nil {
			t.Errorf("%q %v", out, err)
		}
	})
}

// TestServerPools: neither kind of slot is given to the other, and a lease is good for what it was taken for.
// Promise: server-confinement
func TestServerPools(t *testing.T) {
	RunInModes(t, func(t *testing.T, m Mode) {
		w := servers(t, m, 1)
		ctx := t.Context()
		s := w.StartServer(t, sandboxapi.ServerHead{})
		if l, err := w.Client.AcquireServer(ctx); !errors.Is(err, sandboxapi.ErrBusy) {
			t.Errorf("%+v %v", l, err)
		}
		run, err := w.Client.Acquire(ctx, sandboxapi.LeaseRequest{})
		if err != nil || run.Slot.IsServer() {
			t.Fatalf("%+v %v", run, err)
		}
		if l, err := w.Client.Acquire(ctx, sandboxapi.LeaseRequest{}); !errors.Is(err, sandboxapi.ErrBusy) {
			t.Errorf("%+v %v", l, err)
		}
		if _, err := w.Client.StartServer(ctx, run.Generation, sandboxapi.ServerHead{}); err == nil || !strings.Contains(err.Error(), "for a run") {
			t.Error(err)
		}
		if _, err := w.Client.StartServer(ctx, s.Generation, sandboxapi.ServerHead{}); !errors.Is(err, sandboxapi.ErrLeaseGone) {
			t.Error(err)
		}
		_, err = w.Client.Run(ctx, sandboxapi.RunRequest{
			Generation: s.Generation, Run: "r", Language: sandboxapi.LanguageTypeScript, Permissions: w.Hash, TimeoutMS: 1000,
		}, func(sandboxapi.Event) {})
		if err == nil || !strings.Contains(err.Error(), "for an MCP server") {
			t.Error(err)
		}
		stats, err := w.Client.Stats(ctx)
		if err != nil || stats.Servers != 1 || stats.ServersLeased != 1 || stats.Slots != 1 || stats.Leased != 1 {
			t.Errorf("%+v %v", stats, err)
		}
		if err := w.Client.Release(ctx, run.Generation); err != nil {
			t.Error(err)
		}
	})
}

// TestServerLeavesNothing: however a server ends, none of its processes is left, nor a file.
// Promise: server-limits
func TestServerLeavesNothing(t *testing.T) {
	ends := map[string]func(w *World, s *Server) error{
		"exit":  func(_ *World, s *Server) error { _, _ = s.SendCommand("exit 0"); return nil },
		"close": func(_ *World, s *Server) error { _ = s.Close(); return nil },
		"release": func(w *World, s *Server) error {
			return w.Client.Release(context.Background(), s.Generation)
		},
		"input": func(_ *World, s *Server) error { return s.CloseWrite() },
	}
	RunInModes(t, func(t *testing.T, m Mode) {
		w := servers(t, m, 1)
		for name, end := range ends {
			s := w.StartServer(t, sandboxapi.ServerHead{})
			home := sandboxapi.HomeDir(s.Slot)
			for range 3 {
				if _, err := s.SendCommand("start sleep"); err != nil {
					t.Fatal(name, err)
				}
			}
			if _, err := s.SendCommand("close " + home + "/closed"); err != nil {
				t.Fatal(name, err)
			}
			if err := end(w, s); err != nil {
				t.Error(name, err)
			}
			if err := w.Client.Release(t.Context(), s.Generation); err != nil && !errors.Is(err, sandboxapi.ErrLeaseGone) {
				t.Error(name, err)
			}
			if left := puppets(t); len(left) > 0 {
				t.Errorf("%s leaves %v", name, left)
			}
			if m == Container {
				// out0 is the /out of the slot for runs.
				if entries, err := os.ReadDir(filepath.Join(w.Dir, "home")); err != nil || len(entries) != 1 || entries[0].Name() != "out0" {
					t.Errorf("%s leaves %v %v", name, entries, err)
				}
			}
		}
	})
}

// puppets lists the processes of this test's servers, in all namespaces.
func puppets(t *testing.T) (pids []string) {
	t.Helper()
	puppet, err := os.Stat(BuildPuppet(t))
	if err != nil {
		t.Fatal(err)
	}
	list, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range list {
		if exe, err := os.Stat(path); err == nil && os.SameFile(exe, puppet) {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}

// TestServerWithoutBridge: what is missing makes server leases fail with a reason, and nothing else.
func TestServerWithoutBridge(t *testing.T) {
	w := StartWorld(t, Options{Mode: Root, Slots: 1, Servers: 1, Bridge: "/nonexistent/mcp-bridge"})
	if l, err := w.Client.AcquireServer(t.Context()); !errors.Is(err, sandboxapi.ErrUnready) || !strings.Contains(err.Error(), "mcp-bridge is missing") {
		t.Errorf("%+v %v", l, err)
	}
	h, err := w.Client.Health(t.Context())
	if err != nil || !h.Ready || h.ServersProblem == "" {
		t.Errorf("%+v %v", h, err)
	}
	if r := w.RunCode(t, "console.log(1)", testkit.Patience); r.Stdout != "1\n" {
		t.Errorf("%+v", r)
	}
}

// TestServerMemory: the memory of all of a server's processes counts.
// Promise: server-limits
func TestServerMemory(t *testing.T) {
	RunInModes(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 1, Servers: 1, ServerMemory: 128 << 20, Bridge: BuildPuppet(t)})
		s := w.StartServer(t, sandboxapi.ServerHead{})
		if _, err := s.SendCommand("allocate " + strconv.Itoa(30<<20)); err != nil {
			t.Fatal(err)
		}
		testkit.WaitFor(t, func() bool {
			st, err := w.Client.Stats(t.Context())
			testkit.Must(t, err)
			return st.ServersMemory >= 30<<20
		})
		for range 3 {
			if _, err := s.SendCommand("start allocate " + strconv.Itoa(30<<20)); err != nil {
				break
			}
		}
		_, _ = s.SendCommand("start allocate " + strconv.Itoa(1<<30))
		if e := s.WaitForEnd(t); e.Reason != sandboxapi.OOM || !strings.Contains(e.Detail, "SANDBOX_SERVER_MEMORY") {
			t.Errorf("%+v", e)
		}
	})
}

// canMoveFiles reports whether a program with restricted reads can move files between directories. The first version of
// Landlock refuses that.
func canMoveFiles() bool {
	version, _, _ := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	return version != 1
}

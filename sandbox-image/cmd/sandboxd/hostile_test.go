package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/proc"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/confine"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

const hostilePackage = "npm:hostile@1.0.0"

// install puts a package where sandboxd looks for it, as if it had been sealed: it belongs to sandboxd's user.
func install(t *testing.T, w *World, pkg string) {
	t.Helper()
	above := filepath.Join(w.Dir, "packages")
	dir := filepath.Join(above, sandboxapi.PackageKey(pkg))
	var st syscall.Stat_t
	testkit.Must(t, syscall.Stat(above, &st))
	for name, text := range map[string]string{"deno.lock": "lock of " + pkg, "registry": "https://packages.example.com/"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		testkit.Must(t, os.Chown(filepath.Join(dir, name), int(st.Uid), int(st.Gid)))
	}
}

// TestServerCannot: what a hostile server, or a program that it starts, tries, fails.
// Promise: server-confinement
func TestServerCannot(t *testing.T) {
	RunInModes(t, func(t *testing.T, m Mode) {
		w := servers(t, m, 2)
		install(t, w, hostilePackage)
		install(t, w, "npm:other@1.0.0")
		run := w.RunCode(t, "await Deno.writeTextFile('/tmp/of-a-run', 'secret'); await Deno.writeTextFile('/skills/of-a-run', 'secret')", testkit.Patience)
		if run.Exit.Code != 0 {
			t.Fatalf("%+v", run)
		}
		victim := w.StartServer(t, sandboxapi.ServerHead{})
		if _, err := victim.SendCommand("write " + sandboxapi.HomeDir(victim.Slot) + "/private secret"); err != nil {
			t.Fatal(err)
		}
		s := w.StartServer(t, sandboxapi.ServerHead{Package: hostilePackage})
		if s.Slot == victim.Slot {
			t.Fatal("two servers share a slot")
		}
		if out, err := s.SendCommand("read " + sandboxapi.PackageDir(hostilePackage) + "/deno.lock"); err != nil || out != "lock of "+hostilePackage {
			t.Errorf("its own package: %q %v", out, err)
		}
		if env, err := s.SendCommand("env"); err != nil || !strings.Contains(env, "NPM_CONFIG_REGISTRY=https://packages.example.com/\n") && !strings.HasSuffix(env, "NPM_CONFIG_REGISTRY=https://packages.example.com/") {
			t.Errorf("%q %v", env, err)
		}
		tries := []string{
			"write " + sandboxapi.PackageDir(hostilePackage) + "/deno.lock x",
			"write " + sandboxapi.PackageDir(hostilePackage) + "/new x",
			"read " + sandboxapi.PackageDir("npm:other@1.0.0") + "/deno.lock",
			"read " + sandboxapi.HomeDir(victim.Slot) + "/private",
			"list " + sandboxapi.HomeDir(victim.Slot),
			"write " + sandboxapi.HomeDir(victim.Slot) + "/x x",
			"write " + sandboxapi.ProgramsDir + "/x x",
			"read /tmp/of-a-run", "list /tmp", "write /tmp/x x",
			"read /skills/of-a-run", "list /skills", "write /skills/x x",
			"list /runs", "write /runs/x x", "list /code", "list /run", "list /var/lib/sandboxd", "write /x x", "write /etc/x x",
			"list /proc/self/fd", "read /proc/1/cmdline", "read /proc/self/environ", "list /sys", "read /etc/hostname", "read /etc/passwd",
			"call ptrace", "call newuser", "call unix", "call memfd", "call mount", "call setuid",
			"dial 127.0.0.1:9", "dial 192.0.2.1:22",
		}
		if m == Container && !confine.CanRestrictReads() {
			t.Log("this kernel has no Landlock: reads are not tried")
			tries = append(tries[:1:1], "write /tmp/x x", "write /skills/x x")
		}
		for _, try := range tries {
			if out, err := s.SendCommand(try); err == nil {
				t.Errorf("%s: %q", try, out)
			}
			child := "run " + bridgeIn(m) + " " + try
			if out, err := s.SendCommand(child); err == nil || strings.Contains(err.Error(), "no such file or directory: \n") {
				t.Errorf("a child may %s: %q", try, out)
			}
		}
		if out, err := s.SendCommand("run " + bridgeIn(m) + " echo works"); out != "works" || err != nil {
			t.Errorf("a child: %q %v", out, err)
		}
	})
}

// bridgeIn is where the bridge is, as a server sees it.
func bridgeIn(m Mode) string {
	if m == Container {
		return "/usr/local/bin/mcp-bridge"
	}
	return "/usr/bin/mcp-bridge"
}

// TestServerPorts: embedded, a server reaches no port of another slot. (In Docker the filter does this: package network.)
// Promise: server-confinement
func TestServerPorts(t *testing.T) {
	for _, m := range []Mode{Root, User} {
		t.Run(string(m), func(t *testing.T) {
			w := servers(t, m, 2)
			one, two := w.StartServer(t, sandboxapi.ServerHead{}), w.StartServer(t, sandboxapi.ServerHead{})
			address, err := one.SendCommand("listen 127.0.0.1:7777")
			if err != nil {
				t.Fatal(err)
			}
			if out, err := one.SendCommand("dial " + address); out != "hello" || err != nil {
				t.Errorf("its own port: %q %v", out, err)
			}
			if out, err := two.SendCommand("dial " + address); err == nil {
				t.Errorf("another's port: %q", out)
			}
			l, err := net.Listen("tcp4", "127.0.0.1:0") // of the machine
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if out, err := two.SendCommand("dial " + l.Addr().String()); err == nil {
				t.Errorf("the machine's port: %q", out)
			}
		})
	}
}

// TestServerForks: a fork bomb ends at the limit on processes, disturbs no other slot, and leaves nothing.
// Promise: server-limits
func TestServerForks(t *testing.T) {
	RunInModes(t, func(t *testing.T, m Mode) {
		w := servers(t, m, 2)
		other := w.StartServer(t, sandboxapi.ServerHead{})
		s := w.StartServer(t, sandboxapi.ServerHead{})
		out, err := s.SendCommand("bomb")
		n, _ := strconv.Atoi(out)
		if err == nil || n == 0 || n > maxServerProcesses {
			t.Errorf("%s processes, %v", out, err)
		}
		if out, err := other.SendCommand("run " + bridgeIn(m) + " echo still"); out != "still" || err != nil {
			t.Errorf("the other server: %q %v", out, err)
		}
		if r := w.RunCode(t, "console.log(1)", testkit.Patience); r.Stdout != "1\n" {
			t.Errorf("a run: %+v", r)
		}
		if err := w.Client.Release(context.Background(), s.Generation); err != nil {
			t.Error(err)
		}
		if left := puppets(t); len(left) != 1 {
			t.Errorf("%d are left", len(left))
		}
	})
}

// TestServerHome: a server cannot fill the homes of others, whatever it does to be overlooked.
// Promise: server-limits
func TestServerHome(t *testing.T) {
	RunInModes(t, func(t *testing.T, m Mode) {
		w := servers(t, m, 2)
		s := w.StartServer(t, sandboxapi.ServerHead{})
		home := sandboxapi.HomeDir(s.Slot)
		size := strconv.Itoa(jail.HomeSize + 8<<20)
		_, err := s.SendCommand("fill " + home + "/large " + size)
		if m != Container { // the kernel bounds it
			if err == nil || !strings.Contains(err.Error(), "no space left") {
				t.Error(err)
			}
			return
		}
		if e := s.WaitForEnd(t); e.Reason != sandboxapi.OutputLimit || !strings.Contains(e.Detail, "64 MiB") {
			t.Errorf("%+v", e)
		}
	})
}

// TestServerStderr: nobody waits for what a server prints to standard error, however much it is.
// Promise: server-limits
func TestServerStderr(t *testing.T) {
	w := servers(t, Root, 1)
	s := w.StartServer(t, sandboxapi.ServerHead{})
	if _, err := s.SendCommand("start flood"); err != nil { // a child's standard error is closed
		t.Fatal(err)
	}
	if _, err := s.SendCommand("stderr \x1b[31m" + strings.Repeat("x", 1<<20)); err != nil {
		t.Fatal(err)
	}
	_, _ = s.SendCommand("exit 5")
	if e := s.WaitForEnd(t); e.Code != 5 || len(e.Detail) > 4500 || strings.Contains(e.Detail, "\x1b") {
		t.Errorf("%.200s", e.Detail)
	}
}

// TestServerOwner: a server ends with the connection that its lease was taken on, and its slot is free again.
// Promise: server-limits
func TestServerOwner(t *testing.T) {
	RunInModes(t, func(t *testing.T, m Mode) {
		w := servers(t, m, 1)
		owner := sandboxapi.NewClient(sandboxapi.ClientConfig{Dial: w.Dial})
		l, err := owner.AcquireServer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s, err := owner.StartServer(t.Context(), l.Generation, sandboxapi.ServerHead{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := owner.Close(); err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(testkit.Patience)
		for {
			next, err := w.Client.AcquireServer(t.Context())
			if err == nil {
				if next.Generation <= l.Generation {
					t.Errorf("%+v after %+v", next, l)
				}
				break
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		if left := puppets(t); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
	})
}

// TestServerKilled: whichever process is killed, the rest of the server ends, the client hears of it, and the slot can be
// used again.
// Promise: server-limits
func TestServerKilled(t *testing.T) {
	RunInModes(t, func(t *testing.T, m Mode) {
		w := servers(t, m, 1)
		victims := []string{"the bridge", "its parent", "sandboxd"}
		if m == Container { // sandboxd is the parent
			victims = []string{"the bridge", "sandboxd"}
		}
		for _, victim := range victims {
			s := w.StartServer(t, sandboxapi.ServerHead{})
			for range 2 {
				if _, err := s.SendCommand("start sleep"); err != nil {
					t.Fatal(victim, err)
				}
			}
			bridge := findRoot(t, puppets(t))
			switch victim {
			case "the bridge":
				testkit.Must(t, syscall.Kill(bridge, syscall.SIGKILL))
			case "its parent": // bubblewrap
				st, err := proc.ReadStatus(bridge)
				testkit.Must(t, err)
				testkit.Must(t, syscall.Kill(st.Parent, syscall.SIGKILL))
			case "sandboxd":
				w.Restart(t, syscall.SIGKILL)
			}
			if victim == "sandboxd" {
				if _, err := s.SendCommand("echo x"); err == nil {
					t.Error("it goes on without sandboxd")
				}
			} else if e := s.WaitForEnd(t); e.Code != 128+int(syscall.SIGKILL) || e.Detail == "" {
				t.Errorf("%s: %+v", victim, e)
			}
			if err := w.Client.Release(t.Context(), s.Generation); err != nil && !errors.Is(err, sandboxapi.ErrLeaseGone) {
				t.Error(victim, err)
			}
			deadline := time.Now().Add(testkit.Patience)
			for len(puppets(t)) > 0 && time.Now().Before(deadline) {
				time.Sleep(10 * time.Millisecond)
			}
			if left := puppets(t); len(left) > 0 {
				t.Errorf("%s: %v are left", victim, left)
			}
			again := w.StartServer(t, sandboxapi.ServerHead{})
			if out, err := again.SendCommand("echo again"); out != "again" || err != nil {
				t.Errorf("%s: %q %v", victim, out, err)
			}
			testkit.Must(t, w.Client.Release(t.Context(), again.Generation))
		}
	})
}

// findRoot returns the process whose parent is not one of pids. Numbers do not tell: the kernel starts again at 300 after
// the largest one.
func findRoot(t *testing.T, pids []string) int {
	t.Helper()
	for _, text := range pids {
		pid, err := strconv.Atoi(text)
		testkit.Must(t, err)
		st, err := proc.ReadStatus(pid)
		testkit.Must(t, err)
		if !slices.Contains(pids, strconv.Itoa(st.Parent)) {
			return pid
		}
	}
	t.Fatal("no root among", pids)
	return 0
}

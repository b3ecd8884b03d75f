package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/proc"
)

// fault is one kind of fault. begin causes it; the function that it returns, if any, ends it after the fault has lasted.
type fault struct {
	name  string
	lasts time.Duration
	begin func(*soak) (end func(), err error)
}

// The programs of CodeForge's parts. The supervisor is below the outer process, and both are codeforge.
const (
	proxy, sandbox, server, supervisor, outer = "egress-proxy", "sandboxd", "mcp-server", "codeforge", ""
)

func kinds() []fault {
	const ms = time.Millisecond
	list := []fault{}
	for _, part := range []string{proxy, sandbox, server, supervisor} {
		list = append(list, fault{"kill " + part, 100 * ms, signal(part, syscall.SIGKILL)})
	}
	for _, p := range []struct {
		part  string
		lasts time.Duration
	}{{server, 5 * time.Second}, {sandbox, 10 * time.Second}, {proxy, 20 * time.Second}, {supervisor, 8 * time.Second}, {outer, 8 * time.Second}} {
		list = append(list, fault{"stop " + nameOf(p.part), p.lasts, signal(p.part, syscall.SIGSTOP)})
	}
	for _, how := range []string{resets, hangs, garbage, halfClosed} {
		list = append(list, fault{"upstream " + how, 8 * time.Second, func(s *soak) (func(), error) {
			s.host.mode.Store(how)
			return func() { s.host.mode.Store("") }, nil
		}})
	}
	for name, rcode := range map[string]int{"silent": upstream.NoAnswer, "SERVFAIL": dns.RcodeServerFailure, "NXDOMAIN": dns.RcodeNameError} {
		list = append(list, fault{"resolver " + name, 8 * time.Second, func(s *soak) (func(), error) {
			names := s.Upstream.(*upstream.Server)
			names.FailNames(rcode)
			return func() { names.FailNames(0) }, nil
		}})
	}
	for _, part := range []string{server, proxy, sandbox} {
		list = append(list, fault{"no descriptors for " + part, 12 * time.Second, limitFiles(part)})
	}
	return append(list,
		fault{"state disk full", 20 * time.Second, fillDisk},
		fault{"the API in use is written", 20 * time.Second, rewrite("other")},
		fault{"another API is written", 20 * time.Second, rewrite("strict")},
		fault{"200 idle connections", 15 * time.Second, holdConnections},
		fault{"the log is renamed", 5 * time.Second, renameLog},
		fault{"the operator's socket is removed", time.Second, func(s *soak) (func(), error) {
			return nil, os.Remove(filepath.Join(s.Process.State, "run", "mcp.sock"))
		}},
	)
}

func nameOf(part string) string {
	if part == outer {
		return "the outer process"
	}
	return part
}

// pid returns the process of a part that runs now.
func (s *soak) pid(part string) (int, error) {
	if part == outer {
		return s.outer, nil
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		for _, pid := range world.Below(s.outer, part) {
			if pid != s.outer {
				return pid, nil
			}
		}
	}
	return 0, fmt.Errorf("no %s runs", part)
}

// signal sends a signal to a part. What was stopped goes on at the end of the fault, if it is still there.
func signal(part string, which syscall.Signal) func(*soak) (func(), error) {
	return func(s *soak) (func(), error) {
		pid, err := s.pid(part)
		if err != nil {
			return nil, err
		}
		if err := syscall.Kill(pid, which); err != nil || which == syscall.SIGKILL {
			return nil, err
		}
		return func() { _ = syscall.Kill(pid, syscall.SIGCONT) }, nil
	}
}

// limitFiles leaves a part room for two more descriptors.
func limitFiles(part string) func(*soak) (func(), error) {
	return func(s *soak) (func(), error) {
		pid, err := s.pid(part)
		if err != nil {
			return nil, err
		}
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			return nil, err
		}
		limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
		if err != nil {
			return nil, err
		}
		_, line, _ := strings.Cut(string(limits), "Max open files")
		usual, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		return func() { _ = setFiles(pid, usual) }, setFiles(pid, strconv.Itoa(len(open)+2))
	}
}

// setFiles sets how many descriptors a process may have. It does so as the process's own user: root needs a capability for
// it that it lacks in some containers.
func setFiles(pid int, limit string) error {
	status, err := proc.ReadStatus(pid)
	if err != nil {
		return err
	}
	cmd := exec.Command("prlimit", "--pid", strconv.Itoa(pid), "--nofile="+limit+":") //nolint:gosec,noctx // of the test
	if status.UID[0] != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(status.UID[0]), Gid: uint32(status.GID[0])}} //nolint:gosec // small numbers
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("prlimit: %w\n%s", err, out)
	}
	return nil
}

// mountSmall puts a file system of 256 MiB in place of the state directory.
func mountSmall(state string) error {
	if err := os.RemoveAll(state); err != nil {
		return err
	}
	if err := os.Mkdir(state, 0o700); err != nil {
		return err
	}
	return syscall.Mount("state", state, "tmpfs", 0, "size=256m,mode=0700")
}

func unmount(state string) { _ = syscall.Unmount(state, syscall.MNT_DETACH) }

// fillDisk leaves no room in the state directory.
func fillDisk(s *soak) (func(), error) {
	path := filepath.Join(s.Process.State, "ballast")
	f, err := os.Create(path) //nolint:gosec // of the test
	if err != nil {
		return nil, err
	}
	defer f.Close()
	zeros := make([]byte, 1<<20)
	for err == nil {
		_, err = f.Write(zeros)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return nil, err
	}
	return func() { _ = os.Remove(path) }, s.checkFullDisk()
}

// checkFullDisk checks that a run that loses 5 MB of output, or of a file that it writes, names the disk.
func (s *soak) checkFullDisk() error {
	const skills, runs = "The disk of /skills is full", "the disk of /runs is full"
	for _, r := range []struct{ language, code, want string }{
		{"typescript", `console.log("x".repeat(5_000_000))`, runs},
		{"python", `print("x" * 5_000_000)`, runs},
		{"typescript", `Deno.writeFileSync("/skills/big", new Uint8Array(5_000_000))`, skills},
		{"python", `open("/skills/big", "wb").write(bytes(5_000_000))`, skills},
	} {
		ctx, cancel := context.WithTimeout(s.t.Context(), mostHealing)
		defer cancel()
		session, err := s.Connect(ctx)
		if err != nil {
			return err
		}
		defer session.Close()
		got, err := s.Do(ctx, session, world.Run{Language: r.language, Code: r.code})
		if err != nil || !strings.Contains(got.Notes, r.want) {
			s.t.Errorf("%s: %v, notes %q, want %q; output %.300q", r.code, err, got.Notes, r.want, got.Out)
		}
	}
	return nil
}

// rewrite changes a file of an API once a second.
func rewrite(api string) func(*soak) (func(), error) {
	return func(s *soak) (func(), error) {
		path := filepath.Join(s.Dir, "apis", api, "config.json")
		text, err := os.ReadFile(path) //nolint:gosec // of the test
		if err != nil {
			return nil, err
		}
		stop, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			for n := 0; ; n++ {
				changed := append(append([]byte{}, text...), fmt.Sprintf("%*s\n", n%8, "")...)
				_ = os.WriteFile(path+".new", changed, 0o600) //nolint:gosec // as the file is
				_ = os.Rename(path+".new", path)
				select {
				case <-stop:
					return
				case <-time.After(time.Second):
				}
			}
		}()
		return func() { close(stop); <-ended }, nil
	}
}

// holdConnections opens 200 connections to the MCP endpoint and sends nothing.
func holdConnections(s *soak) (func(), error) {
	var all []net.Conn
	closeAll := func() {
		for _, c := range all {
			_ = c.Close()
		}
	}
	for range 200 {
		c, err := s.Dial(s.t.Context())
		if err != nil {
			closeAll()
			return nil, err
		}
		all = append(all, c)
	}
	return closeAll, nil
}

// renameLog does what a rotation by another program does.
func renameLog(s *soak) (func(), error) {
	path := filepath.Join(s.Process.State, "log", "codeforge.log")
	return nil, os.Rename(path, path+".old")
}

// readUp reads what the state directory says about CodeForge.
func readUp(state string) (world.Up, error) {
	var up world.Up
	data, err := os.ReadFile(filepath.Join(state, "up.json")) //nolint:gosec // of the test
	if err != nil {
		return up, err
	}
	return up, json.Unmarshal(data, &up)
}

// How the upstream fails.
const (
	resets     = "resets"
	hangs      = "hangs"
	garbage    = "answers garbage"
	halfClosed = "ends in the middle"
)

// faultyHost answers with the mark of each request, or fails in the way of mode.
type faultyHost struct {
	key       string
	mode      atomic.Value
	unswapped atomic.Int64
}

func (h *faultyHost) names() map[string]http.Handler {
	h.mode.Store("")
	return map[string]http.Handler{upstream.Other: h}
}

// ServeHTTP implements http.Handler.
func (h *faultyHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+h.key {
		h.unswapped.Add(1)
	}
	mark := r.URL.Query().Get("m")
	switch h.mode.Load() {
	case resets:
		panic(http.ErrAbortHandler)
	case hangs:
		for h.mode.Load() == hangs && r.Context().Err() == nil {
			time.Sleep(probeEvery)
		}
		panic(http.ErrAbortHandler)
	case garbage:
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_, _ = io.WriteString(c, "\x00\x01 no HTTP \r\n\r\n")
			_ = c.Close()
		}
	case halfClosed:
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, mark)
	default:
		_, _ = io.WriteString(w, mark)
	}
}

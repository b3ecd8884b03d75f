package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// raw sends a request that Client would not send.
func raw(t *testing.T, w *World, method, path, contentType, body string) (int, string) {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: protocols, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return w.Dial(ctx) }}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequest(method, "http://sandboxd"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

func TestBadRequests(t *testing.T) {
	w := StartWorld(t, Options{Mode: Root, Slots: 1, Warm: 1})
	lease, err := w.Client.Acquire(context.Background(), sandboxapi.LeaseRequest{})
	if err != nil {
		t.Fatal(err)
	}
	run := func(change string) string {
		whole := `{"generation": 1001, "run": "r", "language": "typescript", "code": "", "permissions": "` + w.Hash + `", "timeout_ms": 1000}`
		old, now, _ := strings.Cut(change, " => ")
		if !strings.Contains(whole, old) {
			t.Fatalf("%q is not in the request", old)
		}
		return strings.Replace(whole, old, now, 1)
	}
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		says                     string
	}{
		{"no JSON", "POST", "/v1/runs", "{", 400, "reading the body"},
		{"two values", "POST", "/v1/runs", "{} {}", 400, "more than one value"},
		{"unknown field", "POST", "/v1/runs", `{"generatoin": 1}`, 400, "generatoin"},
		{"wrong type", "POST", "/v1/runs", `{"generation": "1"}`, 400, "generation"},
		{"no lease", "POST", "/v1/runs", run("1001 => 77"), 410, "generation 77"},
		{"generation 0", "POST", "/v1/runs", run("1001 => 0"), 410, "generation 0"},
		{"bad run id", "POST", "/v1/runs", run(`"r" => "../r"`), 400, "want 1 to 64"},
		{"empty run id", "POST", "/v1/runs", run(`"r" => ""`), 400, "want 1 to 64"},
		{"language", "POST", "/v1/runs", run("typescript => cobol"), 400, "cobol"},
		{"timeout 0", "POST", "/v1/runs", run("1000} => 0}"), 400, "timeout_ms"},
		{"negative timeout", "POST", "/v1/runs", run("1000} => -1}"), 400, "timeout_ms"},
		{"other permissions", "POST", "/v1/runs", run(w.Hash + " => other"), 409, w.Hash},
		{"code too large", "POST", "/v1/runs", run(`"code": "" => "code": "` + strings.Repeat("x", sandboxapi.MaxCode+1) + `"`), 400, "want at most"},
		{"servers too large", "POST", "/v1/runs", run(`"code": "" => "code": "", "servers": {"s": ["` + strings.Repeat("x", sandboxapi.MaxServers) + `"]}`), 400, "want at most"},
		{"body too large", "POST", "/v1/runs", run(`"code": "" => "code": "` + strings.Repeat("x", 3*(sandboxapi.MaxCode+sandboxapi.MaxServers+sandboxapi.MaxModules)+2*sandboxapi.MaxInput) + `"`), 413, "too large"},
		{"release of none", "DELETE", "/v1/leases/12", "", 410, "generation 12"},
		{"release of no number", "DELETE", "/v1/leases/x", "", 400, "not a number"},
		{"wrong method", "GET", "/v1/runs", "", 404, "no such resource"},
		{"unknown path", "GET", "/v1/nothing", "", 404, "no such resource"},
		{"host with a flag", "PUT", "/v1/permissions", `{"allow_net": ["a.example,--allow-run"]}`, 400, "want a lower-case host name"},
		{"host with a port that is none", "PUT", "/v1/permissions", `{"allow_net": ["a.example:65536"]}`, 400, "want a lower-case host name"},
		{"address", "PUT", "/v1/permissions", `{"allow_net": ["127.0.0.1"]}`, 400, "want a lower-case host name"},
		{"two stars", "PUT", "/v1/permissions", `{"allow_net": ["*.*.example"]}`, 400, "want a lower-case host name"},
		{"upper case", "PUT", "/v1/permissions", `{"allow_net": ["A.example"]}`, 400, "want a lower-case host name"},
		{"empty host", "PUT", "/v1/permissions", `{"allow_net": [""]}`, 400, "want a lower-case host name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := strings.ReplaceAll(c.body, "1001", "1") // the first generation of a fresh state directory
			status, said := raw(t, w, c.method, c.path, "application/json", body)
			if status != c.status || !strings.Contains(said, c.says) || !strings.Contains(said, `"error":`) {
				t.Errorf("%d %s, want %d ...%s...", status, said, c.status, c.says)
			}
		})
	}
	if status, _ := raw(t, w, "POST", "/v1/runs", "text/plain", "{}"); status != 415 {
		t.Errorf("text/plain: %d", status)
	}
	if _, err := w.Client.Acquire(context.Background(), sandboxapi.LeaseRequest{}); !errors.Is(err, sandboxapi.ErrBusy) {
		t.Errorf("a second lease: %v", err)
	}
	if err := w.Client.Release(context.Background(), lease.Generation); err != nil {
		t.Error(err)
	}
}

// A lease is good for one run, and the end of the run does not free its slot.
func TestLeases(t *testing.T) {
	w := StartWorld(t, Options{Mode: Container, Slots: 1, Warm: 1})
	ctx := context.Background()
	lease, err := w.Client.Acquire(ctx, sandboxapi.LeaseRequest{})
	if err != nil {
		t.Fatal(err)
	}
	req := sandboxapi.RunRequest{
		Generation: lease.Generation, Run: "one", Language: sandboxapi.LanguageTypeScript, Code: "console.log(1)",
		Permissions: w.Hash, TimeoutMS: 10000,
	}
	if _, err := w.Client.Run(ctx, req, func(sandboxapi.Event) {}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Client.Run(ctx, req, func(sandboxapi.Event) {}); !errors.Is(err, sandboxapi.ErrLeaseGone) {
		t.Errorf("a second run: %v", err)
	}
	if _, err := w.Client.Acquire(ctx, sandboxapi.LeaseRequest{}); !errors.Is(err, sandboxapi.ErrBusy) {
		t.Errorf("the slot of a lease whose run has ended: %v", err)
	}
	if err := w.Client.Release(ctx, lease.Generation); err != nil {
		t.Error(err)
	}
	if err := w.Client.Release(ctx, lease.Generation); !errors.Is(err, sandboxapi.ErrLeaseGone) {
		t.Errorf("a second release: %v", err)
	}
	next, err := w.Client.Acquire(ctx, sandboxapi.LeaseRequest{})
	if err != nil || next.Generation <= lease.Generation {
		t.Errorf("%+v %v", next, err)
	}
}

// Where no interpreter is kept warm, a lease ahead is refused: a run that takes its own lease starts one sooner.
func TestNoLeaseAhead(t *testing.T) {
	OneMode(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 3})
		if l, err := w.Client.Acquire(context.Background(), sandboxapi.LeaseRequest{Ahead: true}); !errors.Is(err, sandboxapi.ErrBusy) {
			t.Errorf("%+v %v", l, err)
		}
		if _, err := w.Client.Acquire(context.Background(), sandboxapi.LeaseRequest{}); err != nil {
			t.Error(err)
		}
	})
}

// A lease ahead starts no interpreter, follows changed permissions, runs warm, and never takes the last slot.
func TestLeaseAhead(t *testing.T) {
	OneMode(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 3, Warm: 1})
		ctx := context.Background()
		code := "console.log(Deno.permissions.querySync({ name: 'net', host: 'a.example' }).state)"
		run := func(l sandboxapi.Lease) (string, sandboxapi.Exit) {
			t.Helper()
			var out strings.Builder
			exit, err := w.Client.Run(ctx, sandboxapi.RunRequest{
				Generation: l.Generation, Run: "a", Language: sandboxapi.LanguageTypeScript, Code: code, Permissions: w.Hash, TimeoutMS: 10000,
			}, func(e sandboxapi.Event) { out.WriteString(e.Stdout) })
			if err != nil {
				t.Fatal(err)
			}
			return out.String(), exit
		}
		stats := func(want sandboxapi.Stats) {
			t.Helper()
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
				s, err := w.Client.Stats(ctx)
				if err == nil && s.Leased == want.Leased && s.Ahead == want.Ahead && s.Warm == want.Warm {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("%+v %v, want %+v", s, err, want)
				}
			}
		}
		awaitWarm(t, w, 1)
		first, err := w.Client.Acquire(ctx, sandboxapi.LeaseRequest{Ahead: true})
		if err != nil {
			t.Fatal(err)
		}
		stats(sandboxapi.Stats{Ahead: 1, Warm: 1})
		second, err := w.Client.Acquire(ctx, sandboxapi.LeaseRequest{Ahead: true})
		if err != nil || second.Slot == first.Slot {
			t.Fatalf("%+v %v", second, err)
		}
		if l, err := w.Client.Acquire(ctx, sandboxapi.LeaseRequest{Ahead: true}); !errors.Is(err, sandboxapi.ErrBusy) {
			t.Fatalf("the last slot: %+v %v", l, err)
		}
		third, err := w.Client.Acquire(ctx, sandboxapi.LeaseRequest{})
		if err != nil || third.Slot == first.Slot || third.Slot == second.Slot {
			t.Fatalf("%+v %v", third, err)
		}
		for _, l := range []sandboxapi.Lease{second, third} {
			if err := w.Client.Release(ctx, l.Generation); err != nil {
				t.Error(err)
			}
		}
		stats(sandboxapi.Stats{Ahead: 1, Warm: 1})

		w.AllowHosts(t, "a.example")
		stats(sandboxapi.Stats{Ahead: 1, Warm: 1})
		if out, exit := run(first); out != "granted\n" || !exit.Warm {
			t.Errorf("%q %+v", out, exit)
		}
		if err := w.Client.Release(ctx, first.Generation); err != nil {
			t.Error(err)
		}
		// A lease on a slot without a warm interpreter: the next one is started there.
		for range 2 {
			l, err := w.Client.Acquire(ctx, sandboxapi.LeaseRequest{Ahead: true})
			if err != nil {
				t.Fatal(err)
			}
			stats(sandboxapi.Stats{Ahead: 1, Warm: 1})
			if _, exit := run(l); !exit.Warm {
				t.Errorf("%+v", exit)
			}
			if err := w.Client.Release(ctx, l.Generation); err != nil {
				t.Error(err)
			}
		}
		other := sandboxapi.NewClient(sandboxapi.ClientConfig{Dial: w.Dial})
		if _, err := other.Acquire(ctx, sandboxapi.LeaseRequest{Ahead: true}); err != nil {
			t.Error(err)
		}
		stats(sandboxapi.Stats{Ahead: 1, Warm: 1})
		_ = other.Close()
		stats(sandboxapi.Stats{Warm: 1})
	})
}

// Changed permissions replace the waiting interpreters, and an older lease still works with the new set.
func TestPermissionsChange(t *testing.T) {
	RunInModes(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 2, Warm: 2})
		const ask = "const s = Deno.permissions.querySync;\nfor (const host of ['a.example', 'b.a.example', 'c.example']) console.log(Deno.permissions.querySync({ name: 'net', host }).state);\n"
		if r := w.RunCode(t, ask, testkit.Patience); r.Stdout != "prompt\nprompt\nprompt\n" && r.Stdout != "denied\ndenied\ndenied\n" {
			t.Errorf("closed: %+v", r)
		}
		lease, err := w.Client.Acquire(context.Background(), sandboxapi.LeaseRequest{})
		if err != nil {
			t.Fatal(err)
		}
		old := w.Hash
		w.AllowHosts(t, "a.example", "*.a.example")
		req := sandboxapi.RunRequest{Generation: lease.Generation, Run: "x", Language: sandboxapi.LanguageTypeScript, Code: ask, Permissions: old, TimeoutMS: 10000}
		if _, err := w.Client.Run(context.Background(), req, func(sandboxapi.Event) {}); !errors.Is(err, sandboxapi.ErrPermissions) {
			t.Errorf("old permissions: %v", err)
		}
		req.Permissions = w.Hash
		var out strings.Builder
		if _, err := w.Client.Run(context.Background(), req, func(e sandboxapi.Event) { out.WriteString(e.Stdout) }); err != nil {
			t.Fatal(err)
		}
		if lines := strings.Fields(out.String()); len(lines) != 3 || lines[0] != "granted" || lines[1] != "granted" || lines[2] == "granted" {
			t.Errorf("%q", lines)
		}
		if err := w.Client.Release(context.Background(), lease.Generation); err != nil {
			t.Error(err)
		}
		w.AllowHosts(t, "*")
		if r := w.RunCode(t, ask, testkit.Patience); r.Stdout != "granted\ngranted\ngranted\n" {
			t.Errorf("all: %+v", r)
		}
	})
}

// A changed CA replaces the waiting interpreters. Without a CA nothing runs.
func TestCAChange(t *testing.T) {
	w := StartWorld(t, Options{Mode: Root, Slots: 1, Warm: 1})
	awaitWarm(t, w, 1)
	ca := filepath.Join(w.Dir, "ca.pem")
	data, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	before := descendants(w.Process.Pid)
	if err := os.WriteFile(ca, append(data, data...), 0o644); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		awaitWarm(t, w, 1)
		replaced := true
		for pid := range descendants(w.Process.Pid) {
			replaced = replaced && before[pid] == ""
		}
		if replaced {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the waiting interpreter was not replaced")
		}
	}
	if err := os.Remove(ca); err != nil {
		t.Fatal(err)
	}
	awaitWarm(t, w, 0)
	if _, err := w.Client.Acquire(context.Background(), sandboxapi.LeaseRequest{}); !errors.Is(err, sandboxapi.ErrUnready) {
		t.Errorf("without a CA: %v", err)
	}
	if h, err := w.Client.Health(context.Background()); err != nil || h.Ready || !strings.Contains(h.Problem, "CA") {
		t.Errorf("%+v %v", h, err)
	}
}

// A waiting interpreter that dies is replaced.
func TestWaitingInterpreterDies(t *testing.T) {
	w := StartWorld(t, Options{Mode: Root, Slots: 1, Warm: 1})
	for range 3 {
		awaitWarm(t, w, 1)
		waiting := func() (pid int) {
			for p, exe := range descendants(w.Process.Pid) {
				if filepath.Base(exe) == "deno" {
					pid = p
				}
			}
			return pid
		}
		killed := waiting()
		if killed == 0 {
			t.Fatal("no interpreter waits")
		}
		_ = syscall.Kill(killed, syscall.SIGKILL)
		testkit.WaitFor(t, func() bool { now := waiting(); return now != 0 && now != killed })
		if r := w.RunCode(t, "console.log('ran')\n", testkit.Patience); r.Stdout != "ran\n" || r.Exit.Reason != sandboxapi.Exited {
			t.Errorf("%+v", r)
		}
	}
}

// attachConn is the stdio of a `sandboxd attach`.
type attachConn struct {
	net.Conn // nil: for the methods that net/http does not call
	io.Reader
	io.WriteCloser
}

func (c attachConn) Read(p []byte) (int, error)       { return c.Reader.Read(p) }
func (c attachConn) Write(p []byte) (int, error)      { return c.WriteCloser.Write(p) }
func (c attachConn) Close() error                     { return c.WriteCloser.Close() }
func (c attachConn) SetDeadline(time.Time) error      { return nil }
func (c attachConn) SetReadDeadline(time.Time) error  { return nil }
func (c attachConn) SetWriteDeadline(time.Time) error { return nil }
func (c attachConn) LocalAddr() net.Addr              { return &net.UnixAddr{Name: "attach"} }
func (c attachConn) RemoteAddr() net.Addr             { return &net.UnixAddr{Name: "attach"} }

// attachAs starts `sandboxd attach` as a user, and a client over its stdio.
func attachAs(t *testing.T, w *World, uid uint32) (*exec.Cmd, *sandboxapi.Client, *bytes.Buffer) {
	t.Helper()
	cmd := exec.Command(BuildBinary(t), "attach", "--socket", w.Socket)
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, NoSetGroups: true}}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := sandboxapi.NewClient(sandboxapi.ClientConfig{Dial: func(context.Context) (net.Conn, error) {
		return attachConn{Reader: out, WriteCloser: in}, nil
	}})
	return cmd, c, &errs
}

// The runs that came through attach end, however the client disconnects.
func TestAttach(t *testing.T) {
	for _, way := range []string{"end of input", "SIGTERM", "SIGKILL"} {
		t.Run(way, func(t *testing.T) {
			w := StartWorld(t, Options{Mode: Container, Slots: 2, Warm: 1})
			cmd, client, said := attachAs(t, w, slot.ServiceUID)
			ctx := context.Background()
			lease, err := client.Acquire(ctx, sandboxapi.LeaseRequest{})
			if err != nil {
				t.Fatal(err, said)
			}
			up, ended := make(chan struct{}, 1), make(chan error, 1)
			go func() {
				_, err := client.Run(ctx, sandboxapi.RunRequest{
					Generation: lease.Generation, Run: "a", Language: sandboxapi.LanguageTypeScript, Permissions: w.Hash,
					Code: "console.log('up');\nfor (;;);\n", TimeoutMS: 60000,
				}, func(sandboxapi.Event) { up <- struct{}{} })
				ended <- err
			}()
			<-up
			switch way {
			case "end of input":
				_ = client.Close()
			case "SIGTERM":
				_ = cmd.Process.Signal(syscall.SIGTERM)
			case "SIGKILL":
				_ = cmd.Process.Kill()
			}
			start := time.Now()
			if err := <-ended; !errors.Is(err, sandboxapi.ErrInterrupted) {
				t.Errorf("got %v", err)
			}
			err = cmd.Wait()
			if way != "SIGKILL" && err != nil {
				t.Errorf("attach: %v %s", err, said)
			}
			for deadline := start.Add(testkit.Patience); ; time.Sleep(10 * time.Millisecond) {
				s, err := w.Client.Stats(ctx)
				if err == nil && s.Leased == 0 && s.Quarantined == 0 {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("%+v %v", s, err)
				}
			}
			nothingLeft(t, w, Container)
		})
	}
}

// Only the owner can reach the socket, and the user of each connection is checked.
func TestWhoMayConnect(t *testing.T) {
	w := StartWorld(t, Options{Mode: Container, Slots: 1})
	for _, uid := range []uint32{20000, 20050, 65534} {
		cmd, client, said := attachAs(t, w, uid)
		if _, err := client.Health(context.Background()); err == nil {
			t.Errorf("user %d may connect", uid)
			_ = cmd.Process.Kill()
		}
		_ = cmd.Wait()
		if !strings.Contains(said.String(), "permission denied") {
			t.Errorf("user %d: %s", uid, said)
		}
	}
	// Even with an open directory, the peer's uid is refused.
	if err := errors.Join(os.Chmod(filepath.Dir(w.Socket), 0o711), os.Chmod(w.Socket, 0o777)); err != nil {
		t.Fatal(err)
	}
	cmd, client, _ := attachAs(t, w, 20000)
	if _, err := client.Health(context.Background()); err == nil {
		t.Error("user 20000 may connect")
		_ = cmd.Process.Kill()
	}
	_ = cmd.Wait()
	if !strings.Contains(w.ReadLog(), "user 20000 may not connect") {
		t.Error(w.ReadLog())
	}
}

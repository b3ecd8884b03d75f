package bridge_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
)

// hostile starts a bridge with the server of testdata/hostile.
func hostile(t *testing.T, faults ...string) *broker {
	t.Helper()
	limit := testkit.Patience
	if slices.Contains(faults, "silent-at-initialize") {
		limit = 8 * time.Second
	}
	return begin(t, bridgewire.Start{
		Command: append([]string{fakepeers.BuildHostile(t)}, faults...), Env: map[string]string{"HOME": t.TempDir()},
		ConnectTimeoutMS: limit.Milliseconds(),
	})
}

// arrival waits until a call that named this directory has arrived at the server.
func arrival(t *testing.T, dir string) {
	t.Helper()
	testkit.WaitFor(t, func() bool {
		arrived, err := os.ReadDir(dir)
		return err == nil && len(arrived) > 0
	})
}

func TestConnecting(t *testing.T) {
	for name, c := range map[string]struct {
		faults   []string
		protocol string
		atLeast  time.Duration
	}{
		"well behaved":                      {nil, "2025-11-25", 0},
		"banner":                            {[]string{"banner"}, "2025-11-25", 0},
		"knows discover":                    {[]string{"knows-discover"}, "2026-07-28", 0},
		"knows discover, but starts slowly": {[]string{"knows-discover", "slow-start"}, "2026-07-28", 0},
		"starts slowly":                     {[]string{"slow-start"}, "2025-11-25", 0},
		"never answers discover":            {[]string{"silent-at-server-discover"}, "2025-11-25", 3 * time.Second},
		"dies at discover":                  {[]string{"dies-at-server-discover"}, "2025-11-25", 0},
		"floods standard error":             {[]string{"floods-stderr"}, "2025-11-25", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			b := hostile(t, c.faults...)
			if r := b.ready(); r.Protocol != c.protocol || time.Since(began) < c.atLeast {
				t.Errorf("%+v after %v", r, time.Since(began))
			}
			if got := b.call("echo", `{"text":"hi"}`); got != "hi" {
				t.Errorf("echo: %s", got)
			}
		})
	}
}

func TestNotConnecting(t *testing.T) {
	for name, c := range map[string]struct {
		faults     []string
		code, text string
	}{
		"dies at start":            {[]string{"dies-at-start"}, bridgewire.NotStarted, "exit status 3"},
		"says why it dies":         {[]string{"dies-at-start"}, bridgewire.NotStarted, "KEY is required"},
		"dies at initialize":       {[]string{"dies-at-initialize"}, bridgewire.NotStarted, "exit status 4"},
		"never answers anything":   {[]string{"silent-at-server-discover", "silent-at-initialize"}, bridgewire.NotConnected, "did not answer within"},
		"never answers, nor stops": {[]string{"silent-at-server-discover", "silent-at-initialize", "ignores-eof", "ignores-sigterm"}, bridgewire.NotConnected, "did not answer within"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := hostile(t, c.faults...)
			f := <-b.first
			if f.Failed == nil || f.Failed.Code != c.code || !strings.Contains(f.Failed.Message, c.text) {
				t.Errorf("%+v %+v", f.Ready, f.Failed)
			}
			b.end()
		})
	}
	t.Run("no such program", func(t *testing.T) {
		b := begin(t, bridgewire.Start{Command: []string{"no-such-program"}})
		f := <-b.first
		if f.Failed == nil || f.Failed.Code != bridgewire.NotStarted || !strings.Contains(f.Failed.Message, `there is no program "no-such-program"`) {
			t.Errorf("%+v", f.Failed)
		}
	})
	t.Run("no interpreter", func(t *testing.T) {
		script := filepath.Join(t.TempDir(), "server.py")
		testkit.Must(t, os.WriteFile(script, []byte("#!/no/such/python3\n"), 0o700))
		b := begin(t, bridgewire.Start{Command: []string{script}})
		f := <-b.first
		if f.Failed == nil || f.Failed.Code != bridgewire.NotStarted || strings.Contains(f.Failed.Message, "no program") ||
			!strings.Contains(f.Failed.Message, "the interpreter") {
			t.Errorf("%+v", f.Failed)
		}
	})
}

// TestBadAnswers: a bad answer is an error for its own caller, and the server goes on.
func TestBadAnswers(t *testing.T) {
	began := time.Now()
	b := hostile(t, "floods-stderr")
	b.ready()
	_, slow := b.send(bridgewire.CallMethod, bridgewire.Call{Name: "slow", Arguments: json.RawMessage(`{"text":"still right","ms":8000}`)})
	huge := 256 // MB, of which the bridge may hold a small part
	if testkit.Race {
		huge = 24
	}
	for _, c := range []struct{ tool, want string }{
		{"huge", bridgewire.ResultTooLarge},
		{"deep", bridgewire.ResultTooLarge},
		{"other-id", "hi"},
		{"twice", "hi"},
		{"error", bridgewire.ServerError + ": the tool says no"},
		{"no-such-tool", bridgewire.ServerError + ": Unknown tool"},
		{"stray", "hi"},
	} {
		if got := b.call(c.tool, fmt.Sprintf(`{"text":"hi","ms":%d}`, huge)); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %.100s", c.tool, got)
		}
		if got := b.call("echo", `{"text":"after"}`); got != "after" {
			t.Errorf("after %s: %.100s", c.tool, got)
		}
	}
	if got := text(b.wait(slow)); got != "still right" {
		t.Errorf("slow: %s", got)
	}
	_, odd := b.send(bridgewire.CallMethod, bridgewire.Call{Name: "odd", Arguments: json.RawMessage(`{}`)})
	if f := b.wait(odd); string(f.Result) != `{"content":[{"type":"hologram","z":1,"a":"<b>"}],"structuredContent":{"n":12345678901234567890}}` {
		t.Errorf("the result is not as the server wrote it: %s %v", f.Result, f.Error)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if n, took := b.logs.Len(), time.Since(began); n == 0 || n > 256<<10+int(took.Seconds())*16<<10 {
		t.Errorf("%d bytes of log in %s from a server that floods", n, took)
	}
}

func TestLists(t *testing.T) {
	for fault, want := range map[string]int{"": 22, "endless-pages": 100, "same-cursor": 2} {
		b := hostile(t, fault)
		b.ready()
		_, c := b.send(bridgewire.ToolsMethod, nil)
		var list bridgewire.Tools
		if f := b.wait(c); json.Unmarshal(f.Result, &list) != nil || len(list.Tools) != want || list.Truncated != (fault == "endless-pages") {
			t.Errorf("%s: %d tools, truncated %v, %v", fault, len(list.Tools), list.Truncated, f.Error)
		}
		_, c = b.send(bridgewire.ResourcesMethod, nil)
		if f := b.wait(c); string(f.Result) != `{"resources":[],"templates":[]}`+"\n" && string(f.Result) != `{"resources":[],"templates":[]}` {
			t.Errorf("resources of a server without any: %s %v", f.Result, f.Error)
		}
	}
}

func TestDying(t *testing.T) {
	for tool, status := range map[string]string{"die": "exit status 5", "half": "exit status 6"} {
		b := hostile(t)
		b.ready()
		dir := t.TempDir()
		_, other := b.send(bridgewire.CallMethod, bridgewire.Call{Name: "never", Arguments: json.RawMessage(fmt.Sprintf(`{"dir":%q}`, dir))})
		arrival(t, dir)
		if got := b.call(tool, `{"text":"hi"}`); !strings.HasPrefix(got, bridgewire.Gone) {
			t.Errorf("%s: %s", tool, got)
		}
		if got := text(b.wait(other)); !strings.HasPrefix(got, bridgewire.Gone) {
			t.Errorf("the other call: %s", got)
		}
		select {
		case f := <-b.failed:
			if f.Code != bridgewire.Gone || !strings.Contains(f.Message, status) {
				t.Errorf("%+v", f)
			}
		case <-time.After(testkit.Patience):
			t.Error("the bridge says nothing")
		}
	}
}

// TestDaemonLeft: a server that has ended is noticed although a process that it left behind, which only the slot's end
// ends, holds its output.
func TestDaemonLeft(t *testing.T) {
	home := t.TempDir()
	b := begin(t, bridgewire.Start{Command: []string{fakepeers.BuildHostile(t), "forks", "daemon"}, Env: map[string]string{"HOME": home}})
	b.ready()
	text, err := os.ReadFile(filepath.Join(home, "forked"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	if got := b.call("die", `{"text":""}`); !strings.HasPrefix(got, bridgewire.Gone) {
		t.Errorf("the call: %s", got)
	}
	if f := <-b.failed; !strings.Contains(f.Message, "exit status 5") {
		t.Errorf("%+v", f)
	}
}

func TestCancel(t *testing.T) {
	for tool, want := range map[string]string{"never": bridgewire.Abandoned, "block": bridgewire.Hung, "meet": bridgewire.Cancelled} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			b := hostile(t)
			b.ready()
			dir := t.TempDir()
			id, c := b.send(bridgewire.CallMethod, bridgewire.Call{Name: tool, Arguments: fmt.Appendf(nil, `{"ms":120000,"dir":%q}`, dir)})
			arrival(t, dir)
			if err := b.to.Write(bridgewire.ToBridge{Cancel: id}); err != nil {
				t.Fatal(err)
			}
			if f := b.wait(c); f.Error == nil || f.Error.Code != want {
				t.Errorf("%s %v, want %s", f.Result, f.Error, want)
			}
		})
	}
}

func TestChanges(t *testing.T) {
	b := hostile(t)
	b.ready()
	began := time.Now()
	if got := b.call("change", `{"text":"hi"}`); got != "hi" {
		t.Errorf("change: %s", got)
	}
	<-b.changes
	time.Sleep(300 * time.Millisecond)
	if n, took := len(b.changes), time.Since(began); n > 1+int(took/(100*time.Millisecond)) {
		t.Errorf("%d more frames in %s for a thousand notifications", n, took)
	}
}

// TestNothingLeft: what the server forked ends with it, also if it ignores every wish.
func TestNothingLeft(t *testing.T) {
	home := t.TempDir()
	b := begin(t, bridgewire.Start{
		Command: []string{fakepeers.BuildHostile(t), "forks", "ignores-eof", "ignores-sigterm"}, Env: map[string]string{"HOME": home},
	})
	b.ready()
	text, err := os.ReadFile(filepath.Join(home, "forked"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	b.end()
	for end := time.Now().Add(testkit.Patience); time.Now().Before(end); {
		if syscall.Kill(pid, 0) != nil {
			return
		}
		if out, _ := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output(); strings.HasPrefix(string(out), "Z") {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Error("a process is left")
}

// TestFramesFromBroker: what makes no sense is an error, and ends nothing.
func TestFramesFromBroker(t *testing.T) {
	b := hostile(t)
	b.ready()
	for _, c := range []struct {
		method string
		params any
	}{{"no-such-method", nil}, {bridgewire.CallMethod, "text"}, {bridgewire.ReadMethod, nil}} {
		_, answer := b.send(c.method, c.params)
		if f := b.wait(answer); f.Error == nil || f.Error.Code != bridgewire.BadRequest {
			t.Errorf("%s: %s %v", c.method, f.Result, f.Error)
		}
	}
	if err := b.to.Write(bridgewire.ToBridge{Cancel: 12345}); err != nil {
		t.Fatal(err)
	}
	if got := b.call("echo", `{"text":"hi"}`); got != "hi" {
		t.Errorf("echo: %s", got)
	}
}

// TestNoGoroutineLeft: a bridge that has ended has no goroutine left.
func TestNoGoroutineLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 3 {
		b := hostile(t)
		b.ready()
		b.call("echo", `{"text":"hi"}`)
		b.end()
	}
	for end := time.Now().Add(testkit.Patience); time.Now().Before(end); {
		if runtime.NumGoroutine() <= before+2 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	buf := make([]byte, 64<<10)
	t.Errorf("%d goroutines, before %d\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
}

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// soon are the settings of a program that answers after a second.
var soon = map[string]string{"ANSWER_AFTER": "1"}

// stepwise is code that prints "began", and each text of steps. It ends when the channel is closed. Code "quick" ends
// at once, and code "forever" never ends.
func stepwise(steps <-chan string) fakepeers.Script {
	return func(ctx context.Context, r sandboxapi.RunRequest, emit func(sandboxapi.Event)) sandboxapi.Exit {
		emit(sandboxapi.Event{Stdout: "began\n"})
		for r.Code != "quick" {
			select {
			case <-ctx.Done():
				return sandboxapi.Exit{Reason: sandboxapi.Cancelled}
			case text, ok := <-steps:
				if !ok {
					return sandboxapi.Exit{Reason: sandboxapi.Exited}
				}
				emit(sandboxapi.Event{Stdout: text})
			}
		}
		return sandboxapi.Exit{Reason: sandboxapi.Exited}
	}
}

var goesOn = regexp.MustCompile(`^Run (r[a-z2-7]{12}): still (running|waiting for a slot), \d+ s; get_run waits for more\.$`)

// startLong starts code that goes on, and returns the ID of its run and the first block of the answer.
func startLong(t *testing.T, s *mcp.ClientSession, args map[string]any) (id, shown string) {
	t.Helper()
	res, got := call(t, s, "execute_code", args)
	last := goesOn.FindStringSubmatch(got[len(got)-1])
	if res.IsError || last == nil || res.Meta["codeforge/run"] != last[1] {
		t.Fatalf("error %v, blocks %q, meta %v", res.IsError, got, res.Meta)
	}
	return last[1], got[0]
}

// withSession connects a client whose protocol has sessions. Without sessions, all clients of one machine with the same
// name count as one.
func withSession(t *testing.T, p *program) *mcp.ClientSession {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	s, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: p.url()}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// look calls get_run and returns its blocks.
func look(t *testing.T, s *mcp.ClientSession, id string, args map[string]any) string {
	t.Helper()
	all := map[string]any{"id": id}
	for k, v := range args {
		all[k] = v
	}
	_, got := call(t, s, "get_run", all)
	return strings.Join(got, "|")
}

// TestLongRun: after ANSWER_AFTER, a call returns the run's output so far. The run survives its session. get_run gives
// each session the output that it has not seen, then the end, then everything.
func TestLongRun(t *testing.T) {
	t.Parallel()
	steps := make(chan string)
	p := start(t, 2, soon, "--history", t.TempDir())
	p.sandbox.SetScript(stepwise(steps))
	first := withSession(t, p)
	began := time.Now()
	id, shown := startLong(t, first, map[string]any{"code": "long"})
	if took := time.Since(began); shown != "began\n" || took < 900*time.Millisecond || took > 20*time.Second {
		t.Errorf("%q after %v", shown, took)
	}
	_ = first.Close()

	s := withSession(t, p)
	if got := look(t, s, id, map[string]any{"wait": 0}); !strings.HasPrefix(got, "began\n|Run "+id+": still running, ") {
		t.Errorf("another session: %q", got)
	}
	steps <- "middle\n"
	if got := look(t, s, id, nil); !strings.HasPrefix(got, "middle\n|Run "+id+": still running, ") {
		t.Errorf("the same session: %q", got)
	}
	// If a client gives up its look, the run goes on, and the client misses no output.
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	_, err := s.CallTool(short, &mcp.CallToolParams{Name: "get_run", Arguments: map[string]any{"id": id, "wait": 100}})
	cancel()
	if err == nil {
		t.Error("the look was answered")
	}
	op := operatorapi.Client{HTTP: p.onSocket()}
	testkit.WaitFor(t, func() bool { // the history follows
		d, err := op.Run(t.Context(), id)
		return err == nil && d.State == operatorapi.Running
	})
	steps <- "last\n"
	close(steps)
	for _, want := range []string{"last\n|Run " + id + " has ended.", "began\nmiddle\nlast\n", "began\nmiddle\nlast\n"} {
		if got := look(t, s, id, map[string]any{"wait": 30}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := look(t, withSession(t, p), id, nil); got != "began\nmiddle\nlast\n" {
		t.Errorf("a third session: %q", got)
	}
	if d, err := op.Run(t.Context(), id); err != nil || d.State != operatorapi.OK {
		t.Errorf("the history: %+v %v", d.Run, err)
	}
	if n := p.sandbox.WaitForReleases(); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

// TestBackground: a call with background returns at once. Background runs take at most half of the slots, so that other
// runs find one. A run beyond that ends with its client.
// Promise: tenant-shares
func TestBackground(t *testing.T) {
	t.Parallel()
	p := start(t, 4, map[string]string{"ANSWER_AFTER": "1", "SANDBOX_SLOTS": "4"})
	p.sandbox.SetScript(stepwise(nil))
	s := p.connect(t, nil)
	var ids []string
	for range 2 {
		id, _ := startLong(t, s, map[string]any{"code": "forever", "background": true})
		ids = append(ids, id)
	}
	res, got := call(t, s, "execute_code", map[string]any{"code": "forever", "background": true})
	if !res.IsError || !strings.Contains(got[0], "too many runs are in the background") || !strings.HasSuffix(got[0], strings.Join(ids, ", ")) {
		t.Errorf("%q", got)
	}
	short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if res, err := s.CallTool(short, &mcp.CallToolParams{Name: "execute_code", Arguments: map[string]any{"code": "forever"}}); err == nil {
		t.Errorf("a third run left its call: %q", texts(res))
	}
	if _, got := call(t, s, "execute_code", map[string]any{"code": "quick"}); got[0] != "began\n" {
		t.Errorf("no slot is left: %q", got)
	}
	for _, id := range ids {
		if got := look(t, s, id, map[string]any{"cancel": true}); !strings.Contains(got, "Cancelled: the run was stopped before it ended.") {
			t.Errorf("%q", got)
		}
	}
	if n := p.sandbox.WaitForReleases(); n != 0 {
		t.Errorf("%d leases are left", n)
	}
	id, _ := startLong(t, s, map[string]any{"code": "forever", "background": true})
	look(t, s, id, map[string]any{"cancel": true})
}

// TestGetRunArguments: get_run explains mistakes, and does not know an ID without a run.
func TestGetRunArguments(t *testing.T) {
	t.Parallel()
	s := start(t, 1, nil, "--history", t.TempDir()).connect(t, nil)
	for _, c := range []struct{ args, want string }{
		{`{}`, "id: missing, want the ID of a run"},
		{`{"id": "raaaaaaaaaaaa", "wait": -1}`, "wait: found the number -1, want a number of seconds from 0 to 300"},
		{`{"id": "raaaaaaaaaaaa"}`, `There is no run "raaaaaaaaaaaa" here.`},
		{`{"id": "r"}`, `There is no run "r" here.`},
		{`{"id": ""}`, "id: empty"},
	} {
		var args map[string]any
		testkit.Must(t, json.Unmarshal([]byte(c.args), &args))
		if res, got := call(t, s, "get_run", args); !res.IsError || !strings.Contains(got[0], c.want) {
			t.Errorf("%s: %q", c.args, got)
		}
	}
}

// TestRestartEndsRuns: get_run explains a run that a restart has ended, with and without a history.
func TestRestartEndsRuns(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"history": {"--history", t.TempDir()}, "none": nil} {
		t.Run(name, func(t *testing.T) {
			p := start(t, 2, soon, append(flags, "--drain", "200ms")...)
			p.sandbox.SetScript(stepwise(nil))
			id, _ := startLong(t, p.connect(t, nil), map[string]any{"code": "forever"})
			testkit.Must(t, p.stop())
			p.launch(t, soon, flags...)
			got := look(t, p.connect(t, nil), id, nil)
			if !strings.Contains(strings.ToLower(got), "restart of the server ended it") || name == "history" && !strings.HasPrefix(got, "began\n") {
				t.Errorf("%q", got)
			}
			if name != "history" {
				return
			}
			d, err := operatorapi.Client{HTTP: p.onSocket()}.Run(t.Context(), id)
			if err != nil || d.State != operatorapi.Stopped || d.Reason != "restart" {
				t.Errorf("%+v %v", d.Run, err)
			}
		})
	}
}

// TestDrainWaitsForRuns: a program that stops waits for background runs for its drain time.
func TestDrainWaitsForRuns(t *testing.T) {
	t.Parallel()
	flags := []string{"--history", t.TempDir()}
	p := start(t, 2, soon, append(flags, "--drain", "1m")...)
	steps := make(chan string)
	p.sandbox.SetScript(stepwise(steps))
	id, _ := startLong(t, p.connect(t, nil), map[string]any{"code": "long", "background": true})
	go func() {
		time.Sleep(500 * time.Millisecond)
		close(steps)
	}()
	testkit.Must(t, p.stop())
	p.launch(t, soon, flags...)
	if got := look(t, p.connect(t, nil), id, nil); got != "began\n" {
		t.Errorf("%q", got)
	}
}

// tenantsOf starts a program for the tenants ann and bob, and returns a function that connects as one, or as the
// operator.
func tenantsOf(t *testing.T, slots int, env map[string]string, flags ...string) (*program, func(*program, string) *mcp.ClientSession) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tenants.json")
	line := func(name string) string {
		return fmt.Sprintf(`%q: {"tokens": ["sha256:%x"], "apis": ["stripe"]}`, name, sha256.Sum256([]byte("token-of-tenant-"+name)))
	}
	testkit.Must(t, os.WriteFile(file, []byte(`{"tenants": {`+line("ann")+","+line("bob")+"}}"), 0o600))
	all := map[string]string{"MCP_AUTH_TOKEN": "token-of-tenant-operator", "MCP_TOKENS_FILE": file, "ANSWER_AFTER": "1"}
	for k, v := range env {
		all[k] = v
	}
	p := start(t, slots, all, append(flags, "--tenants", t.TempDir())...)
	return p, func(p *program, name string) *mcp.ClientSession {
		c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		s, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: p.url(), HTTPClient: &http.Client{Transport: bearer("token-of-tenant-" + name)}}, nil)
		testkit.Must(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
}

// TestRunsOfTenants: another tenant and the operator cannot use the ID of a tenant's run, also as a task. This holds
// during the run, after its end, and if only the history has the run.
// Promise: tenant-sessions
func TestRunsOfTenants(t *testing.T) {
	t.Parallel()
	flags := []string{"--history", t.TempDir()}
	p, as := tenantsOf(t, 8, nil, flags...)
	steps := make(chan string)
	p.sandbox.SetScript(stepwise(steps))
	ann := as(p, "ann")
	id, _ := startLong(t, ann, map[string]any{"code": "of ann"})
	check := func(when string) {
		t.Helper()
		for _, other := range []string{"bob", "operator"} {
			for _, args := range []map[string]any{nil, {"cancel": true}} {
				if got := look(t, as(p, other), id, args); strings.Contains(got, "began") || !strings.Contains(got, "There is no run") {
					t.Errorf("%s: %s got %q", when, other, got)
				}
			}
			checkTask(t, p, "token-of-tenant-"+other, id, "")
		}
	}
	check("while it runs")
	checkTask(t, p, "token-of-tenant-ann", id, "working")
	steps <- "middle\n"
	close(steps)
	if got := look(t, ann, id, nil); got != "middle\n|Run "+id+" has ended." {
		t.Errorf("its own tenant got %q", got)
	}
	check("after its end")
	checkTask(t, p, "token-of-tenant-ann", id, "completed")
	testkit.Must(t, p.stop())
}

// TestRunsOfReplicas: another replica shows, awaits and cancels a run, also as a task, and has its files, but only for
// the run's tenant.
// Promise: shared-runs, tenant-sessions
func TestRunsOfReplicas(t *testing.T) {
	store := testkit.NewPostgres(t)
	env := map[string]string{"DATABASE_URL": store.URL()}
	one, as := tenantsOf(t, 8, env, "--history", t.TempDir(), "--pins", t.TempDir())
	two, asTwo := tenantsOf(t, 8, env, "--history", t.TempDir(), "--pins", t.TempDir())
	steps := make(chan string)
	one.sandbox.SetScript(stepwise(steps))
	ann, there := as(one, "ann"), asTwo(two, "ann")
	ended, _ := startLong(t, ann, map[string]any{"code": "ends", "background": true})
	var got string
	testkit.WaitFor(t, func() bool {
		got = look(t, there, ended, map[string]any{"wait": 0})
		return strings.Contains(got, "still running, at another replica")
	})
	for _, other := range []string{"bob", "operator"} {
		if got := look(t, asTwo(two, other), ended, map[string]any{"cancel": true}); !strings.Contains(got, "There is no run") {
			t.Errorf("%s got %q", other, got)
		}
		checkTask(t, two, "token-of-tenant-"+other, ended, "")
	}
	checkTask(t, two, "token-of-tenant-ann", ended, "working")
	go func() { steps <- "last\n"; close(steps) }()
	if got := look(t, there, ended, map[string]any{"wait": 30}); got != "began\nlast\n" {
		t.Errorf("%q", got)
	}

	one.sandbox.SetScript(stepwise(nil))
	stopped, _ := startLong(t, ann, map[string]any{"code": "forever", "background": true})
	testkit.WaitFor(t, func() bool {
		return strings.Contains(look(t, there, stopped, map[string]any{"wait": 0}), "at another replica")
	})
	if got := look(t, there, stopped, map[string]any{"cancel": true}); !strings.Contains(got, "Cancelled: the run was stopped") {
		t.Errorf("%q", got)
	}
	if got := look(t, ann, stopped, nil); !strings.Contains(got, "Cancelled: the run was stopped") {
		t.Errorf("at its own replica: %q", got)
	}
	checkTask(t, two, "token-of-tenant-ann", stopped, "cancelled")

	third, _ := startLong(t, ann, map[string]any{"code": "forever", "background": true})
	tasks := newTaskClient(t, two, "token-of-tenant-ann", "2025-11-25", "")
	testkit.WaitFor(t, func() bool { got, _ := tasks.ask(t, "get", third); return got.Status == "working" })
	if got, code := tasks.ask(t, "cancel", third); got.Status != "cancelled" {
		t.Errorf("%d %+v", code, got)
	}
	checkFilesElsewhere(t, one, two, as)
}

// checkFilesElsewhere leaves files at a replica. The other one must link to them in get_run and as a task, and give them
// to their tenant and to its console.
func checkFilesElsewhere(t *testing.T, one, two *program, as func(*program, string) *mcp.ClientSession) {
	t.Helper()
	var data bytes.Buffer
	testkit.Must(t, png.Encode(&data, image.NewGray(image.Rect(0, 0, 1, 1))))
	one.sandbox.SetScript(func(_ context.Context, _ sandboxapi.RunRequest, emit func(sandboxapi.Event)) sandboxapi.Exit {
		emit(sandboxapi.Event{Stdout: "drawn\n"})
		emit(sandboxapi.Event{File: &sandboxapi.File{Name: "shown-1", Shown: true, Data: data.Bytes()}})
		emit(sandboxapi.Event{File: &sandboxapi.File{Name: "a report.csv", Data: []byte("a,b\n")}})
		return sandboxapi.Exit{Reason: sandboxapi.Exited}
	})
	links := func(res *mcp.CallToolResult) (out []string) {
		for _, c := range res.Content {
			if l, ok := c.(*mcp.ResourceLink); ok {
				out = append(out, l.URI)
			}
		}
		return out
	}
	res, err := as(one, "ann").CallTool(t.Context(), &mcp.CallToolParams{Name: "execute_code", Arguments: map[string]any{"code": "files"}})
	testkit.Must(t, err)
	own := links(res)
	if len(own) != 1 || len(res.Content) != 3 {
		text, _ := json.Marshal(res.Content)
		t.Fatalf("at its own replica: %s", text)
	}
	id := strings.Split(own[0], "/")[3]
	folder := "codeforge://runs/" + id + "/files/"
	want := []string{folder + "a%20report.csv", folder + "shown-1.png"}

	there := as(two, "ann")
	for uri, content := range map[string]string{want[0]: "a,b\n", want[1]: data.String()} {
		var got *mcp.ReadResourceResult
		testkit.WaitFor(t, func() bool {
			got, err = there.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
			return err == nil
		})
		if c := got.Contents[0]; c.Text+string(c.Blob) != content {
			t.Errorf("%s: %+v", uri, c)
		}
		for _, other := range []string{"bob", "operator"} {
			if got, err := as(two, other).ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); err == nil {
				t.Errorf("%s reads %s: %+v", other, uri, got.Contents[0])
			}
		}
	}
	res, err = there.CallTool(t.Context(), &mcp.CallToolParams{Name: "get_run", Arguments: map[string]any{"id": id}})
	testkit.Must(t, err)
	if got := links(res); fmt.Sprint(got) != fmt.Sprint(want) || res.Content[0].(*mcp.TextContent).Text != "drawn\n" {
		t.Errorf("get_run links to %q: %+v", got, res.Content[0])
	}
	tasks := newTaskClient(t, two, "token-of-tenant-ann", "2026-07-28", "io.modelcontextprotocol/tasks")
	if got, code := tasks.ask(t, "get", id); code != 0 || got.Result == nil || fmt.Sprint(links(got.Result)) != fmt.Sprint(want) {
		t.Errorf("the task: %d %+v", code, got)
	}

	login, err := operatorapi.Client{HTTP: two.onSocket()}.Console(t.Context())
	testkit.Must(t, err)
	console := func(token, method, path, body string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+two.addr+"/console/api/"+path, strings.NewReader(body))
		testkit.Must(t, err)
		req.Header.Set("Content-Type", "application/json")
		resp, err := (&http.Client{Transport: bearer(token)}).Do(req)
		testkit.Must(t, err)
		defer resp.Body.Close()
		got, err := io.ReadAll(resp.Body)
		testkit.Must(t, err)
		return resp.StatusCode, string(got)
	}
	var opened struct{ Bearer string }
	_, answer := console("", http.MethodPost, "session", `{"secret": "`+login.Code+`"}`)
	testkit.Must(t, json.Unmarshal([]byte(answer), &opened))
	path := "runs/" + id + "/files/a%20report.csv"
	if status, data := console(opened.Bearer, http.MethodGet, path, ""); status != http.StatusOK || data != "a,b\n" {
		t.Errorf("the console: %d %q", status, data)
	}
	if status, data := console("token-of-tenant-bob", http.MethodGet, path, ""); status != http.StatusUnauthorized {
		t.Errorf("the console for a tenant: %d %q", status, data)
	}
}

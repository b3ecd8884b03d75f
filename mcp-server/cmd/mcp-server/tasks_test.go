package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
)

// TestTasks drives tasks of revision 2025-11-25 with the TypeScript SDK's client. A task survives its client, and the
// restart of the program ends it.
func TestTasks(t *testing.T) {
	t.Parallel()
	// Modules are found from the script's folder: NODE_PATH has no effect on import.
	dir := t.TempDir()
	testkit.Must(t, os.CopyFS(dir, os.DirFS("testdata")))
	testkit.Must(t, os.Symlink(testkit.InstallClients(t), filepath.Join(dir, "node_modules")))
	flags := []string{"--history", t.TempDir(), "--drain", "200ms"}
	p := start(t, 4, soon, flags...)
	p.sandbox.SetScript(scripted(p))
	cmd := exec.CommandContext(t.Context(), testkit.NodeBinary(t), filepath.Join(dir, "tasks.mjs"), p.url())
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	testkit.Must(t, err)
	out, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	lines := bufio.NewScanner(out)
	check := func(want map[string]any) {
		t.Helper()
		if !lines.Scan() {
			t.Fatal("the driver ended")
		}
		var got map[string]any
		testkit.Must(t, json.Unmarshal(lines.Bytes(), &got))
		for key := range want {
			begins, _ := want[key].(string)
			if text, isText := got[key].(string); got[key] != want[key] && (!isText || !strings.HasPrefix(text, begins)) {
				t.Errorf("%s: got %v, want %v", key, got[key], want[key])
			}
		}
		if got["error"] != nil {
			t.Fatal(got["error"])
		}
	}
	check(map[string]any{
		"run":     "taskCreated taskStatus result: half\nwhole\n",
		"failed":  "taskCreated taskStatus result: ERROR ",
		"mistake": "error: MCP error -32602: Not run: mistakes in the arguments of execute_code:\n- there is no argument \"cod\"; did you mean",
		"other":   "error: MCP error -32601",
		"ttl":     3900000.0, // TIMEOUT_MAX and an hour
		"after":   "working", "listed": true, "cancel": "cancelled", "result": "Cancelled: the run was stopped before it ended.",
		"again": "MCP error -32602: the task has ended", "byTool": "cancelled", "unknown": "MCP error -32602: there is no task",
	})
	testkit.Must(t, p.stop())
	p.launch(t, soon, flags...)
	_, _ = io.WriteString(in, "\n")
	check(map[string]any{"state": "completed", "result": "The restart of the server ended it. ", "listed": 5.0})
	testkit.Must(t, cmd.Wait())
	if n := p.sandbox.WaitForReleases(); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

// taskClient is a client with the methods of tasks.
type taskClient struct{ *mcp.ClientSession }

type taskParams struct {
	mcp.ParamsBase
	ID string `json:"taskId,omitempty"`
}

type taskAnswer struct {
	mcp.ResultBase
	Type   string              `json:"resultType"`
	ID     string              `json:"taskId"`
	Status string              `json:"status"`
	Result *mcp.CallToolResult `json:"result"`
	Tasks  []taskAnswer        `json:"tasks"`
}

// newTaskClient connects with a protocol version and, if extension is set, with the extension.
func newTaskClient(t *testing.T, p *program, token, version, extension string) taskClient {
	t.Helper()
	o := &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}}
	if extension != "" {
		o.Capabilities.AddExtension(extension, nil)
	}
	c := mcp.NewClient(&mcp.Implementation{Name: "tasks", Version: "1"}, o)
	for _, method := range []string{"get", "result", "cancel", "list", "update"} {
		testkit.Must(t, mcp.AddSendingCustomMethod[*taskParams, *taskAnswer](c, "tasks/"+method))
	}
	transport := &mcp.StreamableClientTransport{Endpoint: p.url(), HTTPClient: &http.Client{Transport: bearer(token)}}
	s, err := c.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return taskClient{s}
}

// ask calls a method of tasks. code is that of the error, or 0.
func (c taskClient) ask(t *testing.T, method, id string) (got *taskAnswer, code int64) {
	t.Helper()
	got, err := mcp.CallCustomMethod[*taskParams, *taskAnswer](t.Context(), c.ClientSession, "tasks/"+method, &taskParams{ID: id})
	var failure *jsonrpc.Error
	switch {
	case errors.As(err, &failure):
		return &taskAnswer{}, failure.Code
	case err != nil:
		t.Fatal(err)
	}
	return got, 0
}

// TestTasksExtension drives the extension of revision 2026-07-28: with the Inspector, which awaits the task of a run
// that outlives its call, and with the methods themselves.
func TestTasksExtension(t *testing.T) {
	modules := testkit.InstallClients(t)
	p := start(t, 4, soon)
	p.sandbox.SetScript(scripted(p))
	t.Setenv("HOME", t.TempDir())
	out, err := fakepeers.RunNode(t, t.TempDir(), filepath.Join(modules, "@modelcontextprotocol/inspector/clients/launcher/build/index.js"), "--cli", p.url(),
		"--transport", "http", "--protocol-era", "modern", "--method", "tools/call", "--tool-name", "execute_code", "--tool-arg", "code=slow")
	if err != nil || !strings.Contains(out, `"half\nwhole\n"`) {
		t.Errorf("%v\n%s", err, out)
	}

	const extension = "io.modelcontextprotocol/tasks"
	s := newTaskClient(t, p, "", "2026-07-28", extension)
	// background answers at once, as the model asked for it. The run is a task nevertheless.
	id, _ := startLong(t, s.ClientSession, map[string]any{"code": "forever", "background": true})
	if got, _ := s.ask(t, "get", id); got.ID != id || got.Status != "working" || got.Type != "complete" || got.Result != nil {
		t.Errorf("%+v", got)
	}
	for _, method := range []string{"update", "cancel"} {
		if got, code := s.ask(t, method, id); code != 0 || got.ID != "" || got.Type != "complete" {
			t.Errorf("%s: %d %+v", method, code, got)
		}
	}
	if got, _ := s.ask(t, "get", id); got.Status != "cancelled" || got.Result != nil {
		t.Errorf("%+v", got)
	}
	ended, _ := startLong(t, s.ClientSession, map[string]any{"code": "slow", "background": true})
	look(t, s.ClientSession, ended, map[string]any{"wait": 30})
	if got, _ := s.ask(t, "get", ended); got.Status != "completed" || strings.Join(texts(got.Result), "|") != "half\nwhole\n" {
		t.Errorf("%+v", got)
	}
	for _, c := range []struct {
		version, extension, method string
		code                       int64
	}{
		{"2026-07-28", extension, "list", jsonrpc.CodeMethodNotFound},
		{"2026-07-28", extension, "result", jsonrpc.CodeMethodNotFound},
		{"2026-07-28", "", "get", mcp.CodeMissingRequiredClientCapabilities},
		{"2026-07-28", "", "cancel", mcp.CodeMissingRequiredClientCapabilities},
		{"2025-11-25", extension, "update", jsonrpc.CodeMethodNotFound},
	} {
		if got, code := newTaskClient(t, p, "", c.version, c.extension).ask(t, c.method, ended); code != c.code {
			t.Errorf("%+v: %d %+v", c, code, got)
		}
	}
	// The extension has no effect on a client that does not declare it, and neither has its name in another revision.
	for _, c := range []taskClient{newTaskClient(t, p, "", "2026-07-28", ""), newTaskClient(t, p, "", "2025-11-25", extension)} {
		id, _ := startLong(t, c.ClientSession, map[string]any{"code": "forever"})
		look(t, c.ClientSession, id, map[string]any{"cancel": true})
	}
}

// checkTask fails unless the tenant of a token sees a run in a state, or does not see it if the state is empty.
func checkTask(t *testing.T, p *program, token, id, state string) {
	t.Helper()
	old, extended := newTaskClient(t, p, token, "2025-11-25", ""), newTaskClient(t, p, token, "2026-07-28", "io.modelcontextprotocol/tasks")
	for _, s := range []taskClient{old, extended} {
		if got, code := s.ask(t, "get", id); got.Status != state || (state == "") != (code == jsonrpc.CodeInvalidParams) {
			t.Errorf("%s got %d %+v, want %q", token, code, got, state)
		}
	}
	list, _ := old.ask(t, "list", "")
	if has := slices.ContainsFunc(list.Tasks, func(a taskAnswer) bool { return a.ID == id }); has != (state != "") {
		t.Errorf("%s: listed %v", token, has)
	}
	if state != "" {
		return
	}
	for _, method := range []string{"cancel", "result"} {
		if got, code := old.ask(t, method, id); code != jsonrpc.CodeInvalidParams {
			t.Errorf("%s: %s got %d %+v", token, method, code, cmp.Or(got, &taskAnswer{}))
		}
	}
	if got, code := extended.ask(t, "cancel", id); code != jsonrpc.CodeInvalidParams {
		t.Errorf("%s: cancel got %d %+v", token, code, got)
	}
}

// TestTasksOfUsers: tasks/list shows a user's own runs, and not those of another user of the tenant or of its token.
// This holds with a history and without.
// Promise: session-users
func TestTasksOfUsers(t *testing.T) {
	t.Parallel()
	f := fakepeers.NewIssuer(t)
	for _, mode := range []string{"full", "off"} {
		t.Run(mode, func(t *testing.T) {
			p, _ := startPublic(t, f, map[string]string{"HISTORY": mode})
			p.sandbox.SetScript(scripted(p))
			login := func(subject, group string) string {
				return f.SignClaims(t, f.Claims(publicURL+"/mcp", subject, map[string]any{"groups": group}))
			}
			carol := login("carol", "carol")
			id, _ := startLong(t, newTaskClient(t, p, carol, "2025-11-25", "").ClientSession, map[string]any{"code": "forever", "background": true})
			checkListed := func(name, token string, want bool) {
				t.Helper()
				list, code := newTaskClient(t, p, token, "2025-11-25", "").ask(t, "list", "")
				if has := slices.ContainsFunc(list.Tasks, func(a taskAnswer) bool { return a.ID == id }); has != want || code != 0 {
					t.Errorf("%s: listed %v, code %d", name, has, code)
				}
			}
			testkit.WaitFor(t, func() bool {
				list, _ := newTaskClient(t, p, carol, "2025-11-25", "").ask(t, "list", "")
				return len(list.Tasks) == 1
			})
			checkListed("the user, with another token", login("carol", "dave"), true)
			checkListed("another user of the tenant", login("dave", "dave"), false)
			checkListed("the tenant's token", "token-of-tenant-team", false)
			checkListed("another tenant", login("ann", "ann"), false)
		})
	}
}

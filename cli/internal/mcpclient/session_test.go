package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

type toolAnswer func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error)

// serveTools starts a server with these tools and resources, and connects to it.
func serveTools(t *testing.T, tools map[string]toolAnswer, resources map[string]*mcp.ReadResourceResult, o Options) *Session {
	t.Helper()
	s := mcp.NewServer(&mcp.Implementation{Name: "stand-in"}, &mcp.ServerOptions{Instructions: "<how>"})
	for name, answer := range tools {
		s.AddTool(&mcp.Tool{Name: name, Description: "a<b", InputSchema: map[string]any{"type": "object"}},
			mcp.ToolHandler(answer))
	}
	for uri, content := range resources {
		s.AddResource(&mcp.Resource{URI: uri, Name: uri, Description: "about " + uri, Size: 3},
			func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
				if content == nil {
					return nil, errors.New("no disk")
				}
				return content, nil
			})
	}
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(r *http.Request) *mcp.Server {
		if r.Header.Get("Authorization") != "Bearer secret" {
			return nil
		}
		return s
	}, nil))
	t.Cleanup(web.Close)
	c, err := Connect(t.Context(), Config{URL: web.URL, Token: secret.New("secret")}, o)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func text(parts ...string) (list []mcp.Content) {
	for _, p := range parts {
		list = append(list, &mcp.TextContent{Text: p})
	}
	return list
}

// TestRunCode reads every part of an answer. Notes for a person replace those for a model.
func TestRunCode(t *testing.T) {
	size := int64(7)
	file := &mcp.ResourceLink{URI: "run://1/a.txt", Name: "a.txt", MIMEType: "text/plain", Size: &size}
	stderr := &mcp.TextContent{Text: "stderr:\noops", Meta: mcp.Meta{streamKey: "stderr"}}
	for name, c := range map[string]struct {
		answer *mcp.CallToolResult
		err    error
		want   Result
		fails  string
	}{
		"plain": {answer: &mcp.CallToolResult{Content: text("out", "note 1", "note 2")},
			want: Result{Output: "out", Notes: []string{"note 1", "note 2"}}},
		"failed, stderr, a file, a link without a size": {
			answer: &mcp.CallToolResult{IsError: true, Content: append(text("out"), stderr, &mcp.ResourceLink{URI: "run://1/b", Name: "b"}, file)},
			want:   Result{Output: "out", Failed: true, Stderr: "oops", Files: []FileLink{{"run://1/a.txt", "a.txt", "text/plain", 7}}}},
		"a file first": {answer: &mcp.CallToolResult{Content: append([]mcp.Content{file}, text("note")...)},
			want: Result{Notes: []string{"note"}, Files: []FileLink{{"run://1/a.txt", "a.txt", "text/plain", 7}}}},
		"metadata": {
			answer: &mcp.CallToolResult{Content: text("for a model", "for a model"), Meta: mcp.Meta{
				exitKey: map[string]any{"reason": "exited", "code": 3}, receiptKey: map[string]any{}, notesKey: map[string]any{"output": "for a person", "notes": []string{"n"}},
			}},
			want: Result{Output: "for a person", Notes: []string{"n"}, Exit: &sandboxapi.Exit{Reason: sandboxapi.Exited, Code: 3}, Receipt: &proxyapi.Receipt{}}},
		"a bad exit":    {answer: &mcp.CallToolResult{Meta: mcp.Meta{exitKey: "x"}}, fails: "reading codeforge/exit of the answer"},
		"bad notes":     {answer: &mcp.CallToolResult{Meta: mcp.Meta{notesKey: "x"}}, fails: "reading codeforge/notes of the answer"},
		"a bad receipt": {answer: &mcp.CallToolResult{Meta: mcp.Meta{receiptKey: "x"}}, fails: "reading codeforge/receipt of the answer"},
		"an error":      {err: &jsonrpc.Error{Code: -32000, Message: "try later"}, fails: "try later"},
		"a bare error":  {err: &jsonrpc.Error{Code: -32000}, fails: "running the code: "},
	} {
		t.Run(name, func(t *testing.T) {
			progress := make(chan string, 9)
			s := serveTools(t, map[string]toolAnswer{"execute_code": func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				if r.Params.Meta[patientKey] != true || string(r.Params.Arguments) != `{"code":"x"}` {
					t.Errorf("called with %v, %s", r.Params.Meta, r.Params.Arguments)
				}
				err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Message: "half"})
				return c.answer, errors.Join(c.err, err)
			}}, nil, Options{Progress: func(m string) { progress <- m }})
			got, err := s.RunCode(t.Context(), Run{Code: "x"})
			if c.fails != "" {
				if err == nil || !strings.HasPrefix(err.Error(), c.fails) {
					t.Errorf("%v, want %s", err, c.fails)
				}
				return
			}
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			if got := <-progress; got != "half" {
				t.Errorf("progress %q", got)
			}
		})
	}
	s := serveTools(t, map[string]toolAnswer{}, nil, Options{})
	if _, err := s.RunCode(t.Context(), Run{Input: &sandboxapi.Input{}}); !errors.Is(err, errNoInput) {
		t.Errorf("an input over HTTP: %v", err)
	}
}

// TestTools: a tool that fails is an error with its text and notes.
func TestTools(t *testing.T) {
	var got []string
	fails := false
	list := func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		got = append(got, string(r.Params.Arguments))
		return &mcp.CallToolResult{IsError: fails, Content: text("head", "a", "b")}, nil
	}
	one := func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: text("only")}, nil
	}
	s := serveTools(t, map[string]toolAnswer{"list_apis": list, "get_instructions": one, "delete_skill": list}, nil, Options{})
	tools, err := s.ReadTools(t.Context(), "demo")
	found, err2 := s.SearchAPIs(t.Context(), "pay", "", true)
	within, err3 := s.SearchAPIs(t.Context(), "pay", "demo", false)
	if err := errors.Join(err, err2, err3, s.DeleteSkill(t.Context(), "k")); err != nil || tools != "a\nb" || found != "head" || within != "head" {
		t.Errorf("%q, %q, %q, %v", tools, found, within, err)
	}
	if want := []string{`{"api":"demo"}`, `{"explain":true,"query":"pay"}`, `{"api":"demo","explain":false,"query":"pay"}`, `{"name":"k"}`}; !cmp.Equal(got, want) {
		t.Errorf("called with %q", got)
	}
	fails = true
	if _, err := s.ReadTools(t.Context(), "demo"); err == nil || err.Error() != "head\na\nb" {
		t.Errorf("a tool that fails: %v", err)
	}
	s = serveTools(t, map[string]toolAnswer{"list_apis": func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, &jsonrpc.Error{Code: -32000, Message: "stopping"}
	}}, nil, Options{})
	if _, err := s.ReadTools(t.Context(), "demo"); err == nil || err.Error() != "stopping" {
		t.Errorf("a tool that does not answer: %v", err)
	}
	testkit.Must(t, s.Close())
	if _, err := s.ListSkills(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "listing the skills: ") {
		t.Errorf("a closed session: %v", err)
	}
}

// TestResources: a skill is a resource without a path. Files of runs are text or bytes.
func TestResources(t *testing.T) {
	content := func(list ...*mcp.ResourceContents) *mcp.ReadResourceResult {
		return &mcp.ReadResourceResult{Contents: append([]*mcp.ResourceContents{}, list...)}
	}
	s := serveTools(t, nil, map[string]*mcp.ReadResourceResult{
		"skill://pay": content(), "skill://calc.py": content(), "other://x": content(),
		"skill://pay/pay.ts":      content(&mcp.ResourceContents{URI: "skill://pay/pay.ts", Text: "export {}"}),
		"skill://calc.py/calc.py": content(&mcp.ResourceContents{URI: "skill://calc.py/calc.py", Text: "pass"}),
		"skill://none/none.ts":    content(), "skill://broken/broken.ts": nil,
		"run://1/text":  content(&mcp.ResourceContents{URI: "run://1/text", Text: "t"}),
		"run://1/bytes": content(&mcp.ResourceContents{URI: "run://1/bytes", Blob: []byte{0xff}}),
		"run://1/two":   content(&mcp.ResourceContents{URI: "run://1/two"}, &mcp.ResourceContents{URI: "run://1/two"}),
	}, Options{})
	list, err := s.ListSkills(t.Context())
	if want := []Skill{{"calc.py", "about skill://calc.py", 3}, {"pay", "about skill://pay", 3}}; err != nil || !cmp.Equal(list, want) {
		t.Fatalf("%v, %v", list, err)
	}
	if a, b := list[0].FileName(), list[1].FileName(); a != "calc.py" || b != "pay.ts" {
		t.Errorf("the files are %q and %q", a, b)
	}
	for name, want := range map[string]string{
		"pay": "export {}", "calc.py": "pass", "other": `there is no skill "other"; codeforge skills list lists them`,
		"none": `the skill "none" is empty`, "broken": `reading the skill "broken": `,
	} {
		got, err := s.ReadSource(t.Context(), name)
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	for name, want := range map[string]string{"text": "t", "bytes": "\xff", "two": "fetching two: the server sent no file", "none": "Resource not found"} {
		got, err := s.FetchRunFile(t.Context(), FileLink{URI: "run://1/" + name, Name: name})
		if err != nil {
			got = []byte(err.Error())
		}
		if string(got) != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestPlaces: the place decides how the server and the proxy are reached.
func TestPlaces(t *testing.T) {
	dir, err := statedir.CreateDir(t.TempDir())
	testkit.Must(t, err)
	broken := errors.New("no engine")
	stack := func(name string, err error) func(context.Context) (string, error) {
		return func(context.Context) (string, error) { return name, err }
	}
	const usual = "http://127.0.0.1:1/mcp"
	for _, c := range []struct {
		conf                           Config
		name, creds, connect, operator string
		isLocal                        bool
	}{
		{Config{URL: "docker://x"}, "the container x", "", "connecting to the server in the container x", "", true},
		{Config{URL: "docker://-x"}, "", "-x", "-x", "-x", false},
		{Config{URL: "http://127.0.0.1:1/mcp"}, "http://127.0.0.1:1/mcp", "does not serve credentials", "connecting to http://127.0.0.1:1/mcp", "", false},
		{Config{Socket: "/nonexistent/s"}, "this container", "run codeforge on the host", "connecting to the server in this container", "", true},
		{Config{State: dir, Fallback: usual, Docker: stack("", broken)}, "", "no engine", "no engine", "no engine", false},
		{Config{State: dir, Fallback: usual, Docker: stack("stack", nil)}, "the container stack", "", "connecting to the server in the container stack", "", true},
		{Config{State: dir, Fallback: usual, Docker: stack("", nil)}, usual, "no CodeForge of this folder runs", "CodeForge is not running, neither in", "CodeForge is not running, neither in", false},
	} {
		t.Setenv("PATH", "") // no docker
		p, err := LocateServer(t.Context(), c.conf)
		if err == nil && (p.Name() != c.name || p.IsLocal() != c.isLocal) {
			t.Errorf("%+v: %q", c.conf, p.Name())
		}
		_, err = Connect(t.Context(), c.conf, Options{})
		if err == nil || !strings.Contains(err.Error(), c.connect) {
			t.Errorf("%s: Connect: %v", c.name, err)
		}
		_, _, ok, err := ConnectOperator(t.Context(), c.conf)
		if ok != c.isLocal || (err != nil) != (c.operator != "") || err != nil && !strings.Contains(err.Error(), c.operator) {
			t.Errorf("%s: ConnectOperator: %t, %v", c.name, ok, err)
		}
		if _, _, err = ConnectCredentials(t.Context(), c.conf); err == nil || !strings.Contains(err.Error(), c.creds) {
			t.Errorf("%s: ConnectCredentials: %v", c.name, err)
		}
	}
}

// TestDialCredentials connects to the socket of the state directory, and not to the one that mcp-server owns.
func TestDialCredentials(t *testing.T) {
	dir, err := statedir.CreateDir(t.TempDir())
	testkit.Must(t, err)
	if _, err := DialCredentials(dir)(t.Context()); err == nil {
		t.Error("connected without a socket")
	}
	l, err := net.Listen("unix", dir.Join("logins", "credentials.sock"))
	testkit.Must(t, err)
	defer l.Close()
	c, err := DialCredentials(dir)(t.Context())
	testkit.Must(t, err)
	testkit.Must(t, c.Close())
	testkit.Must(t, os.RemoveAll(dir.Join("logins")))
	if _, err := DialCredentials(dir)(t.Context()); err == nil {
		t.Error("connected without a folder")
	}
}

// TestFetchBody: only the status 200 is an answer.
func TestFetchBody(t *testing.T) {
	answers := map[string]string{"/readyz": `{"ready":true}`, "/healthz": `{"ok":true}`}
	status := http.StatusOK
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			w.WriteHeader(status)
		}
		_, _ = io.WriteString(w, answers[r.URL.Path])
	}))
	defer web.Close()
	p := Place{URL: web.URL + "/mcp"}
	ready := func() string { return fmt.Sprint(CheckReady(t.Context(), Config{}, p)) }
	if got := ready(); got != "<nil>" {
		t.Errorf("ready: %s", got)
	}
	for _, answer := range []string{`{"ready":false}`, `{}`, "garbage"} {
		answers["/readyz"] = answer
		if got := ready(); !strings.Contains(got, fmt.Sprintf("is not ready: %q", answer)) {
			t.Errorf("%s: %s", answer, got)
		}
	}
	status = http.StatusServiceUnavailable
	if got := ready(); !strings.Contains(got, `is not ready (503 Service Unavailable): "garbage"`) {
		t.Errorf("status 503: %s", got)
	}
	if _, err := ListServers(t.Context(), Config{}, p); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("status 503: %v", err)
	}
	if _, err := fetchBody(t.Context(), Config{}, Place{URL: "http://%zz"}, ""); err == nil || !strings.HasPrefix(err.Error(), "connecting to http://%zz: ") {
		t.Errorf("a bad URL: %v", err)
	}
}

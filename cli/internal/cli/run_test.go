package cli

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// serveResult makes an MCP server whose execute_code always has the same result.
func serveResult(content ...mcp.Content) http.Handler {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	type in struct {
		Code string `json:"code"`
	}
	type call = mcp.CallToolRequest
	mcp.AddTool(s, &mcp.Tool{Name: "execute_code"}, func(context.Context, *call, in) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{
			Meta: mcp.Meta{"codeforge/exit": map[string]any{"reason": "exited"}}, Content: content,
		}, nil, nil
	})
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
}

// TestStderr: what a script that succeeds has printed to its standard error goes to ours, and notes are apart from it.
func TestStderr(t *testing.T) {
	srv := httptest.NewServer(serveResult(
		&mcp.TextContent{Text: "out\n"},
		&mcp.TextContent{Text: "stderr:\nstderr:\nwarning\n", Meta: mcp.Meta{"codeforge/stream": "stderr"}},
		&mcp.TextContent{Text: "stderr:\nA note."},
	))
	defer srv.Close()
	dir := t.TempDir()
	file := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		testkit.Must(t, err)
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	for _, row := range []struct{ flag, stdout, stderr string }{
		{"--", "out\n", "stderr:\nwarning\nnote: stderr:\n      A note.\n"},
		{"--json", `"output": "out\n",` + "\n  " + `"stderr": "stderr:\nwarning\n",`, ""},
	} {
		out, errs := file("out"), file("err")
		code := Run(t.Context(), &Env{
			Args: []string{"run", "-e", "x", row.flag}, Environ: []string{"CODEFORGE_URL=" + srv.URL, "HOME=" + dir}, home: dir,
			Stdin: os.Stdin, Stdout: terminal.NewStream(out), Stderr: terminal.NewStream(errs),
		})
		stdout, _ := os.ReadFile(out.Name())
		stderr, _ := os.ReadFile(errs.Name())
		if code != 0 || !strings.Contains(string(stdout), row.stdout) || string(stderr) != row.stderr {
			t.Errorf("%s: exit code %d, %q and %q", row.flag, code, stdout, stderr)
		}
	}
}

// TestInterruptedAfterRun: Ctrl-C after a run has ended does not hide its result.
func TestInterruptedAfterRun(t *testing.T) {
	h := serveResult(&mcp.TextContent{Text: "printed\n"})
	ctx, interrupt := context.WithCancel(t.Context())
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete { // the session is over
			interrupt()
		}
		h.ServeHTTP(w, r)
	}))
	defer srv.Close()
	dir := t.TempDir()
	script := filepath.Join(dir, "a.ts")
	testkit.Must(t, os.WriteFile(script, []byte("console.log('printed')"), 0o600))
	out, err := os.Create(filepath.Join(dir, "out"))
	testkit.Must(t, err)
	defer out.Close()
	code := Run(ctx, &Env{
		Args: []string{"run", script}, Environ: []string{"CODEFORGE_URL=" + srv.URL, "HOME=" + dir}, home: dir,
		Stdin: os.Stdin, Stdout: terminal.NewStream(out), Stderr: terminal.NewStream(os.Stderr),
	})
	text, err := os.ReadFile(out.Name())
	if ctx.Err() == nil || code != 0 || string(text) != "printed\n" || err != nil {
		t.Errorf("exit code %d, %q, %v; interrupted: %v", code, text, err, ctx.Err())
	}
}

// TestWaitsForApproval: a person at a shell, or the log of a script, learns at once that a request waits, and how to
// decide about it.
func TestWaitsForApproval(t *testing.T) {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	type in struct {
		Code string `json:"code"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "execute_code"}, func(ctx context.Context, r *mcp.CallToolRequest, _ in) (*mcp.CallToolResult, any, error) {
		testkit.Must(t, r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: r.Params.GetProgressToken(), Message: approvalapi.Waiting,
		}))
		return &mcp.CallToolResult{Meta: mcp.Meta{"codeforge/exit": map[string]any{"reason": "exited"}}}, nil, nil
	})
	srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	defer srv.Close()
	dir := t.TempDir()
	said, err := os.Create(filepath.Join(dir, "err"))
	testkit.Must(t, err)
	defer said.Close()
	code := Run(t.Context(), &Env{
		Args: []string{"run", "-e", "1"}, Environ: []string{"CODEFORGE_URL=" + srv.URL, "HOME=" + dir}, home: dir,
		Stdin: os.Stdin, Stdout: terminal.NewStream(os.Stdout), Stderr: terminal.NewStream(said),
	})
	text, err := os.ReadFile(said.Name())
	if code != 0 || err != nil || !strings.Contains(string(text), "codeforge approve") {
		t.Errorf("exit code %d, %q, %v", code, text, err)
	}
}

// TestTitle: the run of a command for a person begins with a comment that is its title.
func TestTitle(t *testing.T) {
	code := buildScript("mcp call notion a\u2028b\n", "mcp[name]", map[string]any{"name": "notion"})
	if line, _, _ := strings.Cut(code, "\n"); !strings.HasPrefix(line, "// ") || !strings.Contains(line, "mcp call notion a") || strings.Contains(line, "\u2028") {
		t.Errorf("%q", line)
	}
}

// TestOneSentence: what a person at a shell typed wrongly is answered in one sentence, without the names of MCP's calls.
func TestOneSentence(t *testing.T) {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{Resources: &mcp.ResourceCapabilities{}}})
	s.AddTool(&mcp.Tool{Name: "execute_code", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "That is no code."}
	})
	srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	defer srv.Close()
	dir := t.TempDir()
	for _, row := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"skills", "show", "nope"}, ExitFailed, "codeforge: there is no skill \"nope\"; codeforge skills list lists them\n"},
		{[]string{"run", "-e", "1", "--language", "pyton"}, ExitUsage, "codeforge: --language \"pyton\"; did you mean python?\n"},
		{[]string{"runs", "-n", "0"}, ExitUsage, "codeforge: -n 0: want a number from 1; --all lists every run\n"},
		{[]string{"logs", "-n", "0"}, ExitUsage, "codeforge: -n 0: want a number from 1\n"},
		{[]string{"run", "-e", "1"}, ExitNotRun, "codeforge: That is no code.\n"},
	} {
		said, err := os.Create(filepath.Join(dir, "err"))
		testkit.Must(t, err)
		code := Run(t.Context(), &Env{
			Args: row.args, Environ: []string{"CODEFORGE_URL=" + srv.URL, "HOME=" + dir}, home: dir,
			Stdin: os.Stdin, Stdout: terminal.NewStream(os.Stdout), Stderr: terminal.NewStream(said),
		})
		text, err := os.ReadFile(said.Name())
		if code != row.code || err != nil || string(text) != row.says {
			t.Errorf("%v: exit code %d, %q, %v", row.args, code, text, err)
		}
	}
}

// TestReadInput: a script gets its files and, if it may read it, standard input, within the bounds.
func TestReadInput(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, size int) string {
		path := filepath.Join(dir, name)
		testkit.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		testkit.Must(t, os.WriteFile(path, make([]byte, size), 0o600))
		return path
	}
	for name, row := range map[string]struct {
		files []string
		code  string
		stdin int
		want  string // of the error; "-": no input; else the size of the standard input
	}{
		"nothing":           {nil, "1", 0, "-"},
		"not read":          {nil, "console.log(1)", 10, "-"},
		"TypeScript":        {nil, "Deno.stdin", 10, "10"},
		"Python":            {nil, "input()", 10, "10"},
		"files":             {[]string{file("a.csv", 5), file("b.csv", 0)}, "1", 0, "0"},
		"the same name":     {[]string{file("a.csv", 5), file("sub/a.csv", 5)}, "1", 0, "two files"},
		"a missing file":    {[]string{filepath.Join(dir, "absent")}, "1", 0, "no such file"},
		"a folder":          {[]string{dir}, "1", 0, "is a directory"},
		"a bad name":        {[]string{file("a;b", 1)}, "1", 0, "not a name"},
		"a long file":       {[]string{file("long", sandboxapi.MaxInput+1)}, "1", 0, "more than 16 MiB"},
		"a long input":      {nil, "stdin", sandboxapi.MaxInput + 1, "more than 16 MiB"},
		"together too long": {[]string{file("half", sandboxapi.MaxInput/2)}, "stdin", sandboxapi.MaxInput/2 + 1, "want at most 16 MiB"},
	} {
		in, err := os.Open(file("stdin", row.stdin))
		testkit.Must(t, err)
		got, err := readInput(&Env{Stdin: in}, row.files, mayReadStdin(row.code))
		testkit.Must(t, in.Close())
		said := "-"
		switch {
		case err != nil:
			said = err.Error()
		case got != nil:
			said = strconv.Itoa(len(got.Stdin))
			if len(got.Files) != len(row.files) {
				t.Errorf("%s: %d files", name, len(got.Files))
			}
		}
		if said != row.want && (err == nil || !strings.Contains(said, row.want)) {
			t.Errorf("%s: %s, want %s", name, said, row.want)
		}
	}
}

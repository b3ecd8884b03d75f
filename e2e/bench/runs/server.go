// Package runs measures execute_code end to end: the time that a client waits over MCP and HTTP.
package runs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/bench/arena"
	"github.com/codeforge-mcp/codeforge/e2e/bench/origin"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// Script is the code of every run, in CodeForge and in bare Deno.
const Script = "console.log(1 + 1)\n"

// language is a language of execute_code and its bare interpreter.
type language struct {
	// name is that of execute_code's argument; empty: its default.
	name string
	// program is the interpreter's, e.g. "python3".
	program string
	// script prints 2. call calls the origin once, with the credential in the place of %s, and prints called.
	script, call string
	// bare is the command line that runs code as a user would, trusting an authority if ca names its file.
	bare func(code, ca string) *exec.Cmd
	// warm and one are the rows of script and call, memory that of idle memory. prints begins the rows of printing.
	warm, one, memory, prints string
}

// deno is TypeScript.
func (cfg Config) deno() language {
	return language{
		program: "deno", script: Script, warm: "runs.warm", one: "runs.call", memory: "runs.idle", prints: "runs.print",
		call: "const r = await fetch('https://" + origin.Host + "/small', { headers: { authorization: 'Bearer %s' } });\n" +
			"if (r.status !== 200) throw r.status;\nconsole.log(r.status, (await r.json()).id);\n",
		bare: func(code, ca string) *exec.Cmd {
			args := []string{"run"}
			if ca != "" {
				args = append(args, "--allow-net="+origin.Host, "--cert="+ca)
			}
			cmd := exec.Command(cfg.Deno, append(args, "-")...) //nolint:gosec,noctx // short
			cmd.Stdin = strings.NewReader(code)
			return cmd
		},
	}
}

// python is Python.
func (cfg Config) python() language {
	return language{
		name: string(sandboxapi.LanguagePython), program: "python3", script: "print(1 + 1)\n",
		warm: "python.warm", one: "python.call", memory: "python.idle", prints: "python.print",
		call: "import json, urllib.request\n" +
			"request = urllib.request.Request('https://" + origin.Host + "/small', headers={'Authorization': 'Bearer %s'})\n" +
			"with urllib.request.urlopen(request) as r:\n    print(r.status, json.load(r)['id'])\n",
		bare: func(code, ca string) *exec.Cmd {
			cmd := exec.Command(cfg.Python, "-c", code) //nolint:gosec,noctx // short
			if ca != "" {
				cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+ca)
			}
			return cmd
		},
	}
}

// server is a running CodeForge and a session with it.
type server struct {
	url     string
	session *mcp.ClientSession
	process *arena.Process // `codeforge up`; nil in Docker
	idle    chan *caller   // connections for run
	args    map[string]any // of every run
	ready   time.Duration  // from the start of `codeforge up` until it was ready
	stop    func()
}

// embedded starts `codeforge up` with 8 slots and this many warm interpreters of a language, in a new directory. apis are config.json
// files by name, and other files of the folder by their whole name.
func embedded(ctx context.Context, cfg Config, l language, warm int, apis map[string]string, env ...string) (_ *server, err error) {
	dir, err := os.MkdirTemp("", "codeforge-bench-")
	if err != nil {
		return nil, err
	}
	s := &server{stop: func() { _ = os.RemoveAll(dir) }}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	folder, state := filepath.Join(dir, "apis"), filepath.Join(dir, "state")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(folder, 0o755)); err != nil { //nolint:gosec // slots have users of their own
		return nil, err
	}
	for name, text := range apis {
		api := filepath.Join(folder, name)
		if filepath.Ext(name) == ".json" {
			if err := os.WriteFile(api, []byte(text), 0o600); err != nil {
				return nil, err
			}
			continue
		}
		if err := errors.Join(os.Mkdir(api, 0o700), os.WriteFile(filepath.Join(api, "config.json"), []byte(text), 0o600)); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(filepath.Join(cfg.Bin, "codeforge"), "up", "--apis", folder, "--state", state, "--port", "0", "--slots", "8") //nolint:gosec,noctx // ours
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "DENO_PATH=" + cfg.Deno}
	if s.args = map[string]any{}; l.name == "" {
		cmd.Env = append(cmd.Env, "SANDBOX_WARM="+strconv.Itoa(warm))
	} else {
		s.args["language"] = l.name
		cmd.Env = append(cmd.Env, "SANDBOX_WARM=0", "SANDBOX_WARM_PYTHON="+strconv.Itoa(warm), "PYTHON_PATH="+cfg.Python)
	}
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	began := time.Now()
	if s.process, err = arena.Start(cmd, true); err != nil {
		return nil, err
	}
	s.stop = func() { s.process.Stop(); _ = os.RemoveAll(dir) }
	var up struct {
		URL string `json:"url"`
	}
	if err := s.process.Await(30*time.Second, func() bool {
		data, err := os.ReadFile(filepath.Join(state, "up.json"))
		return err == nil && json.Unmarshal(data, &up) == nil && up.URL != ""
	}); err != nil {
		return nil, err
	}
	s.ready = time.Since(began)
	return s, s.connect(ctx, strings.TrimSuffix(up.URL, "/mcp")+"/mcp")
}

// connect opens the session.
func (s *server) connect(ctx context.Context, url string) (err error) {
	s.url, s.idle = url, make(chan *caller, 16)
	client := mcp.NewClient(&mcp.Implementation{Name: "codeforge-bench", Version: "1"}, nil)
	s.session, err = client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url}, nil)
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", url, err)
	}
	return nil
}

// Close ends the session and the server.
func (s *server) Close() {
	for len(s.idle) > 0 {
		(<-s.idle).Close()
	}
	if s.session != nil {
		_ = s.session.Close()
	}
	s.stop()
}

// caller calls a tool, always with the same arguments, over its own connection. It writes and reads in one goroutine,
// because the other work of an MCP client would count as the server's time.
type caller struct {
	tcp     net.Conn
	answers *bufio.Reader
	request []byte
	code    string // what it runs, if anything
}

// caller connects.
func (s *server) caller(ctx context.Context, tool string, args map[string]any) (*caller, error) {
	version := s.session.InitializeResult().ProtocolVersion
	body, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": "bench", "method": "tools/call",
		"params": map[string]any{"name": tool, "arguments": args, "_meta": map[string]any{
			"io.modelcontextprotocol/protocolVersion": version, "io.modelcontextprotocol/clientCapabilities": map[string]any{},
			"io.modelcontextprotocol/clientInfo": map[string]any{"name": "codeforge-bench", "version": "1"},
		}},
	})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if id := s.session.ID(); id != "" {
		req.Header.Set("Mcp-Session-Id", id)
	}
	req.Header.Set("Mcp-Protocol-Version", version)
	req.Header.Set("Mcp-Method", "tools/call")
	req.Header.Set("Mcp-Name", tool)
	var request bytes.Buffer
	if err := req.Write(&request); err != nil {
		return nil, err
	}
	tcp, err := (&net.Dialer{}).DialContext(ctx, "tcp", req.URL.Host)
	if err != nil {
		return nil, err
	}
	return &caller{tcp: tcp, answers: bufio.NewReader(tcp), request: request.Bytes()}, nil
}

// call calls the tool and returns its result and the time until it arrived.
func (c *caller) call() (*mcp.CallToolResult, time.Duration, error) {
	start := time.Now()
	if _, err := c.tcp.Write(c.request); err != nil {
		return nil, 0, err
	}
	res, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return nil, 0, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	took := time.Since(start)
	if err != nil {
		return nil, 0, err
	}
	var message struct{ Result *mcp.CallToolResult }
	for line := range bytes.Lines(answer) {
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			err = errors.Join(err, json.Unmarshal(data, &message))
		}
	}
	if err != nil || message.Result == nil || message.Result.IsError {
		return nil, 0, errors.Join(err, fmt.Errorf("%s: %s", res.Status, answer))
	}
	return message.Result, took, nil
}

// Close closes the connection.
func (c *caller) Close() { _ = c.tcp.Close() }

// run runs code and reports whether a warm interpreter was waiting. Connections are kept open.
func (s *server) run(ctx context.Context, code, want string) (took time.Duration, warm bool, err error) {
	var c *caller
	select {
	case c = <-s.idle:
	default:
	}
	if c == nil || c.code != code {
		if c != nil {
			c.Close()
		}
		args := map[string]any{"code": code}
		maps.Copy(args, s.args)
		if c, err = s.caller(ctx, "execute_code", args); err != nil {
			return 0, false, err
		}
		c.code = code
	}
	res, took, err := c.call()
	if err != nil {
		c.Close()
		return 0, false, err
	}
	select {
	case s.idle <- c:
	default:
		c.Close()
	}
	if got := firstText(res); want != "" && strings.TrimSpace(got) != want {
		return 0, false, fmt.Errorf("execute_code printed %q, want %q", got, want)
	}
	exit, _ := res.Meta["codeforge/exit"].(map[string]any)
	warm, _ = exit["warm"].(bool)
	return took, warm, nil
}

func firstText(res *mcp.CallToolResult) string {
	for _, c := range res.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			return t.Text
		}
	}
	return ""
}

// timed runs a command and returns how long it took.
func timed(cmd *exec.Cmd) (time.Duration, error) {
	start := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(start)
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", cmd.Path, err, out)
	}
	return took, nil
}

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
)

// Script is the code of every run, in CodeForge and in bare Deno.
const Script = "console.log(1 + 1)\n"

// server is a running CodeForge and a session with it.
type server struct {
	url     string
	session *mcp.ClientSession
	process *arena.Process // `codeforge up`; nil in Docker
	idle    chan *caller   // connections for run
	stop    func()
}

// embedded starts `codeforge up` with 8 slots and this many warm interpreters, in a new directory. apis are config.json
// files by name.
func embedded(ctx context.Context, cfg Config, warm int, apis map[string]string, env ...string) (_ *server, err error) {
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
		if err := errors.Join(os.Mkdir(api, 0o700), os.WriteFile(filepath.Join(api, "config.json"), []byte(text), 0o600)); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(filepath.Join(cfg.Bin, "codeforge"), "up", "--apis", folder, "--state", state, "--port", "0", "--slots", "8") //nolint:gosec,noctx // ours
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "DENO_PATH=" + cfg.Deno, "SANDBOX_WARM=" + strconv.Itoa(warm)}
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
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
		if c, err = s.caller(ctx, "execute_code", map[string]any{"code": code}); err != nil {
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

// bare runs `deno run -` with the script on its standard input, as a user would.
func bare(ctx context.Context, deno, code string, flags ...string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, deno, append(append([]string{"run"}, flags...), "-")...)
	cmd.Stdin = strings.NewReader(code)
	start := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(start)
	if err != nil {
		return 0, fmt.Errorf("deno run -: %w: %s", err, out)
	}
	return took, nil
}

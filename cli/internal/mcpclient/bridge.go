package mcpclient

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/timing"
)

// stdioTranslator translates MCP between newline-delimited JSON and Streamable HTTP, for protocol versions with and
// without sessions. It parses only the fields that the headers need; everything else passes through unchanged.
type stdioTranslator struct {
	url    string
	client *http.Client
	// reconnect is how long a message waits while CodeForge cannot be reached.
	reconnect time.Duration

	out  sync.Mutex // one line at a time
	to   io.Writer
	open sync.WaitGroup

	mu        sync.Mutex
	session   string // for protocol versions with sessions
	version   string // negotiated by initialize
	listening bool
}

// rpcMessage holds the fields of a JSON-RPC message that determine its headers.
type rpcMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name string                     `json:"name"`
		URI  string                     `json:"uri"`
		Task string                     `json:"taskId"`
		Meta map[string]json.RawMessage `json:"_meta"`
	} `json:"params"`
}

const (
	versionHeader = "Mcp-Protocol-Version"
	sessionHeader = "Mcp-Session-Id"
	versionMeta   = "io.modelcontextprotocol/protocolVersion"
	// sessionless is the first protocol version without sessions.
	sessionless = "2026-07-28"
	// maxInFlight bounds the requests in flight.
	maxInFlight = 64
	// reconnectTime is enough for a restart of CodeForge. reconnectPause is the pause between two tries.
	reconnectTime  = 20 * time.Second
	reconnectPause = 200 * time.Millisecond
	// listenPause is the pause before the stream of the server's own messages is reopened.
	listenPause = time.Second
	// goneInterval is the interval at which the bridge checks, after the end of stdin, whether the client has gone.
	goneInterval = 100 * time.Millisecond
)

// translateMessages translates messages until stdin has ended and every request is answered, or ctx ends. After the end
// of stdin it also stops if gone reports that the client no longer reads.
func (b *stdioTranslator) translateMessages(ctx context.Context, stdin io.Reader, gone func() bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	inFlight := make(chan struct{}, maxInFlight)
	lines := bufio.NewReaderSize(stdin, 64<<10)
	for ctx.Err() == nil {
		line, err := lines.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			b.forwardMessage(ctx, inFlight, line)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("reading standard input: %w", err)
		}
	}
	check := time.NewTicker(goneInterval)
	defer check.Stop()
	for free := 0; free < maxInFlight; {
		select {
		case inFlight <- struct{}{}:
			free++
		case <-check.C:
			if gone() {
				cancel() // ends the requests, and so the calls
			}
		}
	}
	// ctx may have ended, but the server must still learn that the session is over.
	b.deleteSession(context.WithoutCancel(ctx))
	cancel()
	b.open.Wait()
	return nil
}

// forwardMessage sends one message: requests concurrently, initialize and notifications in order.
func (b *stdioTranslator) forwardMessage(ctx context.Context, inFlight chan struct{}, line []byte) {
	var m rpcMessage
	_ = json.Unmarshal(line, &m) // the server rejects invalid messages
	// Later messages depend on initialize, and notifications must keep their order.
	if m.Method == "initialize" || len(m.ID) == 0 {
		b.sendMessage(ctx, m, line)
		return
	}
	inFlight <- struct{}{}
	b.open.Go(func() {
		defer func() { <-inFlight }()
		b.sendMessage(ctx, m, line)
	})
}

// sendMessage posts one message and writes the answer.
func (b *stdioTranslator) sendMessage(ctx context.Context, m rpcMessage, line []byte) {
	resp, err := b.postMessage(ctx, m, line)
	switch {
	case isUnsent(err):
		b.writeFailure(m, "CodeForge cannot be reached, so the code did not run: "+err.Error())
		return
	case err != nil:
		b.writeFailure(m,
			"the connection to CodeForge broke before it answered. A run may have happened in part: check before you "+
				"run it again. ("+err.Error()+")")
		return
	}
	defer resp.Body.Close()
	if s := resp.Header.Get(sessionHeader); s != "" && m.Method == "initialize" {
		b.mu.Lock()
		b.session = s
		b.mu.Unlock()
	}
	answered := false
	err = eachMessage(resp, func(answer []byte) {
		answered = answered || isAnswer(answer)
		b.rememberVersion(m, answer)
		b.writeLine(answer)
	})
	switch {
	case resp.StatusCode >= 300 && !answered:
		b.writeFailure(m, fmt.Sprintf("CodeForge answered %s", resp.Status))
	case err != nil && !answered:
		b.writeFailure(m, "CodeForge broke off its answer: "+err.Error())
	case !answered:
		b.writeFailure(m, "CodeForge broke off its answer")
	}
	if m.Method == "notifications/initialized" {
		b.listenForMessages(ctx)
	}
}

// isAnswer reports whether a message is an answer, not a request or notification of the server.
func isAnswer(text []byte) bool {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method *string         `json:"method"`
	}
	return json.Unmarshal(text, &m) == nil && len(m.ID) > 0 && m.Method == nil
}

// postMessage sends one message. While CodeForge is unreachable or stopping, which may be a restart, it retries until
// reconnectTime has passed. It never resends a message that may have arrived.
func (b *stdioTranslator) postMessage(ctx context.Context, m rpcMessage, line []byte) (*http.Response, error) {
	for giveUp := time.Now().Add(b.reconnect); ; {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, bytes.NewReader(line))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		b.setHeaders(req.Header, m)
		resp, err := b.client.Do(req)
		stopping := err == nil && resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != ""
		if !stopping && !isUnsent(err) || time.Now().After(giveUp) {
			return resp, err
		}
		// The answer is discarded: the message was not processed and is sent again.
		if stopping {
			_ = resp.Body.Close()
		}
		if !timing.WaitFor(ctx, reconnectPause) {
			return nil, ctx.Err()
		}
	}
}

// isUnsent reports whether a request failed because no connection was made.
func isUnsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// setHeaders sets the headers that repeat parts of the message.
func (b *stdioTranslator) setHeaders(h http.Header, m rpcMessage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	version := b.version
	var named string
	if json.Unmarshal(m.Params.Meta[versionMeta], &named) == nil && named != "" {
		version = named
	}
	if version != "" {
		h.Set(versionHeader, version)
	}
	if version < sessionless {
		if b.session != "" {
			h.Set(sessionHeader, b.session)
		}
		return
	}
	h.Set("Mcp-Method", headerValue(m.Method))
	switch m.Method {
	case "tools/call", "prompts/get":
		h.Set("Mcp-Name", headerValue(m.Params.Name))
	case "resources/read":
		h.Set("Mcp-Name", headerValue(m.Params.URI))
	case "tasks/get", "tasks/update", "tasks/cancel":
		h.Set("Mcp-Name", headerValue(m.Params.Task))
	}
}

// headerValue encodes a text that is not valid in a header.
func headerValue(s string) string {
	plain := !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
	if plain && s == strings.TrimSpace(s) && !strings.HasPrefix(s, "=?base64?") {
		return s
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?="
}

// rememberVersion stores the version that initialize negotiated.
func (b *stdioTranslator) rememberVersion(m rpcMessage, answer []byte) {
	if m.Method != "initialize" {
		return
	}
	var r struct {
		Result struct {
			ProtocolVersion string `json:"protocolVersion"`
		} `json:"result"`
	}
	if json.Unmarshal(answer, &r) == nil && r.Result.ProtocolVersion != "" {
		b.mu.Lock()
		b.version = r.Result.ProtocolVersion
		b.mu.Unlock()
	}
}

// listenForMessages keeps a stream open for the server's own messages, if there is a session.
func (b *stdioTranslator) listenForMessages(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session == "" || b.listening {
		return
	}
	b.listening = true
	b.open.Go(func() {
		for b.listenOnce(ctx) {
			if !timing.WaitFor(ctx, listenPause) {
				return
			}
		}
	})
}

// listenOnce reports whether to reopen the stream after its end.
func (b *stdioTranslator) listenOnce(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url, nil)
	if err != nil {
		return false
	}
	req.Header.Set("Accept", "text/event-stream")
	b.setHeaders(req.Header, rpcMessage{})
	resp, err := b.client.Do(req)
	if err != nil {
		return ctx.Err() == nil
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusServiceUnavailable {
		return ctx.Err() == nil // CodeForge is stopping, and may restart
	}
	// MCP, Transports: a server without this stream answers 405, and then a retry would not help.
	if resp.StatusCode != http.StatusOK {
		return false
	}
	_ = eachMessage(resp, b.writeLine)
	return ctx.Err() == nil
}

func (b *stdioTranslator) deleteSession(ctx context.Context) {
	if b.session == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, b.url, nil)
	if err != nil {
		return
	}
	b.setHeaders(req.Header, rpcMessage{})
	if resp, err := b.client.Do(req); err == nil {
		_ = resp.Body.Close()
	}
}

// writeFailure writes an error as the answer to a request that the server did not answer.
func (b *stdioTranslator) writeFailure(m rpcMessage, text string) {
	// JSON-RPC 2.0, section 4.1: a notification gets no answer.
	if len(m.ID) == 0 || m.Method == "" {
		return
	}
	type rpcError struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	line, err := json.Marshal(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   rpcError        `json:"error"`
	}{"2.0", m.ID, rpcError{-32603, text}})
	if err == nil {
		b.writeLine(line)
	}
}

func (b *stdioTranslator) writeLine(text []byte) {
	var line bytes.Buffer
	if json.Compact(&line, text) != nil {
		return
	}
	line.WriteByte('\n')
	b.out.Lock()
	defer b.out.Unlock()
	_, _ = b.to.Write(line.Bytes())
}

// eachMessage calls on for every JSON-RPC message of an answer.
func eachMessage(resp *http.Response, on func([]byte)) error {
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	switch strings.TrimSpace(kind) {
	case "application/json":
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxMessage))
		if err == nil && json.Valid(body) {
			on(body)
		}
		return err
	case "text/event-stream":
		return eachEvent(resp.Body, on)
	}
	// net/http reuses a connection only if the response was read to its end.
	_, err := io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	return err
}

// eachEvent parses server-sent events and calls on for the data of each.
func eachEvent(r io.Reader, on func([]byte)) error {
	lines := bufio.NewReaderSize(r, 64<<10)
	var data []byte
	for {
		line, err := lines.ReadBytes('\n')
		line = bytes.TrimRight(line, "\r\n")
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			if len(data) > 0 {
				// HTML standard, section 9.2.6: line feeds join the data lines of an event.
				data = append(data, '\n')
			}
			data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
		}
		if (len(line) == 0 || err != nil) && len(data) > 0 {
			on(data)
			data = nil
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(data) > maxMessage {
			return fmt.Errorf("a message is over %d bytes", maxMessage)
		}
	}
}

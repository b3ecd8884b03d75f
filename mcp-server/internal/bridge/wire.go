package bridge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
)

// stdioConn is the JSON-RPC connection over a server's standard input and output. The SDK's own connection ends at the
// first line that is not JSON, and waits forever for a server that ignores an unknown request. wire skips lines that
// are not messages (banners, debugging output) and messages that are too large. It keeps results exactly as the server
// wrote them.
type stdioConn struct {
	out  io.WriteCloser
	logs *logRelay
	// patience is how long server/discover may stay unanswered before wire answers it for the server.
	patience time.Duration
	// late means that the server answered server/discover after patience.
	late atomic.Bool

	incoming chan jsonrpc.Message
	writing  sync.Mutex

	mu       sync.Mutex
	captures map[jsonrpc.ID]*wireCapture
	discover jsonrpc.ID // the ID of server/discover, even after it was given up
	open     bool       // server/discover is unanswered
	err      error

	once   sync.Once
	closed chan struct{}
}

// connectedTransport is the transport of a wire, which is already connected.
type connectedTransport struct{ *stdioConn }

func (c connectedTransport) Connect(context.Context) (mcp.Connection, error) { return c.stdioConn, nil }

// newWire connects to a server's output and input.
func newWire(in io.Reader, out io.WriteCloser, l *logRelay) *stdioConn {
	w := &stdioConn{
		out: out, logs: l, patience: discoverTime, incoming: make(chan jsonrpc.Message),
		captures: map[jsonrpc.ID]*wireCapture{}, closed: make(chan struct{}),
	}
	go w.followOutput(in)
	return w
}

func (w *stdioConn) SessionID() string { return "" }

func (w *stdioConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-w.incoming:
		return m, nil
	case <-w.closed:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w *stdioConn) Write(ctx context.Context, m jsonrpc.Message) error {
	line, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	// Before writing, because a fast server may answer before Write returns.
	if r, ok := m.(*jsonrpc.Request); ok && r.IsCall() {
		w.expectAnswer(ctx, r)
	}
	w.writing.Lock()
	defer w.writing.Unlock()
	captureOf(ctx).recordSend()
	_, err = w.out.Write(append(line, '\n'))
	return err
}

// Close implements mcp.Connection. It closes the server's input, which asks the server to end.
func (w *stdioConn) Close() error {
	w.endWith(nil)
	return nil
}

// endWith closes the connection for the reason err.
func (w *stdioConn) endWith(err error) {
	w.once.Do(func() {
		w.mu.Lock()
		w.err = err
		w.mu.Unlock()
		close(w.closed)
		_ = w.out.Close()
	})
}

// failureReason returns why the connection ended, or nil if one side closed it.
func (w *stdioConn) failureReason() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// expectAnswer records a request whose answer will be read.
func (w *stdioConn) expectAnswer(ctx context.Context, r *jsonrpc.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c, ok := ctx.Value(captureKey{}).(*wireCapture); ok {
		w.captures[r.ID] = c
	}
	if r.Method == "server/discover" {
		w.discover, w.open = r.ID, true
		time.AfterFunc(w.patience, func() { w.giveUp(r.ID) })
	}
}

// giveUp answers server/discover for the server, like a server that does not know the request.
func (w *stdioConn) giveUp(id jsonrpc.ID) {
	w.mu.Lock()
	// An answer may have come at the same moment.
	open := w.open && w.discover == id
	w.open = w.open && !open
	w.mu.Unlock()
	if open {
		w.deliverMessage(&jsonrpc.Response{ID: id, Error: &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound,
			Message: "no answer"}})
	}
}

// forgetCapture drops the capture of a cancelled request without an answer.
func (w *stdioConn) forgetCapture(c *wireCapture) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, has := range w.captures {
		if has == c {
			delete(w.captures, id)
		}
	}
}

// followOutput reads messages until the server's output ends.
func (w *stdioConn) followOutput(in io.Reader) {
	lines := bufio.NewReaderSize(in, 64<<10)
	for {
		line, s, err := readMessage(lines)
		// A last line without a line feed counts as well.
		if len(line) > 0 || s.size > 0 {
			w.takeLine(line, s)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			w.endWith(err)
			return
		}
	}
}

// readMessage reads a line, and keeps at most MaxMessage bytes.
func readMessage(lines *bufio.Reader) ([]byte, *messageSkimmer, error) {
	var line []byte
	s := &messageSkimmer{}
	for {
		part, err := lines.ReadSlice('\n')
		s.addBytes(part)
		if s.size <= bridgewire.MaxMessage+1 { // with its line end
			line = append(line, part...)
		} else {
			// The rest is still read, because the ID of the message may come last.
			line = nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			if n := len(part); n > 0 && part[n-1] == '\n' {
				s.size--
			}
			return bytes.TrimSpace(line), s, err
		}
	}
}

// takeLine handles one line of the server's output.
func (w *stdioConn) takeLine(line []byte, s *messageSkimmer) {
	if s.isRefused() {
		w.logs.addLine("[a message was larger than 16 MiB, or nested too deep, and was dropped]")
		if r, ok := replaceLargeAnswer(s); ok {
			w.settleAnswer(r)
			w.deliverMessage(r)
		}
		return
	}
	for _, text := range splitBatch(line) {
		m, err := jsonrpc.DecodeMessage(text)
		if err != nil {
			// Servers print banners and debugging output here, which belong into the log.
			w.logs.addLine(string(text[:min(len(text), bridgewire.MaxLog)]))
			continue
		}
		if r, ok := m.(*jsonrpc.Response); ok && !w.settleAnswer(r) {
			continue
		}
		w.deliverMessage(m)
	}
}

// splitBatch splits a batch into its messages. Some older servers send batches.
func splitBatch(line []byte) []json.RawMessage {
	var all []json.RawMessage
	if len(line) == 0 || line[0] != '[' || json.Unmarshal(line, &all) != nil {
		return []json.RawMessage{line}
	}
	return all
}

// settleAnswer records an answer. It returns false for an answer that is too late to be passed on.
func (w *stdioConn) settleAnswer(r *jsonrpc.Response) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.captures[r.ID]; c != nil {
		delete(w.captures, r.ID)
		c.recordAnswer(r.Result)
	}
	if w.discover.IsValid() && r.ID == w.discover {
		// giveUp has already answered for the server, and the SDK must not get a second answer.
		if !w.open {
			w.late.Store(r.Error == nil)
			return false
		}
		w.open = false
	}
	return true
}

// deliverMessage passes a message to the SDK.
func (w *stdioConn) deliverMessage(m jsonrpc.Message) {
	select {
	case w.incoming <- m:
	case <-w.closed:
	}
}

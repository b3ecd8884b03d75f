package sandboxapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
)

// Duplex is the stream between a client and the program of an MCP server.
type Duplex interface {
	// Reader is the program's input. It ends when the client closes its side.
	io.Reader
	// Writer takes the program's output. It blocks while the client is slow.
	io.Writer
	// ReportStart reports to the client that the program has started. An error before ReportStart becomes an HTTP error;
	// after ReportStart only an Exit can report one.
	ReportStart() error
	// ReportEnd reports that no process of the slot is left. From then on Read and Write fail within seconds instead of
	// blocking.
	ReportEnd()
}

const (
	// maxHead is the longest first line of POST /v1/servers/{G}, in bytes.
	maxHead = 16 << 10
	// headTimeout bounds the wait for that line.
	headTimeout = 10 * time.Second
	// maxDetail bounds the detail of an Exit in a trailer, in bytes.
	maxDetail = 2 << 10
)

// serveProgram runs the program of an MCP server until the request or the program ends.
func (s *Server) serveProgram(w http.ResponseWriter, r *http.Request) {
	generation, err := strconv.ParseUint(r.PathValue("generation"), 10, 64)
	if err != nil {
		rpc.WriteError(w, http.StatusBadRequest, "the generation is not a number")
		return
	}
	d := &requestDuplex{w: w, stallBound: stallBound{ctl: http.NewResponseController(w)},
		in: bufio.NewReaderSize(r.Body, maxHead)}
	head, err := d.readHead()
	if err != nil {
		rpc.WriteError(w, http.StatusBadRequest, "reading the first line of the body: "+err.Error())
		return
	}
	exit, err := s.cfg.Sandbox.Server(r.Context(), generation, head, d)
	if err == nil {
		w.Header().Set(ExitTrailer, encodeTrailer(exit))
		return
	}
	if !d.started {
		rpc.WriteRefusal(w, err)
		return
	}
	// The response has started, so an aborted stream is the only way to report the error.
	s.cfg.Log.Warn("an MCP server was aborted", "generation", generation, "error", err)
	panic(http.ErrAbortHandler)
}

// encodeTrailer encodes an Exit as a header value: one line of printable ASCII.
func encodeTrailer(e Exit) string {
	detail := []byte(e.Detail[:min(len(e.Detail), maxDetail)])
	for i, c := range detail {
		// A line feed in a header value would end the header.
		if c < ' ' || c > '~' {
			detail[i] = '?'
		}
	}
	e.Detail = string(detail)
	data, _ := json.Marshal(e) // an Exit has only strings, numbers and booleans
	return string(data)
}

type requestDuplex struct {
	stallBound
	w       http.ResponseWriter
	in      *bufio.Reader
	started bool
}

// readHead reads the first line of the body.
func (d *requestDuplex) readHead() (h ServerHead, err error) {
	_ = d.ctl.SetReadDeadline(time.Now().Add(headTimeout))
	line, err := d.in.ReadSlice('\n')
	_ = d.ctl.SetReadDeadline(time.Time{})
	if errors.Is(err, bufio.ErrBufferFull) {
		return h, fmt.Errorf("it is longer than %d bytes", maxHead)
	}
	if err != nil {
		return h, err
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	return h, dec.Decode(&h)
}

func (d *requestDuplex) ReportStart() error {
	d.started = true
	// net/http sends only trailers that were announced before the header.
	d.w.Header().Set("Trailer", ExitTrailer)
	d.w.Header().Set("Content-Type", "application/octet-stream")
	d.w.WriteHeader(http.StatusOK)
	return d.ctl.Flush()
}

func (d *requestDuplex) Read(p []byte) (int, error) { return d.in.Read(p) }

// Write implements Duplex. It flushes each write.
func (d *requestDuplex) Write(p []byte) (int, error) {
	d.setSending(true)
	defer d.setSending(false)
	n, err := d.w.Write(p)
	if err == nil {
		err = d.ctl.Flush()
	}
	return n, err
}

func (d *requestDuplex) ReportEnd() {
	_ = d.ctl.SetReadDeadline(time.Now())
	d.stallBound.ReportEnd()
}

// AcquireServer takes a lease on a slot for an MCP server. If all slots are taken it returns ErrBusy. If no server can
// be started it returns ErrUnready with the reason. The lease ends with its connection.
func (c *Client) AcquireServer(ctx context.Context) (Lease, error) {
	return callSandboxd[Lease](ctx, c, http.MethodPost, "/v1/leases", LeaseRequest{Server: true})
}

// Stream is the input and output of a server's program. Read and Write may be called concurrently.
type Stream struct {
	in     *io.PipeWriter
	resp   *http.Response
	cancel context.CancelFunc
}

// StartServer starts the program of an MCP server in the slot of a lease. The program ends when ctx or the lease ends,
// or when the Stream is closed. A lease can be used for one program. The caller must close the Stream.
func (c *Client) StartServer(ctx context.Context, generation uint64, h ServerHead) (*Stream, error) {
	conn, err := c.getConn(ctx)
	if err != nil {
		return nil, err
	}
	head, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	r, w := io.Pipe()
	body := struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(append(head, '\n')), r), r}
	// While the transport waits for bytes of the body, it does not notice the end of the request's context.
	context.AfterFunc(ctx, func() { _ = w.CloseWithError(ctx.Err()) })
	path := "/v1/servers/" + strconv.FormatUint(generation, 10)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, body)
	if err != nil {
		cancel()
		return nil, err
	}
	resp, err := conn.RoundTrip(req)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("%w: %w POST %s: %w", ErrInterrupted, errAsking, path, err)
	}
	if err := rpc.ReadError(c, resp); err != nil {
		_ = resp.Body.Close()
		cancel()
		return nil, err
	}
	return &Stream{in: w, resp: resp, cancel: cancel}, nil
}

// Read reads the program's output. After io.EOF the program has ended, and Exit returns how. Any other error means that
// the connection broke or the Stream was closed.
func (s *Stream) Read(p []byte) (int, error) {
	n, err := s.resp.Body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %w", ErrInterrupted, err)
	}
	return n, err
}

// Write writes to the program's input. It blocks while the program does not read, and fails after the program's end.
func (s *Stream) Write(p []byte) (int, error) { return s.in.Write(p) }

// CloseWrite ends the program's input.
func (s *Stream) CloseWrite() error { return s.in.Close() }

// Close ends the program if it still runs. It does not wait; Client.Release does.
func (s *Stream) Close() error {
	s.cancel()
	return s.resp.Body.Close()
}

// Exit returns how the program ended. It is valid after Read has returned io.EOF.
func (s *Stream) Exit() (Exit, error) {
	var e Exit
	if err := json.Unmarshal([]byte(s.resp.Trailer.Get(ExitTrailer)), &e); err != nil {
		return e, fmt.Errorf("%w: no exit was reported", ErrInterrupted)
	}
	return e, nil
}

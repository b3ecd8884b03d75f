// Package bridge is the MCP client in a server slot. It stands beside the server's process or in front of a remote
// server, and exchanges frames with mcp-server's broker.
//
// Threat: a hostile server sends its client endless lists, answers of a gigabyte, or no answer. Contract: such an
// attack exhausts only the server's slot, because the client is in the slot too. The broker trusts the bridge no more
// than the server.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
)

const (
	// discoverTime is how long a server may take to answer server/discover. After that it counts as an older server that
	// does not know the request.
	discoverTime = 3 * time.Second
	// settleTime is how long a server may take to answer after a cancelled call.
	settleTime = 2 * time.Second
	// defaultConnectTime bounds connecting if the start frame sets no bound.
	defaultConnectTime = 30 * time.Second
	// maxRequests bounds the requests in flight. The broker's bound is lower.
	maxRequests = 256
	// changePause gathers notifications about a changed list: the bridge sends at most one frame per pause and list.
	changePause = 100 * time.Millisecond
	// progressPause gathers progress reports: the bridge sends at most one frame per pause and request.
	progressPause = 250 * time.Millisecond
	// legacy is the newest protocol version that starts with initialize.
	legacy = "2025-11-25"
)

// Config configures a Bridge.
type Config struct {
	// In and Out carry the frames.
	In  io.Reader
	Out io.Writer
	// Env is the environment that a server's process inherits.
	Env []string
	// Programs is a folder that is searched for a server's program before PATH, or "".
	Programs string
	// Version is the version that the client reports to the server.
	Version string
}

// Bridge connects one server. Create it with New and use it once.
type Bridge struct {
	cfg   Config
	out   *bridgewire.Writer
	logs  *logRelay
	start bridgewire.Start
	limit time.Duration // for connecting, all attempts together

	requests sync.WaitGroup

	mu       sync.Mutex
	cancels  map[uint64]context.CancelFunc
	changed  bool                            // a change of the tools is not reported yet
	progress map[uint64]*bridgewire.Progress // by request: progress that is not reported yet

	questions openQuestions
}

// New returns a bridge.
func New(cfg Config) *Bridge {
	b := &Bridge{
		cfg: cfg, out: bridgewire.NewWriter(cfg.Out), cancels: map[uint64]context.CancelFunc{},
		progress: map[uint64]*bridgewire.Progress{},
	}
	b.logs = &logRelay{
		write:  func(text string) { b.writeFrame(bridgewire.FromBridge{Log: text}) },
		output: rate.NewLimiter(logRate, logBurst),
	}
	return b
}

// Run serves until the input or the server ends, or ctx ends. It reports a failed server to the broker, and not as an
// error.
func (b *Bridge) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	frames, ended := make(chan bridgewire.ToBridge), make(chan error, 1)
	go func() {
		ended <- b.readFrames(ctx, frames)
		cancel()
	}()
	select {
	// The first frame must name the server: there is nothing to serve before it.
	case f := <-frames:
		if f.Start == nil {
			return errors.New("the first frame does not start a server")
		}
		b.start = *f.Start
	case <-ctx.Done():
		return endOf(ended)
	}
	server, err := b.connectServer(ctx)
	if err != nil {
		b.reportFailure(ctx, err)
		return endOf(ended)
	}
	defer server.closeServer()
	s, err := server.ensureSession()
	if err != nil {
		b.reportFailure(ctx, err)
		return endOf(ended)
	}
	b.writeFrame(bridgewire.FromBridge{Ready: &bridgewire.Ready{Protocol: s.InitializeResult().ProtocolVersion}})
	b.serveRequests(ctx, server, frames)
	// Cancelled before the wait, so that open requests end.
	cancel()
	b.requests.Wait()
	return endOf(ended)
}

// endOf returns why reading ended, if it has ended. The end of the input is not an error.
func endOf(ended <-chan error) error {
	select {
	case err := <-ended:
		if !errors.Is(err, io.EOF) && !errors.Is(err, context.Canceled) {
			return err
		}
	default:
	}
	return nil
}

// readFrames passes on frames until the input ends.
func (b *Bridge) readFrames(ctx context.Context, frames chan<- bridgewire.ToBridge) error {
	for r := bridgewire.NewReader(b.cfg.In); ; {
		var f bridgewire.ToBridge
		if err := r.Read(&f); err != nil {
			return err
		}
		select {
		case frames <- f:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// serveRequests answers requests until ctx or the server ends.
func (b *Bridge) serveRequests(ctx context.Context, s serverConn, frames <-chan bridgewire.ToBridge) {
	for {
		select {
		case f := <-frames:
			b.takeFrame(ctx, s, f)
		case <-s.endSignal():
			b.requests.Wait() // they end too, now that the server is gone
			b.reportFailure(ctx, s.endReason())
			return
		case <-ctx.Done():
			return
		}
	}
}

// takeFrame starts or cancels a request.
func (b *Bridge) takeFrame(ctx context.Context, s serverConn, f bridgewire.ToBridge) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case f.Answer != nil:
		b.questions.passAnswer(*f.Answer)
	case f.Cancel != 0:
		if cancel := b.cancels[f.Cancel]; cancel != nil {
			cancel()
		}
	// A second request with the same ID would replace the cancel function of the first.
	case f.ID == 0 || b.cancels[f.ID] != nil || len(b.cancels) >= maxRequests:
		b.writeFrame(bridgewire.FromBridge{ID: f.ID, Error: &bridgewire.Error{Code: bridgewire.BadRequest,
			Message: "no such request"}})
	default:
		ctx, cancel := context.WithCancel(context.WithValue(ctx, requestKey{}, f.ID))
		b.cancels[f.ID] = cancel
		b.requests.Go(func() {
			answer := b.doRequest(ctx, s, f)
			b.sendProgress(f.ID) // the broker would drop progress after the answer
			b.writeAnswer(f.ID, answer)
			b.mu.Lock()
			defer b.mu.Unlock()
			cancel()
			delete(b.cancels, f.ID)
		})
	}
}

func (b *Bridge) writeAnswer(id uint64, a bridgewire.FromBridge) {
	a.ID = id
	// A frame that is too long was not written, so a short error can take its place.
	if err := b.out.Write(a); errors.Is(err, bridgewire.ErrTooLong) {
		b.writeFrame(bridgewire.FromBridge{ID: id, Error: tooLarge()})
	}
}

// writeFrame writes a frame. It fails only if the broker is gone, and then the input ends as well.
func (b *Bridge) writeFrame(f bridgewire.FromBridge) { _ = b.out.Write(f) }

// reportFailure reports to the broker why the bridge ends, unless the broker ended it.
func (b *Bridge) reportFailure(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	// The dropped lines must reach the log before the last frame.
	b.logs.reportDropped()
	f := bridgewire.Failed{Code: bridgewire.Gone, Message: err.Error()}
	if e := (*bridgewire.Error)(nil); errors.As(err, &e) {
		f = bridgewire.Failed{Code: e.Code, Message: e.Message}
	}
	b.writeFrame(bridgewire.FromBridge{Failed: &f})
}

// notifyChanged notifies the broker of changed tools after a short delay, so that many changes give one frame.
func (b *Bridge) notifyChanged(context.Context, *mcp.ToolListChangedRequest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed {
		return
	}
	b.changed = true
	time.AfterFunc(changePause, func() {
		b.mu.Lock()
		b.changed = false
		b.mu.Unlock()
		b.writeFrame(bridgewire.FromBridge{Changed: true})
	})
}

// reportProgress reports the progress of a request to the broker after a short delay. Only the last report within the
// delay is sent.
func (b *Bridge) reportProgress(p *mcp.ProgressNotificationParams) {
	token, _ := p.ProgressToken.(string)
	id, err := strconv.ParseUint(token, 10, 64)
	b.mu.Lock()
	defer b.mu.Unlock()
	// The server chooses the token, and memory is kept only for requests in flight.
	if err != nil || b.cancels[id] == nil {
		return
	}
	_, waits := b.progress[id]
	b.progress[id] = &bridgewire.Progress{
		Request: id, Done: p.Progress, Total: p.Total, Message: p.Message[:min(len(p.Message), bridgewire.MaxLog)],
	}
	// The timer that runs already will send this report.
	if waits {
		return
	}
	time.AfterFunc(progressPause, func() { b.sendProgress(id) })
}

// sendProgress sends the last report of a request, unless it has been sent.
func (b *Bridge) sendProgress(id uint64) {
	b.mu.Lock()
	last := b.progress[id]
	delete(b.progress, id)
	b.mu.Unlock()
	if last != nil {
		b.writeFrame(bridgewire.FromBridge{Progress: last})
	}
}

// newClient returns the SDK's client. It passes on questions and progress, and offers the server no other feature: no
// roots, no sampling.
func (b *Bridge) newClient() *mcp.Client {
	return mcp.NewClient(&mcp.Implementation{Name: "codeforge", Version: b.cfg.Version}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{
			Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}},
		},
		ElicitationHandler:     b.passQuestion,
		ToolListChangedHandler: b.notifyChanged,
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			b.reportProgress(r.Params)
		},
	})
}

// serverConn is the connection to a server, on its standard input and output or over HTTP.
type serverConn interface {
	// ensureSession returns the session for a new request. For this, a remote server may be connected again.
	ensureSession() (*mcp.ClientSession, error)
	// isSessionLost reports whether the server rejected the request because of its session, and may accept it in another
	// session. It uses the request's capture and error.
	isSessionLost(s *mcp.ClientSession, c *wireCapture, err error) bool
	// isProcess means that the server is a process in this slot, so that its work ends with the slot.
	isProcess() bool
	// endSignal is closed when the server can no longer be used. why returns the reason.
	endSignal() <-chan struct{}
	endReason() error
	closeServer()
}

// connectServer connects the server of the start frame.
func (b *Bridge) connectServer(ctx context.Context) (serverConn, error) {
	b.limit = time.Duration(b.start.ConnectTimeoutMS) * time.Millisecond
	if b.limit <= 0 {
		b.limit = defaultConnectTime
	}
	switch {
	case len(b.start.Command) > 0 && b.start.URL == "":
		return b.connectChild(ctx)
	case len(b.start.Command) == 0 && b.start.URL != "":
		return b.connectRemote(ctx)
	}
	return nil, &bridgewire.Error{Code: bridgewire.BadRequest, Message: "the start frame needs a command or a url"}
}

// slowError means that a server did not answer in time.
type slowError struct{ limit time.Duration }

func (e *slowError) Error() string {
	return fmt.Sprintf("it did not answer within %v", e.limit.Round(time.Millisecond))
}

// dialSession opens a session on a transport, within limit. The session may outlive the limit, but not ctx.
func (b *Bridge) dialSession(
	ctx context.Context, t mcp.Transport, protocol string, limit time.Duration,
) (*mcp.ClientSession, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	// Not context.WithTimeout: its deadline would also end a session that was opened in time.
	timer := time.AfterFunc(limit, func() { cancel(&slowError{b.limit}) })
	defer timer.Stop()
	type result struct {
		session *mcp.ClientSession
		err     error
	}
	done := make(chan result, 1)
	go func() {
		s, err := b.newClient().Connect(ctx, t, &mcp.ClientSessionOptions{ProtocolVersion: protocol})
		done <- result{s, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			// The cause says more than the SDK's error, which only says cancelled.
			cause := context.Cause(ctx)
			cancel(nil)
			if cause != nil {
				return nil, cause
			}
		}
		return r.session, r.err
	case <-ctx.Done():
		// A session that opens too late must be closed, or it would go on in the background.
		go func() {
			if r := <-done; r.session != nil {
				_ = r.session.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// Package bridge is the MCP client that stands in a server slot, beside the server's process or in front of a remote
// one, and speaks frames with mcp-server's broker.
//
// It is inside the slot because the server is not trusted: whatever a hostile server does to its client (endless lists,
// answers of a gigabyte, silence) exhausts that server's own slot. Nothing the bridge says is trusted more than the
// server.
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

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/frame"
)

const (
	// discoverTime is how long a server may take to answer server/discover before it is taken for an older one, which
	// does not know it.
	discoverTime = 3 * time.Second
	// settleTime is how long a server has to answer after a cancelled call.
	settleTime = 2 * time.Second
	// defaultConnectTime bounds connecting when the start frame has no bound.
	defaultConnectTime = 30 * time.Second
	// maxRequests is how many requests may be in flight. The broker has a smaller bound.
	maxRequests = 256
	// changePause collects notifications that a list has changed: a frame is sent at most this often for each list.
	changePause = 100 * time.Millisecond
	// progressPause collects reports of progress: a frame is sent at most this often for each request.
	progressPause = 250 * time.Millisecond
	// legacy is the newest revision of the protocol that begins with initialize.
	legacy = "2025-11-25"
)

// Config configures a Bridge.
type Config struct {
	// In and Out carry the frames.
	In  io.Reader
	Out io.Writer
	// Env is the environment that a server's process inherits.
	Env []string
	// Programs is a folder that is searched for a server's program before PATH. Empty: none.
	Programs string
	// Version is what the client calls itself.
	Version string
}

// Bridge connects one server. Make it with New, use it once.
type Bridge struct {
	cfg   Config
	out   *frame.Writer
	logs  *logs
	start frame.Start
	limit time.Duration // of connecting, all attempts together

	requests sync.WaitGroup

	mu       sync.Mutex
	cancels  map[uint64]context.CancelFunc
	changes  map[string]bool            // lists whose change waits to be told
	progress map[uint64]*frame.Progress // of requests, that waits to be told

	questions questions
}

// New makes a bridge.
func New(cfg Config) *Bridge {
	b := &Bridge{
		cfg: cfg, out: frame.NewWriter(cfg.Out), cancels: map[uint64]context.CancelFunc{}, changes: map[string]bool{},
		progress: map[uint64]*frame.Progress{},
	}
	b.logs = &logs{write: func(text string) { b.write(frame.FromBridge{Log: text}) }}
	return b
}

// Run serves until the input ends, the server does, or ctx. A server that fails is not an error: it is reported to the
// broker.
func (b *Bridge) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	frames, ended := make(chan frame.ToBridge), make(chan error, 1)
	go func() {
		ended <- b.read(ctx, frames)
		cancel()
	}()
	select {
	case f := <-frames:
		if f.Start == nil {
			return errors.New("the first frame does not start a server")
		}
		b.start = *f.Start
	case <-ctx.Done():
		return endOf(ended)
	}
	server, err := b.connect(ctx)
	if err != nil {
		b.fail(ctx, err)
		return endOf(ended)
	}
	defer server.close()
	b.write(frame.FromBridge{Ready: server.ready()})
	b.serve(ctx, server, frames)
	cancel()
	b.requests.Wait()
	return endOf(ended)
}

// endOf is why reading ended, if it has: the end of the input is not an error.
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

// read passes frames on until the input ends.
func (b *Bridge) read(ctx context.Context, frames chan<- frame.ToBridge) error {
	for r := frame.NewReader(b.cfg.In); ; {
		var f frame.ToBridge
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

// serve answers requests until ctx ends or the server does.
func (b *Bridge) serve(ctx context.Context, s server, frames <-chan frame.ToBridge) {
	for {
		select {
		case f := <-frames:
			b.take(ctx, s, f)
		case <-s.ended():
			b.requests.Wait() // each of them ends, now that there is no server
			b.fail(ctx, s.why())
			return
		case <-ctx.Done():
			return
		}
	}
}

// take begins or cancels a request.
func (b *Bridge) take(ctx context.Context, s server, f frame.ToBridge) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case f.Answer != nil:
		b.questions.answer(*f.Answer)
	case f.Cancel != 0:
		if cancel := b.cancels[f.Cancel]; cancel != nil {
			cancel()
		}
	case f.ID == 0 || b.cancels[f.ID] != nil || len(b.cancels) >= maxRequests:
		b.write(frame.FromBridge{ID: f.ID, Error: &frame.Error{Code: frame.BadRequest, Message: "no such request"}})
	default:
		ctx, cancel := context.WithCancel(context.WithValue(ctx, requestKey{}, f.ID))
		b.cancels[f.ID] = cancel
		b.requests.Go(func() {
			b.answer(f.ID, b.request(ctx, s, f))
			b.mu.Lock()
			defer b.mu.Unlock()
			cancel()
			delete(b.cancels, f.ID)
		})
	}
}

// answer writes the answer to a request.
func (b *Bridge) answer(id uint64, a frame.FromBridge) {
	a.ID = id
	if err := b.out.Write(a); errors.Is(err, frame.ErrTooLong) {
		b.write(frame.FromBridge{ID: id, Error: tooLarge()})
	}
}

// write writes a frame. When that fails the broker has gone, which also ends the input.
func (b *Bridge) write(f frame.FromBridge) { _ = b.out.Write(f) }

// fail tells the broker why the bridge ends, unless it is because the broker wants it.
func (b *Bridge) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	b.logs.flush()
	f := frame.Failed{Code: frame.Gone, Message: err.Error()}
	if e := (*frame.Error)(nil); errors.As(err, &e) {
		f = frame.Failed{Code: e.Code, Message: e.Message}
	}
	b.write(frame.FromBridge{Failed: &f})
}

// changed notifies the broker, after a short delay, that a list has changed: many changes become one notification.
func (b *Bridge) changed(list string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changes[list] {
		return
	}
	b.changes[list] = true
	time.AfterFunc(changePause, func() {
		b.mu.Lock()
		delete(b.changes, list)
		b.mu.Unlock()
		b.write(frame.FromBridge{Changed: list})
	})
}

// progressed tells the broker, after a short delay, how far the server is with a request: of several reports the last.
func (b *Bridge) progressed(p *mcp.ProgressNotificationParams) {
	token, _ := p.ProgressToken.(string)
	id, err := strconv.ParseUint(token, 10, 64)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil || b.cancels[id] == nil {
		return
	}
	_, waits := b.progress[id]
	b.progress[id] = &frame.Progress{
		Request: id, Done: p.Progress, Total: p.Total, Message: p.Message[:min(len(p.Message), frame.MaxLog)],
	}
	if waits {
		return
	}
	time.AfterFunc(progressPause, func() {
		b.mu.Lock()
		last := b.progress[id]
		delete(b.progress, id)
		b.mu.Unlock()
		b.write(frame.FromBridge{Progress: last})
	})
}

// client is the SDK's client. It passes on questions and progress, and can do nothing else for the server: no roots, no
// sampling.
func (b *Bridge) client() *mcp.Client {
	return mcp.NewClient(&mcp.Implementation{Name: "codeforge", Version: b.cfg.Version}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{
			Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}},
		},
		ElicitationHandler:         b.elicit,
		ToolListChangedHandler:     func(context.Context, *mcp.ToolListChangedRequest) { b.changed("tools") },
		PromptListChangedHandler:   func(context.Context, *mcp.PromptListChangedRequest) { b.changed("prompts") },
		ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { b.changed("resources") },
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			b.progressed(r.Params)
		},
	})
}

// server is the connection to a server, on its standard input and output or over HTTP.
type server interface {
	ready() *frame.Ready
	// session is the session for a new request. A remote server may be connected to again for it.
	session(ctx context.Context) (*mcp.ClientSession, error)
	// isSessionLost reports, from a request's capture and error, whether the server did not accept the request and may
	// accept it in another session.
	isSessionLost(s *mcp.ClientSession, c *capture, err error) bool
	// process means that the server is a process of this slot, so that what it does ends with the slot.
	process() bool
	// ended is closed when the server can no longer be used, for the reason in why.
	ended() <-chan struct{}
	why() error
	close()
}

// connect connects the server of the start frame.
func (b *Bridge) connect(ctx context.Context) (server, error) {
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
	return nil, &frame.Error{Code: frame.BadRequest, Message: "the start frame needs a command or a url"}
}

// slowError means that a server did not answer in time.
type slowError struct{ limit time.Duration }

func (e *slowError) Error() string {
	return fmt.Sprintf("it did not answer within %v", e.limit.Round(time.Millisecond))
}

// dial makes a session on a transport, within limit. The session may outlive ctx's deadline, but not ctx.
func (b *Bridge) dial(
	ctx context.Context, t mcp.Transport, protocol string, limit time.Duration,
) (*mcp.ClientSession, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() { cancel(&slowError{b.limit}) })
	defer timer.Stop()
	type result struct {
		session *mcp.ClientSession
		err     error
	}
	done := make(chan result, 1)
	go func() {
		s, err := b.client().Connect(ctx, t, &mcp.ClientSessionOptions{ProtocolVersion: protocol})
		done <- result{s, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			cause := context.Cause(ctx)
			cancel(nil)
			if cause != nil {
				return nil, cause
			}
		}
		return r.session, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.session != nil {
				_ = r.session.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// readyOf is what a server said about itself on connecting.
func readyOf(s *mcp.ClientSession) *frame.Ready {
	res := s.InitializeResult()
	r := &frame.Ready{Protocol: res.ProtocolVersion, Instructions: res.Instructions}
	if res.ServerInfo != nil {
		r.Name, r.Version = res.ServerInfo.Name, res.ServerInfo.Version
	}
	if line, err := frame.Encode(res.Capabilities); err == nil {
		r.Capabilities = line
	}
	return r
}

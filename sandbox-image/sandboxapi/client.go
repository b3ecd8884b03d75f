package sandboxapi

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
)

// peerName is sandboxd's name as an rpc.Peer.
const peerName = "sandboxd"

// Errors that callers test for.
var (
	ErrBusy      = newError(http.StatusTooManyRequests, "busy", "all slots are taken")
	ErrLeaseGone = newError(http.StatusGone, "lease_gone", "the lease has ended")
	// ErrPermissions means that the current permission set is not the one that the run expects.
	ErrPermissions = newError(http.StatusConflict, "permissions", "the permission set has changed")
	// ErrBadRequest means that a request can never succeed.
	ErrBadRequest = newError(http.StatusBadRequest, "bad_request", "bad request")
	// ErrUnready means that the Sandbox cannot serve any run at the moment.
	ErrUnready = newError(http.StatusServiceUnavailable, "unready", "the sandbox is not ready")
	// ErrNotInstalled means that no installation has sealed the package.
	ErrNotInstalled = newError(http.StatusFailedDependency, "not_installed", "the package is not installed")
	// ErrInterrupted means that the stream broke before the run's Exit arrived. The code may have run, so the caller
	// decides whether to try again.
	ErrInterrupted = errors.New("the connection to the sandbox broke during the run")
)

func newError(status int, code, text string) error {
	return &rpc.Error{API: peerName, Status: status, Code: code, Text: text}
}

// errAsking means that a request failed without a response. sandboxd may have received it.
var errAsking = errors.New("asking sandboxd")

// ClientConfig configures a Client.
type ClientConfig struct {
	// Dial opens the byte stream to sandboxd: a unix socket, or a docker exec. The client calls it for the first request
	// and again after the stream has broken, at most every 100 ms.
	Dial func(ctx context.Context) (net.Conn, error)
	// PingEvery is the interval of HTTP/2 pings on an idle stream. Zero means 15 s.
	PingEvery time.Duration
}

// Client talks to one sandboxd over one stream. It is safe for concurrent use.
type Client struct {
	tr *http.Transport

	mu       sync.Mutex
	conn     *http.ClientConn
	lastDial time.Time
	opened   uint64 // number of streams opened so far
	closed   bool
}

const (
	dialPause   = 100 * time.Millisecond
	dialTimeout = 10 * time.Second
)

// NewClient returns a client. The client opens the stream at the first call.
func NewClient(cfg ClientConfig) *Client {
	cfg.PingEvery = cmp.Or(cfg.PingEvery, 15*time.Second)
	c := &Client{}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	c.tr = &http.Transport{
		Protocols:          protocols,
		DisableCompression: true,
		HTTP2:              &http.HTTP2Config{SendPingTimeout: cfg.PingEvery, PingTimeout: 10 * time.Second},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return cfg.Dial(ctx)
		},
	}
	return c
}

// Close ends the stream. sandboxd kills the runs of the stream.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.conn != nil {
		return c.conn.Close()
	}
	return nil
}

// getConn returns the only HTTP/2 connection. If it has broken, stream opens a new one.
func (c *Client) getConn(ctx context.Context) (*http.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, net.ErrClosed
	}
	if c.conn != nil && c.conn.Err() == nil {
		return c.conn, nil
	}
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
	select {
	// Without the pause, a sandboxd that rejects streams would be dialled in a busy loop.
	case <-time.After(dialPause - time.Since(c.lastDial)):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c.lastDial = time.Now()
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := c.tr.NewClientConn(ctx, "http", "sandboxd:80")
	if err != nil {
		return nil, fmt.Errorf("connecting to sandboxd: %w", err)
	}
	c.conn = conn
	c.opened++
	return conn, nil
}

// Name implements rpc.Peer.
func (c *Client) Name() string { return peerName }

// Do implements rpc.Peer.
func (c *Client) Do(r *http.Request) (*http.Response, error) {
	conn, err := c.getConn(r.Context())
	if err != nil {
		return nil, err
	}
	resp, err := conn.RoundTrip(r)
	if err != nil {
		return nil, fmt.Errorf("%w %s %s: %w", errAsking, r.Method, r.URL.Path, err)
	}
	return resp, nil
}

// callSandboxd sends a request and reads an answer of one JSON value or none.
func callSandboxd[T any](ctx context.Context, c *Client, method, path string, body any) (T, error) {
	return rpc.Call[T](ctx, c, method, base+path, body)
}

// base is the start of every request's URL.
const base = "http://sandboxd"

// Acquire takes a lease on a free slot, preferably a warm one. If all slots are taken, it returns ErrBusy. A lease
// ahead is valid only while its stream is open: while StreamNumber returns the number that it returned before the call.
func (c *Client) Acquire(ctx context.Context, r LeaseRequest) (Lease, error) {
	return callSandboxd[Lease](ctx, c, http.MethodPost, "/v1/leases", r)
}

// StreamNumber returns the number of the open stream, zero if no stream is open.
func (c *Client) StreamNumber() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.conn == nil || c.conn.Err() != nil {
		return 0
	}
	return c.opened
}

// Release ends a lease and kills its processes.
func (c *Client) Release(ctx context.Context, generation uint64) error {
	_, err := callSandboxd[struct{}](ctx, c, http.MethodDelete, "/v1/leases/"+strconv.FormatUint(generation, 10), nil)
	return err
}

// Run runs code and calls on for every output event in order. Cancelling ctx kills the run. The Exit is valid only if
// the error is nil.
func (c *Client) Run(ctx context.Context, r RunRequest, on func(Event)) (Exit, error) {
	resp, err := rpc.Send(ctx, c, http.MethodPost, base+"/v1/runs", r)
	// Without a response, the request may have started the run: the caller must not treat it as refused.
	if errors.Is(err, errAsking) && ctx.Err() == nil {
		return Exit{}, fmt.Errorf("%w: %w", ErrInterrupted, err)
	}
	if err != nil {
		return Exit{}, err
	}
	defer resp.Body.Close()
	events := bufio.NewReaderSize(resp.Body, 4<<10)
	var exit *Exit
	for exit == nil {
		err := readEvent(events, r.Owner, func(e Event) {
			if exit = e.Exit; exit == nil {
				on(e)
			}
		})
		if err != nil {
			if ctx.Err() != nil {
				return Exit{}, ctx.Err()
			}
			return Exit{}, fmt.Errorf("%w: %w", ErrInterrupted, err)
		}
	}
	return *exit, nil
}

// Pause stops or resumes the time limit of a lease's run. It returns ErrLeaseGone if there is no such run.
func (c *Client) Pause(ctx context.Context, generation uint64, paused bool) error {
	path := "/v1/runs/" + strconv.FormatUint(generation, 10) + "/pause"
	_, err := callSandboxd[struct{}](ctx, c, http.MethodPost, path, Pause{Paused: paused})
	return err
}

// SetPermissions sets the current permission set.
func (c *Client) SetPermissions(ctx context.Context, p Permissions) (PermissionSet, error) {
	return callSandboxd[PermissionSet](ctx, c, http.MethodPut, "/v1/permissions", p)
}

// Tidy removes all installed packages that are not in p.
func (c *Client) Tidy(ctx context.Context, p Packages) (Tidied, error) {
	return callSandboxd[Tidied](ctx, c, http.MethodPut, "/v1/packages", p)
}

// Health returns sandboxd's health.
func (c *Client) Health(ctx context.Context) (Health, error) {
	return callSandboxd[Health](ctx, c, http.MethodGet, "/v1/health", nil)
}

// Stats returns sandboxd's counters.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	return callSandboxd[Stats](ctx, c, http.MethodGet, "/v1/stats", nil)
}

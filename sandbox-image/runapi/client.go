package runapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/httpjson"
)

// Errors that callers test for.
var (
	ErrBusy        = errors.New("all slots are taken")
	ErrLeaseGone   = errors.New("the lease has ended")
	ErrPermissions = errors.New("the permission set has changed")
	// ErrInterrupted means that the stream broke before the run's Exit arrived. The code may have run, so the caller
	// decides whether to try again.
	ErrInterrupted = errors.New("the connection to the sandbox broke during the run")
)

// errAsking means that a request failed without a response. It may have arrived.
var errAsking = errors.New("asking sandboxd")

// ClientConfig configures a Client.
type ClientConfig struct {
	// Dial opens the byte stream to sandboxd: a unix socket, or a docker exec. It is called for the first request and
	// again when the stream has broken, at most every 100 ms.
	Dial func(ctx context.Context) (net.Conn, error)
	// PingEvery is the interval of HTTP/2 pings on an idle stream. Zero means 15 s.
	PingEvery time.Duration
}

// Client talks to one sandboxd over one stream. It is safe for concurrent use.
type Client struct {
	cfg ClientConfig
	tr  *http.Transport

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

// NewClient returns a client. It opens the stream at the first call.
func NewClient(cfg ClientConfig) *Client {
	if cfg.PingEvery == 0 {
		cfg.PingEvery = 15 * time.Second
	}
	c := &Client{cfg: cfg}
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

// Close ends the stream; sandboxd kills the runs that came over it.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.conn != nil {
		return c.conn.Close()
	}
	return nil
}

// stream returns the one HTTP/2 connection, and opens a new one when the last one has broken.
func (c *Client) stream(ctx context.Context) (*http.ClientConn, error) {
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

// do sends one request with a JSON body (nil: none) and returns the response, whatever its status.
func (c *Client) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	conn, err := c.stream(ctx)
	if err != nil {
		return nil, err
	}
	var data []byte
	if body != nil {
		if data, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://sandboxd"+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	resp, err := conn.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("%w %s %s: %w", errAsking, method, path, err)
	}
	return resp, nil
}

// call is do for responses of one JSON value. It turns error statuses into errors.
func (c *Client) call(ctx context.Context, method, path string, body, out any) error {
	resp, err := c.do(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := statusError(resp); err != nil {
		return err
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// statusError maps the statuses of the contract to the sentinels above.
func statusError(resp *http.Response) error {
	if resp.StatusCode < 300 {
		return nil
	}
	why := httpjson.Error(resp)
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		return ErrBusy
	case http.StatusGone, http.StatusNotFound:
		return fmt.Errorf("%w: %s", ErrLeaseGone, why)
	case http.StatusConflict:
		return fmt.Errorf("%w: %s", ErrPermissions, why)
	case http.StatusServiceUnavailable:
		if why == ErrUnready.Error() {
			return ErrUnready
		}
		return fmt.Errorf("%w: %s", ErrUnready, strings.TrimPrefix(why, ErrUnready.Error()+": "))
	case http.StatusFailedDependency:
		return fmt.Errorf("%w: %s", ErrNotInstalled, strings.TrimPrefix(why, ErrNotInstalled.Error()+": "))
	}
	return fmt.Errorf("sandboxd answered %d: %s", resp.StatusCode, why)
}

// Acquire takes a lease on a free slot, preferably a warm one. It returns ErrBusy when all are taken.
func (c *Client) Acquire(ctx context.Context) (Lease, error) {
	return c.AcquireFor(ctx, LeaseRequest{})
}

// AcquireFor is Acquire for a certain run. A lease ahead is valid only while the stream it was taken on is open, that
// is, while Stream returns the number that it returned before the call.
func (c *Client) AcquireFor(ctx context.Context, r LeaseRequest) (Lease, error) {
	var l Lease
	err := c.call(ctx, http.MethodPost, "/v1/leases", r, &l)
	return l, err
}

// Stream is the number of the stream that is open now, zero if none is.
func (c *Client) Stream() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.conn == nil || c.conn.Err() != nil {
		return 0
	}
	return c.opened
}

// Release ends a lease and kills what still runs in it.
func (c *Client) Release(ctx context.Context, generation uint64) error {
	return c.call(ctx, http.MethodDelete, "/v1/leases/"+strconv.FormatUint(generation, 10), nil, nil)
}

// Run runs code and calls on for every output event in order. Cancelling ctx kills the run. The Exit is valid only
// when the error is nil.
func (c *Client) Run(ctx context.Context, r RunRequest, on func(Event)) (Exit, error) {
	resp, err := c.do(ctx, http.MethodPost, "/v1/runs", r)
	if errors.Is(err, errAsking) && ctx.Err() == nil {
		return Exit{}, fmt.Errorf("%w: %w", ErrInterrupted, err)
	}
	if err != nil {
		return Exit{}, err
	}
	defer resp.Body.Close()
	if err := statusError(resp); err != nil {
		return Exit{}, err
	}
	events := bufio.NewReaderSize(resp.Body, 4<<10)
	for {
		e, err := readEvent(events)
		if err != nil {
			if ctx.Err() != nil {
				return Exit{}, ctx.Err()
			}
			return Exit{}, fmt.Errorf("%w: %w", ErrInterrupted, err)
		}
		if e.Exit != nil {
			return *e.Exit, nil
		}
		on(e)
	}
}

// Pause stops the time limit of a lease's run, or lets it go on. ErrLeaseGone if there is no such run.
func (c *Client) Pause(ctx context.Context, generation uint64, paused bool) error {
	path := "/v1/runs/" + strconv.FormatUint(generation, 10) + "/pause"
	return c.call(ctx, http.MethodPost, path, Pause{Paused: paused}, nil)
}

// SetPermissions names the current permission set.
func (c *Client) SetPermissions(ctx context.Context, p Permissions) (PermissionSet, error) {
	var s PermissionSet
	err := c.call(ctx, http.MethodPut, "/v1/permissions", p, &s)
	return s, err
}

// Tidy removes the installed packages that are not wanted.
func (c *Client) Tidy(ctx context.Context, p Packages) (Tidied, error) {
	var t Tidied
	return t, c.call(ctx, http.MethodPut, "/v1/packages", p, &t)
}

// Health asks whether sandboxd can serve runs.
func (c *Client) Health(ctx context.Context) (Health, error) {
	var h Health
	resp, err := c.do(ctx, http.MethodGet, "/v1/health", nil)
	if err != nil {
		return h, err
	}
	defer resp.Body.Close()
	return h, json.NewDecoder(resp.Body).Decode(&h)
}

// Stats asks for sandboxd's counters.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	var s Stats
	err := c.call(ctx, http.MethodGet, "/v1/stats", nil, &s)
	return s, err
}

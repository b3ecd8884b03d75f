package proxyapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// peerName is the proxy's name as an rpc.Peer.
const peerName = "the proxy"

var (
	// ErrFenced is the answer if the generation of a registration, or of its end, is not the one that the slot expects.
	ErrFenced error = &rpc.Error{
		API: peerName, Status: http.StatusConflict, Code: "fenced", Text: "another generation holds the slot",
	}
	// ErrNotFound is the answer for an API that is not in the catalog, or has no such file.
	ErrNotFound error = &rpc.Error{
		API: peerName, Status: http.StatusNotFound, Code: "not_found", Text: "not found",
	}
	// ErrBadRegistration is the answer to an invalid registration.
	ErrBadRegistration error = &rpc.Error{
		API: peerName, Status: http.StatusBadRequest, Code: "bad_registration", Text: "bad registration",
	}
)

// Client calls the control API of one egress-proxy. It is safe for concurrent use.
type Client struct {
	approvalapi.Client
	http *http.Client
	dial func(context.Context) (net.Conn, error)
	pod  string
}

// NewClient makes a client of the control API on the unix socket at path.
func NewClient(path string) *Client {
	return NewClientOver(func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	})
}

// NewClientOver makes a client that reaches the control API over the connections that dial makes.
func NewClientOver(dial func(context.Context) (net.Conn, error)) *Client {
	tr := &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		MaxIdleConnsPerHost: 16,
		DisableCompression:  true,
	}
	c := &Client{http: &http.Client{Transport: tr}, dial: dial}
	c.Client = approvalapi.Client{Peer: c, Paths: approvalapi.ControlPaths}
	return c
}

// ForPod returns a client for the slot of one pod, given its address, at a proxy that pods share. Close c to close it.
func (c *Client) ForPod(pod string) *Client {
	one := *c
	one.pod = pod
	return &one
}

// slotPath returns the path of a slot, or of a resource below it.
func (c *Client) slotPath(id slot.ID, of string, query url.Values) string {
	if c.pod != "" {
		query.Set("pod", c.pod)
	}
	path := "/v1/slots/" + strconv.Itoa(int(id)) + of
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

func newGenerationQuery(generation uint64) url.Values {
	return url.Values{"generation": {strconv.FormatUint(generation, 10)}}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// FetchCatalog fetches the public catalog.
func (c *Client) FetchCatalog(ctx context.Context) (Catalog, error) {
	return callProxy[Catalog](ctx, c, http.MethodGet, "/v1/catalog", nil)
}

// OpenTypes opens an API's types.d.ts, which may be large. It returns ErrNotFound if the API has no such file. The
// caller must close it.
func (c *Client) OpenTypes(ctx context.Context, api string) (io.ReadCloser, error) {
	return c.openDocument(ctx, api, "types")
}

// OpenOperations opens an API's operations.jsonl. It returns ErrNotFound if the API has no such file. The caller must
// close it.
func (c *Client) OpenOperations(ctx context.Context, api string) (io.ReadCloser, error) {
	return c.openDocument(ctx, api, "operations")
}

func (c *Client) openDocument(ctx context.Context, api, name string) (io.ReadCloser, error) {
	resp, err := c.sendToProxy(ctx, http.MethodGet, "/v1/catalog/"+url.PathEscape(api)+"/"+name, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// FetchInspection fetches the content of apis/ and its problems.
func (c *Client) FetchInspection(ctx context.Context) (Inspection, error) {
	return callProxy[Inspection](ctx, c, http.MethodGet, "/v1/inspection", nil)
}

// Diagnose returns the proxy's CA certificate and, unless offline is set, a check of each host of the active APIs. Only
// the proxy can make these checks.
func (c *Client) Diagnose(ctx context.Context, offline bool) (Diagnosis, error) {
	return callProxy[Diagnosis](ctx, c, http.MethodGet, "/v1/diagnosis?offline="+strconv.FormatBool(offline), nil)
}

// StatusNotDecided is the status of the *rpc.Error that says why a decision about a held request or a plan is not
// valid.
const StatusNotDecided = http.StatusForbidden

// MaxScrub bounds the texts of ScrubTexts, in bytes of JSON.
const MaxScrub = 8 << 20

// ScrubTexts returns the texts with token names for the credentials in them.
func (c *Client) ScrubTexts(ctx context.Context, texts []string) ([]string, error) {
	return callProxy[[]string](ctx, c, http.MethodPost, "/v1/scrub", texts)
}

// ScrubFile returns data with token names for the credentials in them.
func (c *Client) ScrubFile(ctx context.Context, data []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://proxy/v1/scrub/file", bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	resp, err := c.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if err := rpc.ReadError(c, resp); err != nil {
		return nil, err
	}
	return io.ReadAll(resp.Body)
}

// CheckLedger asks whether the ledger is intact and fits the checkpoints in the receipts of runs. It returns
// ErrNotFound if there is no ledger.
func (c *Client) CheckLedger(ctx context.Context, known []KnownHead) (LedgerCheck, error) {
	return callProxy[LedgerCheck](ctx, c, http.MethodPost, "/v1/ledger/check", known)
}

// RegisterRun begins a run in a slot. It returns ErrFenced if the slot has had this generation or a later one.
func (c *Client) RegisterRun(ctx context.Context, id slot.ID, r Registration) error {
	_, err := callProxy[struct{}](ctx, c, http.MethodPut, c.slotPath(id, "", url.Values{}), r)
	return err
}

// UnregisterRun ends a run. The proxy first aborts the run's exchanges and waits for them. If the generation is not the
// registered one, UnregisterRun returns ErrFenced and no receipt. The summary is for the ledger.
func (c *Client) UnregisterRun(ctx context.Context, id slot.ID, generation uint64, s Summary) (Receipt, error) {
	return callProxy[Receipt](ctx, c, http.MethodDelete, c.slotPath(id, "", newGenerationQuery(generation)), s)
}

// DrainExchanges returns the exchanges of a registered slot since its registration or the last DrainExchanges, and the
// proxy forgets them. It returns ErrFenced if the generation is not the registered one. With a cause, the proxy also
// publishes the event Caused.
func (c *Client) DrainExchanges(ctx context.Context, id slot.ID, generation uint64, cause Cause) (Receipt, error) {
	query := newGenerationQuery(generation)
	if cause != (Cause{}) {
		query.Set("run", cause.Run)
		query.Set("call", cause.Call)
		query.Set("among", strconv.Itoa(cause.Among))
	}
	return callProxy[Receipt](ctx, c, http.MethodPost, c.slotPath(id, "/drain", query), nil)
}

// SetCalls sends the proxy the list of calls in progress at the server in a slot. It returns ErrFenced if the
// generation is not the registered one.
func (c *Client) SetCalls(ctx context.Context, id slot.ID, generation uint64, calls ServerCalls) error {
	_, err := callProxy[struct{}](ctx, c, http.MethodPut, c.slotPath(id, "/calls", newGenerationQuery(generation)), calls)
	return err
}

// WatchHeld calls on with the requests of a registered run that wait for a person. It calls on at once and after each
// change, until the run or ctx ends.
func (c *Client) WatchHeld(ctx context.Context, id slot.ID, generation uint64,
	on func([]approvalapi.HeldRequest)) error {
	resp, err := c.sendToProxy(ctx, http.MethodGet, c.slotPath(id, "/held", newGenerationQuery(generation)), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for dec := json.NewDecoder(resp.Body); ; {
		var list []approvalapi.HeldRequest
		if err := dec.Decode(&list); err != nil {
			return fmt.Errorf("reading what waits: %w", err)
		}
		on(list)
	}
}

// Subscription is the stream of events after Subscribe.
type Subscription struct{ body io.ReadCloser }

// Subscribe begins a stream of events. The stream has every event after Subscribe returns, so fetch the state that
// events change only then.
func (c *Client) Subscribe(ctx context.Context, of Events) (*Subscription, error) {
	resp, err := c.sendToProxy(ctx, http.MethodGet, "/v1/events?of="+string(of), nil) //nolint:bodyclose // by Each
	if err != nil {
		return nil, err
	}
	return &Subscription{body: resp.Body}, nil
}

// EachEvent calls on for every event until the stream breaks off or the context of Subscribe ends. Then it closes the
// stream.
func (s *Subscription) EachEvent(on func(Event)) error {
	defer s.body.Close()
	dec := json.NewDecoder(s.body)
	for {
		var e Event
		if err := dec.Decode(&e); err != nil {
			return fmt.Errorf("reading events: %w", err)
		}
		on(e)
	}
}

// FetchHealth asks whether the proxy is ready.
func (c *Client) FetchHealth(ctx context.Context) (Health, error) {
	return callProxy[Health](ctx, c, http.MethodGet, "/v1/health", nil)
}

// FetchMetrics fetches the metrics as Prometheus text, at most 4 MiB.
func (c *Client) FetchMetrics(ctx context.Context) (string, error) {
	resp, err := c.sendToProxy(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	// The bound protects the caller from an endless answer.
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	return string(text), err
}

// Name implements rpc.Peer.
func (c *Client) Name() string { return peerName }

// Do implements rpc.Peer.
func (c *Client) Do(r *http.Request) (*http.Response, error) {
	resp, err := c.http.Do(r) //nolint:gosec // a Unix socket of CodeForge
	if err != nil {
		return nil, fmt.Errorf("asking the proxy: %w", err)
	}
	return resp, nil
}

func (c *Client) sendToProxy(ctx context.Context, method, path string, body any) (*http.Response, error) {
	return rpc.Send(ctx, c, method, "http://proxy"+path, body)
}

// callProxy sends a request whose answer is one JSON value.
func callProxy[T any](ctx context.Context, c *Client, method, path string, body any) (out T, err error) {
	return rpc.Call[T](ctx, c, method, "http://proxy"+path, body)
}

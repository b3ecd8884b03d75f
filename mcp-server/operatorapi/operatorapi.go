// Package operatorapi is the operator's API over HTTP on mcp-server's unix socket. The same socket serves the MCP
// endpoint without a token. No TCP port serves the paths below. No answer contains a credential. POST requests change
// data: the state of an MCP server, the stored runs, the frozen sessions, the inputs of runs, the sessions of the web
// console, and the logins of hosted clients.
//
//	GET /operator/v1/about                                     -> About
//	GET /operator/v1/catalog                                   -> proxyapi.Catalog
//	GET /operator/v1/inspection                                -> proxyapi.Inspection
//	GET /operator/v1/diagnosis?offline=                        -> proxyapi.Diagnosis
//	GET /operator/v1/tenants                                   -> Tenants
//	GET /operator/v1/packages                                  -> Packages
//	GET /operator/v1/database                                  -> Database
//	GET /operator/v1/runs?filter=&cursor=                      -> Page
//	GET /operator/v1/run?run=                                  -> Detail | 404
//	GET /operator/v1/file?run=&name=                           -> the file's bytes | 404
//	GET /operator/v1/exchanges?filter=&cursor=                 -> ExchangePage
//	GET /operator/v1/events?cursor=                            -> NDJSON of Event, with empty lines between
//	GET /operator/v1/history                                   -> Status
//	GET /operator/v1/server/review?server=                     -> Review | 404
//	GET /operator/v1/server/log?server=                        -> []Line | 404
//	POST /operator/v1/server/approve?server=&digest=           -> {} | 404 | 409
//	POST /operator/v1/server/restart?server=                   -> {} | 404
//	POST /operator/v1/runs/remove?filter=                      -> Removed
//	GET /operator/v1/alarms                                    -> []Alarm, latest first
//	POST /operator/v1/unfreeze?session=                        -> {} | 409
//	POST /operator/v1/input                                    <- sandboxapi.Input -> InputID | 400 | 409
//	POST /operator/v1/console                                  -> ConsoleLogin
//	GET /operator/v1/clients                                   -> []HostedClient, latest first | 409
//	POST /operator/v1/clients/revoke?id=                       -> {} | 409
//	POST /operator/v1/clients/code?tenant=&host=&host=         -> OneTimeCode | 409
//
// A filter is one of operatorapi as JSON. Other answers have the body {"error": "..."}.
//
// Only the socket's owner can reach it. In embedded mode it is in the state directory. In Docker it is in a tmpfs of
// mcp-server's container, which only docker exec can reach.
package operatorapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// ContainerSocket is the path of the socket in mcp-server's container.
const ContainerSocket = "/run/codeforge/operator/operator.sock"

// Prefix is the start of every path.
const Prefix = "/operator/v1/"

// PeerName is mcp-server's name as an rpc.Peer.
const PeerName = "mcp-server"

// ErrNotFound is the error for a run that is not in the history.
var ErrNotFound error = &rpc.Error{
	API: PeerName, Status: http.StatusNotFound, Code: "not_recorded", Text: "this run is not recorded",
}

// About describes the running CodeForge.
type About struct {
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Slots   int       `json:"slots"`
	// Port is the port of the MCP endpoint. Token reports whether it requires a bearer token.
	Port  int  `json:"port"`
	Token bool `json:"token"`
	// PublicURL is the origin for hosted clients, and Issuer the identity provider at which they log in. Both may be
	// empty. Without Issuer, clients log in at PublicURL, if there are tenants.
	PublicURL string `json:"public_url,omitempty"`
	Issuer    string `json:"issuer,omitempty"`
}

// Packages is the state of the packages that the operator pins for code.
type Packages struct {
	// Installed are the packages that code can import, each KIND:NAME@VERSION.
	Installed []string `json:"installed"`
	// Wanted are the packages of the file if they are not installed. Problem is the reason of the last failure, or "".
	Wanted  []string `json:"wanted,omitempty"`
	Problem string   `json:"problem,omitempty"`
}

// Packages fetches the state of the packages for code.
func (c Client) Packages(ctx context.Context) (Packages, error) {
	return fetchAnswer[Packages](ctx, c, http.MethodGet, "packages", nil)
}

// Tenants are the clients of MCP_TOKENS_FILE.
type Tenants struct {
	// Problem is a mistake in the present file. While it is set, the earlier content stays in force.
	Problem string       `json:"problem,omitempty"`
	Tenants []TenantInfo `json:"tenants"`
}

// TenantInfo is one of several clients.
type TenantInfo struct {
	Name string `json:"name"`
	// APIs are the APIs that the tenant may use. Nil means all.
	APIs []string `json:"apis"`
	// Tokens, Sessions, Runs and Waiting count the tenant's tokens, sessions, runs and waiting runs.
	Tokens   int `json:"tokens"`
	Sessions int `json:"sessions"`
	Runs     int `json:"runs"`
	Waiting  int `json:"waiting"`
}

// Tenants fetches the tenants.
func (c Client) Tenants(ctx context.Context) (Tenants, error) {
	return fetchAnswer[Tenants](ctx, c, http.MethodGet, "tenants", nil)
}

// Database is the state of the Postgres that replicas share.
type Database struct {
	// Used is false if mcp-server uses files.
	Used bool `json:"used"`
	// Problem is the reason why Postgres cannot be used now.
	Problem string `json:"problem,omitempty"`
	// Waiting counts the changes that wait for Postgres.
	Waiting int64 `json:"waiting,omitempty"`
}

// Database fetches the state of Postgres.
func (c Client) Database(ctx context.Context) (Database, error) {
	return fetchAnswer[Database](ctx, c, http.MethodGet, "database", nil)
}

// ConsoleLogin is a sign-in for the web console: a code that opens one session within a minute.
type ConsoleLogin struct {
	Code string `json:"code"`
	// Port is the console's port on this machine.
	Port int `json:"port"`
}

// Address returns the address for a browser. The code is in the fragment, which a browser never sends to a server.
func (l ConsoleLogin) Address() string {
	return fmt.Sprintf("http://localhost:%d/console#code=%s", l.Port, l.Code)
}

// Client sends requests over an HTTP client that connects to the socket.
type Client struct{ HTTP *http.Client }

// About fetches the description.
func (c Client) About(ctx context.Context) (About, error) {
	return fetchAnswer[About](ctx, c, http.MethodGet, "about", nil)
}

// Console fetches a sign-in for the web console.
func (c Client) Console(ctx context.Context) (ConsoleLogin, error) {
	return fetchAnswer[ConsoleLogin](ctx, c, http.MethodPost, "console", nil)
}

// Catalog fetches the public catalog.
func (c Client) Catalog(ctx context.Context) (proxyapi.Catalog, error) {
	return fetchAnswer[proxyapi.Catalog](ctx, c, http.MethodGet, "catalog", nil)
}

// Inspection fetches the content of apis/ and its mistakes.
func (c Client) Inspection(ctx context.Context) (proxyapi.Inspection, error) {
	return fetchAnswer[proxyapi.Inspection](ctx, c, http.MethodGet, "inspection", nil)
}

// Diagnose fetches the checks that only the proxy can make: see proxyapi.Client.Diagnose.
func (c Client) Diagnose(ctx context.Context, offline bool) (proxyapi.Diagnosis, error) {
	v := url.Values{"offline": {strconv.FormatBool(offline)}}
	return fetchAnswer[proxyapi.Diagnosis](ctx, c, http.MethodGet, "diagnosis", v)
}

// InputID is the ID of the input of a future run. The call of execute_code has it in its _meta.
type InputID struct {
	ID string `json:"id"`
}

// AddInput stores the input of a run for a minute, and returns its ID.
func (c Client) AddInput(ctx context.Context, in *sandboxapi.Input) (InputID, error) {
	out, err := rpc.Call[InputID](ctx, c, http.MethodPost, pathAddress("input", nil), in)
	return out, explainMissing(err)
}

// Removed is the number of removed runs.
type Removed struct {
	Removed int `json:"removed"`
}

// Runs lists runs, latest first. An empty cursor starts with the latest.
func (c Client) Runs(ctx context.Context, f RunFilter, cursor string) (Page, error) {
	return fetchAnswer[Page](ctx, c, http.MethodGet, "runs", listParams(f, cursor))
}

// Run fetches all stored data of a run, by its ID or a prefix. "" means the latest run. The error is ErrNotFound if
// there is no such run.
func (c Client) Run(ctx context.Context, run string) (Detail, error) {
	return fetchAnswer[Detail](ctx, c, http.MethodGet, "run", url.Values{"run": {run}})
}

// FetchRunFile fetches a file of a run. The error is ErrNotFound if there is no such file.
func (c Client) FetchRunFile(ctx context.Context, run, name string) ([]byte, error) {
	at := pathAddress("file", url.Values{"run": {run}, "name": {name}})
	resp, err := rpc.Send(ctx, c, http.MethodGet, at, nil)
	if err != nil {
		return nil, explainMissing(err)
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// Exchanges lists exchanges.
func (c Client) Exchanges(ctx context.Context, f ExchangeFilter, cursor string) (ExchangePage, error) {
	return fetchAnswer[ExchangePage](ctx, c, http.MethodGet, "exchanges", listParams(f, cursor))
}

// History fetches the status of the history.
func (c Client) History(ctx context.Context) (Status, error) {
	return fetchAnswer[Status](ctx, c, http.MethodGet, "history", nil)
}

// RemoveRuns removes runs, and returns their number.
func (c Client) RemoveRuns(ctx context.Context, f RunFilter) (int, error) {
	out, err := fetchAnswer[Removed](ctx, c, http.MethodPost, "runs/remove", listParams(f, ""))
	return out.Removed, err
}

func listParams(f any, cursor string) url.Values {
	text, _ := json.Marshal(f) // plain data
	return url.Values{"filter": {string(text)}, "cursor": {cursor}}
}

// ReadFilter parses the filter of a request for a list.
func ReadFilter[F any](v url.Values) (f F, err error) {
	if text := v.Get("filter"); text != "" {
		if err := json.Unmarshal([]byte(text), &f); err != nil {
			return f, fmt.Errorf("filter: %w", err)
		}
	}
	return f, nil
}

// maxLine bounds one event, in bytes.
const maxLine = 4 << 20

// Events calls on for each event after the cursor, until ctx ends. "" means from now on.
func (c Client) Events(ctx context.Context, cursor string, on func(HistoryEvent)) error {
	resp, err := rpc.Send(ctx, c, http.MethodGet, pathAddress("events", url.Values{"cursor": {cursor}}), nil)
	if err != nil {
		return explainMissing(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var e HistoryEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("reading events: %w", err)
		}
		on(e)
	}
	if err := lines.Err(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("reading events: %w", err)
	}
	return nil
}

// SendEvents passes on the events after a cursor, until ctx ends or follow has no more events.
func SendEvents(
	ctx context.Context, follow func(context.Context, string) ([]HistoryEvent, error), after string,
	to chan<- []HistoryEvent,
) {
	for {
		list, err := follow(ctx, after)
		if err != nil || len(list) == 0 {
			return
		}
		after = list[len(list)-1].Cursor
		select {
		case to <- list:
		case <-ctx.Done():
			return
		}
	}
}

// fetchAnswer sends a request and reads its answer.
func fetchAnswer[T any](ctx context.Context, c Client, method, path string, v url.Values) (T, error) {
	out, err := rpc.Call[T](ctx, c, method, pathAddress(path, v), nil)
	return out, explainMissing(err)
}

func pathAddress(path string, v url.Values) string {
	return "http://localhost" + Prefix + path + "?" + v.Encode()
}

// explainMissing adds advice for a path that mcp-server does not have.
func explainMissing(err error) error {
	if e := (*rpc.Error)(nil); errors.As(err, &e) && e.Status == http.StatusNotFound && e.Code == "" {
		return errors.New("this CodeForge is older than this command: bring both to the same version")
	}
	return err
}

// errNobody is the error of the zero Client.
var errNobody = errors.New("no operator's socket answers there: run this where CodeForge runs, or name docker://NAME")

// Name implements rpc.Peer.
func (c Client) Name() string { return PeerName }

// Do implements rpc.Peer.
func (c Client) Do(r *http.Request) (*http.Response, error) {
	if c.HTTP == nil {
		return nil, errNobody
	}
	resp, err := c.HTTP.Do(r) //nolint:gosec // a Unix socket of CodeForge
	if err != nil {
		return nil, fmt.Errorf("asking mcp-server: %w", err)
	}
	return resp, nil
}

// Package operatorapi is what whoever runs CodeForge may ask it, over HTTP on mcp-server's unix socket. The same socket
// serves the MCP endpoint without a token; no TCP port serves the paths below. No answer contains
// a credential. Two requests change something: what mcp-server does with an MCP server. One lets a browser in.
//
//	GET /operator/v1/about                                     -> About
//	GET /operator/v1/catalog                                   -> controlapi.Catalog
//	GET /operator/v1/inspection                                -> controlapi.Inspection
//	GET /operator/v1/exchanges?run=&since=&last=&follow=       -> NDJSON of controlapi.Event, with empty lines between
//	GET /operator/v1/receipt?run=                              -> controlapi.Receipt | 404
//	GET /operator/v1/server/review?server=                     -> Review | 404
//	GET /operator/v1/server/log?server=                        -> []Line | 404
//	POST /operator/v1/server/approve?server=&digest=           -> {} | 404 | 409
//	POST /operator/v1/server/restart?server=                   -> {} | 404
//	POST /operator/v1/console                                  -> ConsoleLogin
//
// Other answers have the body {"error": "..."}.
//
// The socket is reachable by its owner alone: in embedded mode it is in the state directory, in Docker in a tmpfs of
// mcp-server's container, where only docker exec leads.
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

	"github.com/codeforge-mcp/codeforge/internal/journal"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// ContainerSocket is where the socket is in mcp-server's container.
const ContainerSocket = "/run/codeforge/operator/operator.sock"

// Prefix begins every path.
const Prefix = "/operator/v1/"

// ErrNotFound is the answer for a run of which nothing is recorded.
var ErrNotFound = errors.New("nothing is recorded of this run")

// About describes the running CodeForge.
type About struct {
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Slots   int       `json:"slots"`
	// Port is that of the MCP endpoint, Token whether it requires a bearer token.
	Port  int  `json:"port"`
	Token bool `json:"token"`
}

// ConsoleLogin is a way in to the web console: a code that opens one session, within a minute.
type ConsoleLogin struct {
	Code string `json:"code"`
	// Port is where the console is on this machine.
	Port int `json:"port"`
}

// Address is what a browser opens. The code is in the part that a browser sends to no server.
func (l ConsoleLogin) Address() string {
	return fmt.Sprintf("http://localhost:%d/console#code=%s", l.Port, l.Code)
}

// Client asks over an HTTP client that connects to the socket.
type Client struct{ HTTP *http.Client }

// About fetches the description.
func (c Client) About(ctx context.Context) (About, error) {
	var out About
	return out, c.call(ctx, "about", nil, &out)
}

// Console lets a browser in to the web console.
func (c Client) Console(ctx context.Context) (ConsoleLogin, error) {
	var out ConsoleLogin
	return out, c.fetch(ctx, http.MethodPost, "console", nil, &out)
}

// Catalog fetches the public catalog.
func (c Client) Catalog(ctx context.Context) (controlapi.Catalog, error) {
	var out controlapi.Catalog
	return out, c.call(ctx, "catalog", nil, &out)
}

// Inspection fetches what is in apis/, and what is wrong with it.
func (c Client) Inspection(ctx context.Context) (controlapi.Inspection, error) {
	var out controlapi.Inspection
	return out, c.call(ctx, "inspection", nil, &out)
}

// Receipt fetches the receipt of a run, by its id or a prefix of it; empty means the last run. ErrNotFound if there is
// none.
func (c Client) Receipt(ctx context.Context, run string) (controlapi.Receipt, error) {
	var out controlapi.Receipt
	return out, c.call(ctx, "receipt", url.Values{"run": {run}}, &out)
}

// maxLine bounds one event.
const maxLine = 4 << 20

// Exchanges calls on for the exchanges that the query asks for, oldest first, and returns how many there were.
func (c Client) Exchanges(ctx context.Context, q journal.Query, on func(controlapi.Event)) (int, error) {
	resp, err := c.do(ctx, http.MethodGet, "exchanges", encode(q))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLine)
	n := 0
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var e controlapi.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return n, fmt.Errorf("reading exchanges: %w", err)
		}
		on(e)
		n++
	}
	if err := lines.Err(); err != nil && ctx.Err() == nil {
		return n, fmt.Errorf("reading exchanges: %w", err)
	}
	return n, nil
}

// encode is a query as parameters; Parse reads them.
func encode(q journal.Query) url.Values {
	v := url.Values{"run": {q.Run}, "last": {strconv.Itoa(q.Last)}, "follow": {strconv.FormatBool(q.Follow)}}
	if !q.Since.IsZero() {
		v.Set("since", q.Since.Format(time.RFC3339Nano))
	}
	return v
}

// Parse reads the parameters of a request for exchanges.
func Parse(v url.Values) (q journal.Query, err error) {
	q.Run = v.Get("run")
	if text := v.Get("since"); text != "" {
		if q.Since, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return q, fmt.Errorf("since: %q; want a time as in RFC 3339", text)
		}
	}
	if text := v.Get("last"); text != "" {
		if q.Last, err = strconv.Atoi(text); err != nil || q.Last < 0 {
			return q, fmt.Errorf("last: %q; want a number", text)
		}
	}
	if text := v.Get("follow"); text != "" {
		if q.Follow, err = strconv.ParseBool(text); err != nil {
			return q, fmt.Errorf("follow: %q; want true or false", text)
		}
	}
	return q, nil
}

// call fetches one JSON value.
func (c Client) call(ctx context.Context, path string, v url.Values, out any) error {
	return c.fetch(ctx, http.MethodGet, path, v, out)
}

// fetch is call with another method.
func (c Client) fetch(ctx context.Context, method, path string, v url.Values, out any) error {
	resp, err := c.do(ctx, method, path, v)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("reading the answer of mcp-server: %w", err)
	}
	return nil
}

func (c Client) do(ctx context.Context, method, path string, v url.Values) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://localhost"+Prefix+path+"?"+v.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking mcp-server: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	var e struct {
		Error string `json:"error"`
	}
	_ = json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&e)
	if resp.StatusCode == http.StatusNotFound && path == "receipt" && e.Error != "" {
		return nil, ErrNotFound
	}
	if resp.StatusCode == http.StatusNotFound && e.Error == ErrNoServer.Error() {
		return nil, ErrNoServer
	}
	if resp.StatusCode == http.StatusNotFound {
		return nil, errors.New("this CodeForge is older than this command: bring both to the same version")
	}
	if resp.StatusCode == http.StatusConflict {
		return nil, errors.New(e.Error)
	}
	return nil, fmt.Errorf("mcp-server answered %d: %s", resp.StatusCode, e.Error)
}

// Package endpoint opens mcp-server's addresses, decides who may connect, and serves the paths.
package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/internal/unixsocket"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/authserver"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/console"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/guard"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// Config configures an Endpoint.
type Config struct {
	// Listen are addresses, host:port. 127.0.0.1 also means [::1] with the same port, if that can be opened.
	Listen []string
	// Socket is the path of a unix socket that serves the same, or "". Only its owner may open it (0600), so its clients
	// need no token.
	Socket string
	Guard  *guard.Guard
	// HasToken means that a bearer token is required.
	HasToken bool
	// Container means that the process runs in a container whose port is published only on loopback. Then it may listen on
	// all addresses without a token, and cannot see whose connections it accepts.
	Container bool
	// UIDs are the users whose connections are accepted without a token, outside a container.
	UIDs []int
	// MCP serves /mcp.
	MCP http.Handler
	// Ready returns why the system cannot serve runs, or nil.
	Ready func(context.Context) error
	// Metadata serves MetadataPath and the path below it that RFC 9728 derives from /mcp. Nil means no such paths.
	Metadata http.Handler
	// Logins serves authserver.Path and authserver.MetadataPath on the public host only. Nil means no such paths.
	Logins http.Handler
	// Servers returns the MCP servers for GET /servers. If nil, there is no such path.
	Servers func() []mcpserver.Status
	// Console serves console.Path and the paths below it, and checks its sessions itself. Nil means no console.
	Console http.Handler
	// Operator serves operatorapi.Prefix on the socket only. Nil means no operator's API.
	Operator http.Handler
	// Metrics has the metrics that GET /metrics returns.
	Metrics prometheus.Gatherer
	Log     *slog.Logger
}

// MetadataPath is the path of the metadata that clients need for a login (RFC 9728).
const MetadataPath = "/.well-known/oauth-protected-resource"

// maxConnections bounds the connections of each listener.
const maxConnections = 8192

// Endpoint listens and serves. Create it with OpenEndpoint.
type Endpoint struct {
	cfg       Config
	listeners []net.Listener
	server    *http.Server
	socket    net.Listener // nil without Config.Socket
	local     *http.Server // serves the socket
	retiring  atomic.Bool  // set by RetireConnections
}

// OpenEndpoint listens. Without a token, it refuses addresses other than loopback, unless in a container.
func OpenEndpoint(ctx context.Context, cfg Config) (*Endpoint, error) {
	e := &Endpoint{cfg: cfg}
	for _, addr := range cfg.Listen {
		if err := e.listenOn(ctx, addr); err != nil {
			_ = e.closeListeners()
			return nil, err
		}
	}
	if cfg.Socket != "" {
		l, err := unixsocket.Listen(ctx, cfg.Socket, 0o600)
		if err != nil {
			_ = e.closeListeners()
			return nil, err
		}
		e.socket = netutil.LimitListener(l, maxConnections)
	}
	routes := e.newRoutes(cfg.Guard.RequireClient, cfg.Guard.RequireBearer, cfg.Guard.IsAuthorized)
	e.server = serverOf(cfg, routes, e.publicRoutes())
	e.server.Handler = e.closeIfRetiring(e.server.Handler)
	e.local = serverOf(cfg, e.localRoutes(), nil)
	return e, nil
}

// serverOf returns an HTTP server. Guard.SplitRequests chooses the handler of a request.
func serverOf(cfg Config, local, public http.Handler) *http.Server {
	return &http.Server{
		Handler:           cfg.Guard.SplitRequests(local, public),
		ConnContext:       guard.ConnContext,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(cfg.Log.With(logline.Tag("mcp")).Handler(), slog.LevelWarn),
	}
}

// listenOn opens one address, and [::1] in addition to 127.0.0.1.
func (e *Endpoint) listenOn(ctx context.Context, addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("--listen %q: want host:port, e.g. 127.0.0.1:8080", addr)
	}
	// The token protects against other machines; without it, /proc shows only local users.
	if !isLoopback(host) && !e.cfg.HasToken && !e.cfg.Container {
		return fmt.Errorf("listening on %s would let other machines in: set MCP_AUTH_TOKEN, or listen on 127.0.0.1", addr)
	}
	for _, l := range e.listeners {
		if l.Addr().String() == addr {
			return nil // opened together with 127.0.0.1
		}
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", addr, err)
	}
	e.addListener(l)
	if host != "127.0.0.1" && host != "localhost" {
		return nil
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return err
	}
	// Without [::1], clients that resolve localhost to it would not connect.
	six, err := new(net.ListenConfig).Listen(ctx, "tcp6", net.JoinHostPort("::1", port))
	if err != nil {
		e.cfg.Log.Info("not listening on [::1] as well", logline.Tag("mcp"), slog.String("reason", err.Error()))
		return nil
	}
	e.addListener(six)
	return nil
}

func (e *Endpoint) addListener(l net.Listener) {
	l = guard.LimitConns(l, maxConnections)
	// In a container, all connections come from the engine, so their users are unknown.
	if !e.cfg.HasToken && !e.cfg.Container {
		l = &guard.Listener{Listener: l, UIDs: e.cfg.UIDs, Log: e.cfg.Log}
	}
	e.listeners = append(e.listeners, l)
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

// ListAddrs returns the addresses that the endpoint listens on.
func (e *Endpoint) ListAddrs() []net.Addr {
	return convert.Each(e.listeners, net.Listener.Addr)
}

// newRoutes maps paths to handlers. Paths that reveal data require the token; passes reports whether a request has it.
// clients decides who may use MCP.
func (e *Endpoint) newRoutes(
	clients, token func(http.Handler) http.Handler, passes func(*http.Request) bool,
) *http.ServeMux {
	mux := e.clientRoutes(clients)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		rpc.WriteAnswer(w, http.StatusOK, map[string]any{"ok": true})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { e.handleReady(w, r, passes(r)) })
	mux.Handle("GET /metrics", token(promhttp.HandlerFor(e.cfg.Metrics, promhttp.HandlerOpts{
		DisableCompression: true, ErrorHandling: promhttp.ContinueOnError,
	})))
	if e.cfg.Servers != nil {
		mux.Handle("GET "+mcpserver.StatusPath, token(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			rpc.WriteAnswer(w, http.StatusOK, map[string]any{"servers": e.cfg.Servers()})
		})))
	}
	if e.cfg.Console != nil {
		mux.Handle(console.Path, e.cfg.Console)
		mux.Handle(console.Path+"/", e.cfg.Console)
	}
	return mux
}

// publicRoutes are the routes for clients on other machines. The console and the operator's paths are not among them.
func (e *Endpoint) publicRoutes() *http.ServeMux {
	mux := e.clientRoutes(e.cfg.Guard.RequireClient)
	if e.cfg.Logins != nil {
		mux.Handle(authserver.Path, e.cfg.Logins)
		mux.Handle(authserver.MetadataPath, e.cfg.Logins)
	}
	return mux
}

func (e *Endpoint) clientRoutes(clients func(http.Handler) http.Handler) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("/mcp", clients(e.cfg.MCP))
	if e.cfg.Metadata != nil {
		mux.Handle(MetadataPath, e.cfg.Metadata)
		mux.Handle(MetadataPath+"/mcp", e.cfg.Metadata)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "CodeForge: the MCP endpoint is at /mcp", http.StatusNotFound)
	})
	return mux
}

// localRoutes are the routes of the socket: without a token, and with the operator's API.
func (e *Endpoint) localRoutes() *http.ServeMux {
	open := func(next http.Handler) http.Handler { return next }
	mux := e.newRoutes(open, open, func(*http.Request) bool { return true })
	if e.cfg.Operator != nil {
		mux.Handle(operatorapi.Prefix, e.cfg.Operator)
	}
	return mux
}

// handleReady answers 200 if runs can be served. Only a request that passes the token check learns the reason why not.
func (e *Endpoint) handleReady(w http.ResponseWriter, r *http.Request, tell bool) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	if err := e.cfg.Ready(ctx); err != nil {
		answer := map[string]any{"ready": false}
		if tell {
			answer["problem"] = err.Error()
		}
		rpc.WriteAnswer(w, http.StatusServiceUnavailable, answer)
		return
	}
	rpc.WriteAnswer(w, http.StatusOK, map[string]any{"ready": true})
}

// RetireConnections gives clients this time to reconnect to another server that takes over. Until then, it closes every
// connection after its next answer, and still serves requests that arrive. It then closes the idle connections. Closed
// at once, each of them could lose a request that its client is sending.
func (e *Endpoint) RetireConnections(d time.Duration) {
	e.retiring.Store(true)
	time.Sleep(d)
	e.server.SetKeepAlivesEnabled(false)
}

func (e *Endpoint) closeIfRetiring(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e.retiring.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// Serve serves until Close. It returns the first error of a listener.
func (e *Endpoint) Serve() error {
	errs := make(chan error, len(e.listeners)+1)
	serving := len(e.listeners)
	for _, l := range e.listeners {
		go func() { errs <- e.server.Serve(l) }()
	}
	if e.socket != nil {
		serving++
		go func() { errs <- e.local.Serve(e.socket) }()
	}
	var first error
	for range serving {
		if err := <-errs; first == nil && !errors.Is(err, http.ErrServerClosed) {
			first = err
			// The other listeners must end too, or Serve would wait for them forever.
			_ = e.closeListeners()
		}
	}
	return first
}

// Close stops listening, waits for open requests until ctx ends, and closes the rest.
func (e *Endpoint) Close(ctx context.Context) {
	var servers sync.WaitGroup
	for _, s := range []*http.Server{e.server, e.local} {
		servers.Go(func() {
			// Shutdown waits for event streams, which may last, so Close ends them after ctx.
			if s.Shutdown(ctx) != nil {
				_ = s.Close()
			}
		})
	}
	servers.Wait()
}

func (e *Endpoint) closeListeners() error {
	errs := convert.Each(e.listeners, net.Listener.Close)
	if e.socket != nil {
		errs = append(errs, e.socket.Close())
	}
	return errors.Join(errs...)
}

// CheckHealth checks whether the endpoint at addr is ready.
func CheckHealth(ctx context.Context, addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("--listen %q: want host:port", addr)
	}
	// An address for listening, such as 0.0.0.0, is no address to connect to.
	if a, err := netip.ParseAddr(host); host == "" || err == nil && a.IsUnspecified() {
		host = "127.0.0.1"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var b struct {
			Problem string `json:"problem"`
		}
		_ = json.NewDecoder(resp.Body).Decode(&b)
		return fmt.Errorf("not ready: %s", b.Problem)
	}
	return nil
}

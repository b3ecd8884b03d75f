// Package shim stands between mcp-server and the Docker engine. Only the shim has the engine's socket, which is
// equivalent to root on the host. It allows one use: to create and start the exec that Spec describes.
//
// Threat: a caller that wants more, such as another container, another command, Privileged, or a second request hidden
// behind the first.
//
// Contract: requests are never forwarded. Their path must be one of three, byte for byte. The body is parsed strictly
// and compared with the spec. Then the shim sends the engine a new request. The engine gets no byte from the caller
// before the exec has started, and then only as the exec's stdin. Every connection carries one request. The shim also
// starts the spec's container if the engine failed to.
package shim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"sync"
	"time"

	"github.com/moby/moby/client"
	"golang.org/x/net/netutil"
)

// Config configures a Server.
type Config struct {
	// Engine is the engine's address, e.g. "unix:///var/run/docker.sock".
	Engine string
	// Spec is the exec that is allowed.
	Spec Spec
	// Log receives one line per request. Nil means slog.Default().
	Log *slog.Logger
}

// Bounds of a caller's resources.
const (
	maxBody     = 16 << 10
	maxHeader   = 8 << 10
	maxConns    = 64
	maxStreams  = 8
	readTimeout = 5 * time.Second
	askTimeout  = 10 * time.Second
)

// Server is the shim. It is safe for concurrent use.
type Server struct {
	cfg     Config
	engine  *client.Client
	ids     idSet
	streams chan struct{}
	relays  sync.WaitGroup
}

// New returns a Server. It does not connect to the engine yet.
func New(cfg Config) (*Server, error) {
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	engine, err := client.New(client.WithHost(cfg.Engine))
	if err != nil {
		return nil, fmt.Errorf("reading the engine's address: %w", err)
	}
	return &Server{cfg: cfg, engine: engine, streams: make(chan struct{}, maxStreams)}, nil
}

// Serve answers on l until ctx ends, then closes all connections and l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	srv := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      2 * askTimeout,
		MaxHeaderBytes:    maxHeader,
		// The handler refuses OPTIONS * too.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
		BaseContext:                  func(net.Listener) context.Context { return ctx },
	}
	// One request per connection: a second request cannot hide behind the first.
	srv.SetKeepAlivesEnabled(false)
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	err := srv.Serve(netutil.LimitListener(l, maxConns))
	cancel()
	s.relays.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// The paths, exactly as in the request line: no escapes, no query, no dots, no double slashes.
var (
	createPath = regexp.MustCompile(`\A/v1\.[0-9]{1,3}/containers/([a-zA-Z0-9][a-zA-Z0-9_.-]{0,127})/exec\z`)
	startPath  = regexp.MustCompile(`\A/v1\.[0-9]{1,3}/exec/([0-9a-f]{64})/start\z`)
)

// ServeHTTP decides on one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := s.serveRequest(w, r)
	level, reason := slog.LevelInfo, "done"
	if err != nil {
		level, reason = slog.LevelWarn, err.Error()
	}
	// Health checks would fill the log.
	if err != nil || r.RequestURI != "/_ping" {
		s.cfg.Log.Log(r.Context(), level, "request", "method", r.Method, "path", r.RequestURI, "result", reason)
	}
}

// serveRequest answers one request. It returns the error, after the caller has got the answer.
func (s *Server) serveRequest(w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(w, r)
	if err != nil {
		return answerError(w, err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	path := r.RequestURI
	if path == "/_ping" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		return s.handlePing(ctx, w)
	}
	if m := createPath.FindStringSubmatch(path); m != nil && r.Method == http.MethodPost {
		return s.createExec(ctx, w, m[1], body)
	}
	if m := startPath.FindStringSubmatch(path); m != nil && r.Method == http.MethodPost {
		return s.startExec(ctx, w, r, m[1], body)
	}
	return answerError(w, newRefusal("only exec create and start are allowed"))
}

// handlePing answers with the version of the engine's API. It uses no part of the request.
func (s *Server) handlePing(ctx context.Context, w http.ResponseWriter) error {
	p, err := s.engine.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true})
	if err != nil {
		return answerError(w, err)
	}
	w.Header().Set("Api-Version", p.APIVersion)
	w.Header().Set("Ostype", p.OSType)
	_, err = io.WriteString(w, "OK")
	return err
}

// createExec creates the exec of the spec, if the request asks for exactly this exec.
func (s *Server) createExec(ctx context.Context, w http.ResponseWriter, container string, body []byte) error {
	spec := s.cfg.Spec
	//defence:shim-container
	if container != spec.Container {
		return answerError(w, newRefusal("only the container %q may be used", spec.Container))
	}
	//defence:shim-body
	if err := spec.checkCreate(body); err != nil {
		return answerError(w, newRefusal("%v", err))
	}
	if _, err := s.engine.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		return answerError(w, err)
	}
	made, err := s.engine.ExecCreate(ctx, spec.Container, client.ExecCreateOptions{
		User: spec.User, Cmd: spec.Cmd, AttachStdin: true, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		// The exec fails if the container does not run.
		s.reviveContainer(ctx)
		return answerError(w, err)
	}
	s.ids.addID(made.ID)
	return answerJSON(w, http.StatusCreated, struct{ Id string }{made.ID}) //nolint:revive // the engine's spelling
}

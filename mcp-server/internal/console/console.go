// Package console serves the web console at /console: a shell of static files without private data, and an API below
// /console/api/ for signed-in browsers.
//
// Threat: other web pages in the user's browser, other ports of this machine, other users of this machine, and hostile
// text from code, APIs and models that the console shows.
//
// Contract: there is no cookie, because a browser would send it to every port of this machine. A session is a bearer in
// the tab's storage, so that another page cannot make the browser send it. Every request to the API needs the bearer,
// even if /mcp needs no token. A session starts with MCP_AUTH_TOKEN, or with a code from the operator's socket that
// works once and within a minute. The shell runs only scripts from its files, and creates no markup from text.
//
// The console shows no credential and writes no configuration.
package console

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/authserver"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/guard"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/history"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

const (
	// Path is the path of the shell. API is the prefix of the paths that need a session.
	Path = "/console"
	API  = Path + "/api/"
	// maxBody bounds a request's body, in bytes.
	maxBody = 16 << 10
)

// Config holds the console's data sources and actions. Functions must not block for long.
type Config struct {
	About operatorapi.About
	// Mode is "embedded", "docker" or "kubernetes".
	Mode string
	// Token reports whether a text is MCP_AUTH_TOKEN, in constant time. If nil, no token is set.
	Token func(string) bool
	// Settings are shown unchanged, so they must contain no secret.
	Settings []Setting
	Proxy    Proxy
	Catalog  func() proxyapi.Catalog
	// Ready returns the reason why runs cannot be served, or nil.
	Ready   func(context.Context) error
	Load    func() Load
	Servers Servers
	Skills  *skill.Store
	History History
	// Execute runs code, like execute_code.
	Execute func(context.Context, execution.RunRequest) (execution.Outcome, error)
	// StopRun cancels a run of this process. It reports whether the run was in progress.
	StopRun   func(run string) bool
	Approvals Approvals
	// Logins has the logins of hosted clients. Nil means that no client logs in here.
	Logins *authserver.Server
	Log    *slog.Logger
	// Stop ends the streams when it is closed.
	Stop <-chan struct{}
}

// Setting is one line of the page of settings.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Default means that the value is the default.
	Default bool `json:"default"`
}

// Load is the load of CodeForge.
type Load struct {
	Slots   int `json:"slots"`
	Busy    int `json:"busy"`
	Waiting int `json:"waiting"`
	// Connected reports whether an MCP client has sent a request since the start. Clients of MCP 2026-07-28 have no
	// session that could be counted.
	Connected bool `json:"connected"`
}

// Proxy is the part of the proxy's API that the console uses.
type Proxy interface {
	FetchInspection(ctx context.Context) (proxyapi.Inspection, error)
	CheckLedger(ctx context.Context, known []proxyapi.KnownHead) (proxyapi.LedgerCheck, error)
}

// Servers gives access to the MCP servers.
type Servers interface {
	ListStates() []mcpserver.Status
	ServerLog(server string) ([]operatorapi.Line, error)
	ToolList(server string) ([]operatorapi.Tool, error)
	RestartServer(server string) error
}

// Console is the handler of Path and the paths below it. Create it with New.
type Console struct {
	cfg      Config
	sessions sessionStore
	shell    staticFiles
	api      *http.ServeMux
	decided  decisionLog
	skills   atomic.Int64 // counts the changes of skills
}

// New returns a console.
func New(cfg Config) *Console {
	c := &Console{cfg: cfg, shell: newShell()}
	c.api = c.sessionRoutes()
	return c
}

// NewSignInCode returns a new code that opens one session within a minute.
func (c *Console) NewSignInCode() string { return c.sessions.NewSignInCode() }

// SkillsChanged makes open pages load the skills again.
func (c *Console) SkillsChanged() { c.skills.Add(1) }

// sessionRoutes returns the paths that need a session.
func (c *Console) sessionRoutes() *http.ServeMux {
	mux := http.NewServeMux()
	handle := func(pattern string, h func(*http.Request) (any, error)) {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" "+API+path, func(w http.ResponseWriter, r *http.Request) {
			v, err := h(r)
			if err != nil {
				c.writeError(w, err)
				return
			}
			rpc.WriteAnswer(w, http.StatusOK, v)
		})
	}
	handle("GET status", c.reportStatus)
	handle("GET sessions", func(r *http.Request) (any, error) { return c.sessions.listSessions(sessionOf(r).ID), nil })
	handle("DELETE sessions/{id}", func(r *http.Request) (any, error) {
		id := r.PathValue("id")
		if id == "this" {
			id = sessionOf(r).ID
		}
		if !c.sessions.closeSession(id) {
			return nil, errNotFound
		}
		return struct{}{}, nil
	})
	handle("GET clients", c.listClients)
	handle("DELETE clients/{id}", c.revokeClient)
	handle("GET apis", c.listAPIs)
	handle("POST apis/{name}/test", c.testAPI)
	handle("GET servers", c.listServers)
	handle("GET servers/{name}/log", func(r *http.Request) (any, error) {
		return c.cfg.Servers.ServerLog(r.PathValue("name"))
	})
	handle("GET servers/{name}/tools", func(r *http.Request) (any, error) {
		return c.cfg.Servers.ToolList(r.PathValue("name"))
	})
	handle("POST servers/{name}/restart", func(r *http.Request) (any, error) {
		return struct{}{}, c.cfg.Servers.RestartServer(r.PathValue("name"))
	})
	handle("GET skills", c.listSkills)
	handle("GET skills/{name}", c.readSkill)
	handle("GET skills/{name}/versions/{version}", c.skillVersion)
	handle("POST skills/{name}/versions/{version}/restore", c.restoreSkill)
	handle("POST skills/{name}/pin", c.pinSkill(true))
	handle("DELETE skills/{name}/pin", c.pinSkill(false))
	handle("DELETE skills/{name}", c.deleteSkill)
	c.historyRoutes(handle)
	mux.HandleFunc("GET "+API+"runs/{id}/files/{name}", func(w http.ResponseWriter, r *http.Request) {
		f, err := c.cfg.History.ReadRunFile(r.Context(), r.PathValue("id"), r.PathValue("name"), nil)
		if err != nil {
			c.writeError(w, err)
			return
		}
		f.ServeHTTP(w, r)
	})
	c.heldRoutes(handle)
	handle("GET settings", func(*http.Request) (any, error) { return c.cfg.Settings, nil })
	mux.HandleFunc("GET "+API+"live", c.streamChanges)
	mux.HandleFunc(API, func(w http.ResponseWriter, _ *http.Request) { c.writeError(w, errNotFound) })
	return mux
}

// policy is the shell's Content-Security-Policy: only its files, images that its scripts fetched, no inline script or
// style, no markup from text, no frame.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' blob:; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// ServeHTTP serves the shell and the API.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	//defence:console-policy
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	switch {
	case !strings.HasPrefix(r.URL.Path, API):
		c.shell.ServeHTTP(w, r)
	case r.URL.Path == API+"session" && r.Method == http.MethodPost:
		h.Set("Cache-Control", "no-store")
		c.signIn(w, r)
	default:
		h.Set("Cache-Control", "no-store")
		// The bearer is checked here and not per route, so that a new route cannot forget it.
		s, ok := c.sessions.findSession(bearerOf(r))
		//defence:console-bearer
		if !ok {
			rpc.WriteAnswer(w, http.StatusUnauthorized, errorBody{"Sign in first: codeforge console."})
			return
		}
		// A signed-in browser must keep its connection even if others flood the listener.
		if !guard.AdmitConn(r.Context(), "") {
			rpc.WriteAnswer(w, http.StatusServiceUnavailable, errorBody{guard.TooMany})
			return
		}
		c.api.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), sessionKey{}, s)))
	}
}

// sessionKey is the key of a request's session in its context.
type sessionKey struct{}

func sessionOf(r *http.Request) browserSession {
	s, _ := r.Context().Value(sessionKey{}).(browserSession)
	return s
}

// bearerOf returns the bearer of a request, or "".
func bearerOf(r *http.Request) string {
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(text)
}

// signIn exchanges a code, or MCP_AUTH_TOKEN, for a bearer.
func (c *Console) signIn(w http.ResponseWriter, r *http.Request) {
	var in struct{ Secret string }
	if r.Header.Get("Content-Type") != "application/json" {
		rpc.WriteAnswer(w, http.StatusUnsupportedMediaType, errorBody{"want application/json"})
		return
	}
	if err := readBody(r, &in); err != nil {
		rpc.WriteAnswer(w, http.StatusBadRequest, errorBody{err.Error()})
		return
	}
	// The code is tried first, because it works only once and must be used up.
	if in.Secret == "" || !c.sessions.useSignInCode(in.Secret) && (c.cfg.Token == nil || !c.cfg.Token(in.Secret)) {
		rpc.WriteAnswer(w, http.StatusUnauthorized, errorBody{
			"This is neither the token nor a valid code. A code works once, for one minute: run codeforge console again.",
		})
		return
	}
	b, s := c.sessions.openSession(r.UserAgent())
	c.cfg.Log.Info("a browser signed in to the console", logline.Tag("console"), slog.String("session", s.ID))
	rpc.WriteAnswer(w, http.StatusOK, struct {
		Bearer string    `json:"bearer"`
		Until  time.Time `json:"until"`
	}{b, s.Until})
}

// readBody reads a JSON body of at most maxBody bytes.
func readBody(r *http.Request, to any) error {
	text, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		return &pageError{http.StatusBadRequest, "want JSON of at most 16 KiB"}
	}
	return nil
}

// errorBody is the body of an answer other than 200.
type errorBody struct {
	Error string `json:"error"`
}

// pageError is an error with a text for the page, and a status.
type pageError struct {
	status int
	text   string
}

func (e *pageError) Error() string { return e.text }

var errNotFound = &pageError{http.StatusNotFound, "There is no entry with this name."}

// pageErrors has the status and the text of the page for errors of other packages. {error} stands for the error's text.
var pageErrors = []struct {
	err    error
	status int
	text   string
}{
	{history.ErrUnknown, http.StatusNotFound, errNotFound.text},
	{operatorapi.ErrNoServer, http.StatusNotFound, errNotFound.text},
	{authserver.ErrNoClient, http.StatusNotFound, errNotFound.text},
	{skill.ErrNotFound, http.StatusNotFound, errNotFound.text},
	{skill.ErrName, http.StatusNotFound, errNotFound.text},
	{history.ErrOff, http.StatusNotImplemented, "Runs are not kept: HISTORY is off."},
	{skill.ErrReadOnly, http.StatusConflict, "Skills are read-only here: SKILLS_READONLY is set."},
	{skill.ErrPinned, http.StatusConflict, "This skill is pinned. Unpin it first."},
	{skill.ErrTaken, http.StatusConflict,
		"Another skill is imported by the same name, with _ for -. Delete one of them."},
	{skill.ErrChanged, http.StatusConflict, "The skill has changed in the meantime. Look at it again."},
	{skill.ErrManyPins, http.StatusConflict, "The skill was not pinned: {error}. Unpin some first."},
	{skill.ErrFull, http.StatusConflict, "The skill was not changed: {error}. Remove some first."},
	{skill.ErrUnavailable, http.StatusServiceUnavailable,
		"The skills' database did not confirm the change. The log has the cause."},
}

// writeError answers with the text of an error. It logs an error that is not meant for the page.
func (c *Console) writeError(w http.ResponseWriter, err error) {
	for _, known := range pageErrors {
		if errors.Is(err, known.err) {
			err = &pageError{known.status, strings.ReplaceAll(known.text, "{error}", err.Error())}
			break
		}
	}
	// Other errors may be faults, so the log gets them too.
	if t, ok := errors.AsType[*pageError](err); ok {
		rpc.WriteAnswer(w, t.status, errorBody{t.text})
		return
	}
	c.cfg.Log.Warn("the console could not answer", logline.Tag("console"), slog.String("error", err.Error()))
	rpc.WriteAnswer(w, http.StatusBadGateway, errorBody{err.Error()})
}

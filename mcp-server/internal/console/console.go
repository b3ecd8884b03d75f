// Package console serves the web console at /console: a shell of static files that reveals nothing, and an API below
// /console/api/ that answers whoever has signed in.
//
// Threat: other web pages in the user's browser, other ports of this machine, other users of it, and the text of code,
// APIs and models that the console shows. There is no cookie: a browser would send it to every port of this machine. A
// session is a bearer in the tab's own storage, so that no other page can make the browser send it, and every request
// to the API needs it, also where /mcp needs no token. It is opened with a code that the operator's socket gives, once
// and within a minute, or with MCP_AUTH_TOKEN. The shell runs no script but its own files and makes no markup of text.
//
// What the console shows holds no credential. It writes no configuration.
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

	"github.com/codeforge-mcp/codeforge/internal/httpjson"
	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/serverstate"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/guard"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

const (
	// Path is where the shell is, API what the paths begin with that need a session.
	Path = "/console"
	API  = Path + "/api/"
	// maxBody bounds what a request may carry.
	maxBody = 16 << 10
)

// Config holds what the console shows, and what it may do. Functions must not block for long.
type Config struct {
	About operatorapi.About
	// Mode is "embedded", "docker" or "kubernetes".
	Mode string
	// Token reports whether a text is MCP_AUTH_TOKEN, in a time that reveals nothing about it. Nil means that none is set.
	Token func(string) bool
	// Settings are shown as they are, so they have no secret.
	Settings []Setting
	Proxy    Proxy
	Catalog  func() controlapi.Catalog
	// Ready says why runs cannot be served, or nil.
	Ready   func(context.Context) error
	Load    func() Load
	Servers Servers
	Skills  *skill.Store
	History History
	// Execute runs code, as execute_code does.
	Execute func(context.Context, execution.Request) (execution.Outcome, error)
	// StopRun cancels a run. It reports whether it was under way.
	StopRun   func(run string) bool
	Approvals Approvals
	Log       *slog.Logger
	// Stop, when closed, ends the streams.
	Stop <-chan struct{}
}

// Setting is one line of the page of settings.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Default means that nobody has set it.
	Default bool `json:"default"`
}

// Load is how busy CodeForge is.
type Load struct {
	Slots   int `json:"slots"`
	Busy    int `json:"busy"`
	Waiting int `json:"waiting"`
}

// Proxy is what the console asks the proxy.
type Proxy interface {
	Inspection(ctx context.Context) (controlapi.Inspection, error)
	CheckLedger(ctx context.Context, known []controlapi.KnownHead) (controlapi.LedgerCheck, error)
}

// Servers are the MCP servers.
type Servers interface {
	States() []serverstate.Server
	Log(server string) ([]operatorapi.Line, error)
	ToolList(server string) ([]operatorapi.Tool, error)
	Restart(server string) error
}

// Console is the handler of Path and of what is below it. Make it with New.
type Console struct {
	cfg      Config
	sessions sessions
	shell    shell
	api      *http.ServeMux
	decided  decisions
	skills   atomic.Int64 // how often the skills have changed
}

// New makes a console.
func New(cfg Config) *Console {
	c := &Console{cfg: cfg, shell: newShell()}
	c.api = c.routes()
	return c
}

// Code makes a code that opens one session within a minute.
func (c *Console) Code() string { return c.sessions.Code() }

// SkillsChanged tells open pages that skills have changed.
func (c *Console) SkillsChanged() { c.skills.Add(1) }

// routes are the paths that need a session.
func (c *Console) routes() *http.ServeMux {
	mux := http.NewServeMux()
	handle := func(pattern string, h func(*http.Request) (any, error)) {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" "+API+path, func(w http.ResponseWriter, r *http.Request) {
			v, err := h(r)
			if err != nil {
				c.fail(w, err)
				return
			}
			httpjson.Answer(w, http.StatusOK, v)
		})
	}
	handle("GET status", c.status)
	handle("GET sessions", func(r *http.Request) (any, error) { return c.sessions.list(of(r).ID), nil })
	handle("DELETE sessions/{id}", func(r *http.Request) (any, error) {
		id := r.PathValue("id")
		if id == "this" {
			id = of(r).ID
		}
		if !c.sessions.end(id) {
			return nil, errNotFound
		}
		return struct{}{}, nil
	})
	handle("GET apis", c.apis)
	handle("POST apis/{name}/test", c.testAPI)
	handle("GET servers", c.servers)
	handle("GET servers/{name}/log", func(r *http.Request) (any, error) {
		lines, err := c.cfg.Servers.Log(r.PathValue("name"))
		if errors.Is(err, operatorapi.ErrNoServer) {
			return nil, errNotFound
		}
		return lines, err
	})
	handle("GET servers/{name}/tools", func(r *http.Request) (any, error) {
		tools, err := c.cfg.Servers.ToolList(r.PathValue("name"))
		if errors.Is(err, operatorapi.ErrNoServer) {
			return nil, errNotFound
		}
		return tools, err
	})
	handle("POST servers/{name}/restart", func(r *http.Request) (any, error) {
		err := c.cfg.Servers.Restart(r.PathValue("name"))
		if errors.Is(err, operatorapi.ErrNoServer) {
			return nil, errNotFound
		}
		return struct{}{}, err
	})
	handle("GET skills", c.listSkills)
	handle("GET skills/{name}", c.readSkill)
	handle("GET skills/{name}/versions/{version}", c.skillVersion)
	handle("POST skills/{name}/versions/{version}/restore", c.restoreSkill)
	handle("POST skills/{name}/pin", c.pinSkill(true))
	handle("DELETE skills/{name}/pin", c.pinSkill(false))
	handle("DELETE skills/{name}", c.deleteSkill)
	c.historyRoutes(handle)
	c.heldRoutes(handle)
	handle("GET settings", func(*http.Request) (any, error) { return c.cfg.Settings, nil })
	mux.HandleFunc("GET "+API+"live", c.live)
	mux.HandleFunc(API, func(w http.ResponseWriter, _ *http.Request) { c.fail(w, errNotFound) })
	return mux
}

// policy is the shell's: its own files, no inline script or style, no markup made of text, in no frame.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// ServeHTTP answers.
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
		s, ok := c.sessions.find(bearer(r))
		//defence:console-bearer
		if !ok {
			httpjson.Answer(w, http.StatusUnauthorized, refusal{"Sign in first: codeforge console."})
			return
		}
		if !guard.Admit(r.Context(), "") {
			httpjson.Answer(w, http.StatusServiceUnavailable, refusal{guard.TooMany})
			return
		}
		c.api.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), sessionKey{}, s)))
	}
}

// sessionKey is the key of a request's session in its context.
type sessionKey struct{}

// of is the session of a request that was let through.
func of(r *http.Request) session {
	s, _ := r.Context().Value(sessionKey{}).(session)
	return s
}

// bearer is the bearer that a request carries, or empty.
func bearer(r *http.Request) string {
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(text)
}

// signIn exchanges a code, or MCP_AUTH_TOKEN, for a bearer.
func (c *Console) signIn(w http.ResponseWriter, r *http.Request) {
	var in struct{ Secret string }
	if !readJSON(w, r, &in) {
		return
	}
	if in.Secret == "" || !c.sessions.use(in.Secret) && (c.cfg.Token == nil || !c.cfg.Token(in.Secret)) {
		httpjson.Answer(w, http.StatusUnauthorized, refusal{
			"This is neither the token nor a valid code. A code works once, for one minute: run codeforge console again.",
		})
		return
	}
	b, s := c.sessions.begin(r.UserAgent())
	c.cfg.Log.Info("a browser signed in to the console", logline.Tag("console"), slog.String("session", s.ID))
	httpjson.Answer(w, http.StatusOK, struct {
		Bearer string    `json:"bearer"`
		Until  time.Time `json:"until"`
	}{b, s.Until})
}

// readJSON reads a body that a form cannot send. It reports whether it could, and answers if not.
func readJSON(w http.ResponseWriter, r *http.Request, to any) bool {
	if r.Header.Get("Content-Type") != "application/json" {
		httpjson.Answer(w, http.StatusUnsupportedMediaType, refusal{"want application/json"})
		return false
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		httpjson.Answer(w, http.StatusBadRequest, refusal{"want JSON of at most 16 KiB"})
		return false
	}
	return true
}

// refusal is the body of an answer other than 200.
type refusal struct {
	Error string `json:"error"`
}

// told is an error whose text the page shows, with its status.
type told struct {
	status int
	text   string
}

func (e *told) Error() string { return e.text }

var errNotFound = &told{http.StatusNotFound, "There is nothing of this name."}

// fail answers with what an error says, where it is meant to be shown, and logs it otherwise.
func (c *Console) fail(w http.ResponseWriter, err error) {
	var t *told
	if errors.As(err, &t) {
		httpjson.Answer(w, t.status, refusal{t.text})
		return
	}
	c.cfg.Log.Warn("the console could not answer", logline.Tag("console"), slog.String("error", err.Error()))
	httpjson.Answer(w, http.StatusBadGateway, refusal{err.Error()})
}

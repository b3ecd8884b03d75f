// Package operator answers the operator on the unix socket: see mcp-server/operatorapi.
//
// Threat: the answers reveal the APIs and the actions of code. Contract: only the socket's owner may send requests.
// Handler has no further check, so it must not be served on an address.
package operator

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/alarm"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/authserver"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/broker"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/history"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// Config holds the sources of the answers.
type Config struct {
	About   operatorapi.About
	Control *proxyapi.Client
	// Catalog returns the proxy's catalog, which calls see too from then on.
	Catalog func(context.Context) (proxyapi.Catalog, error)
	// History is the store of runs.
	History *history.Store
	// Servers gives access to the MCP servers. If nil, the paths about servers do not exist.
	Servers *broker.Broker
	// Alarms are the proxy's alarms, or nil.
	Alarms *alarm.Set
	// Tenants are the clients of MCP_TOKENS_FILE.
	Tenants func() operatorapi.Tenants
	// Packages returns the state of the packages for code.
	Packages func() operatorapi.Packages
	// Database returns the state of Postgres. It is nil without the daemon.
	Database func(context.Context) operatorapi.Database
	// Console returns a sign-in for the console. If nil, there is no console.
	Console func() operatorapi.ConsoleLogin
	// AddInput stores the input of a run and returns its ID. If nil, runs have no input.
	AddInput func(*sandboxapi.Input) (id string, err error)
	// Logins is the authorization server, or nil.
	Logins *authserver.Server
	// Stop ends the streams when it is closed.
	Stop <-chan struct{}
}

// maxInputBody bounds an input as JSON, in bytes: base64 takes four bytes for three.
const maxInputBody = sandboxapi.MaxInput/3*4 + 1<<20

// NewHandler returns the handler of operatorapi.Prefix.
func NewHandler(c Config) http.Handler {
	mux := http.NewServeMux()
	rt := pathRouter{mux}
	rt.addPath("GET about", func(*http.Request) (any, error) { return c.About, nil })
	rt.addPath("GET tenants", func(*http.Request) (any, error) { return c.Tenants(), nil })
	rt.addPath("GET packages", func(*http.Request) (any, error) { return c.Packages(), nil })
	rt.addPath("GET database", func(r *http.Request) (any, error) { return c.Database(r.Context()), nil })
	rt.addPath("GET catalog", func(r *http.Request) (any, error) { return c.Catalog(r.Context()) })
	rt.addPath("GET inspection", func(r *http.Request) (any, error) { return c.Control.FetchInspection(r.Context()) })
	rt.addPath("GET diagnosis", func(r *http.Request) (any, error) {
		return c.Control.Diagnose(r.Context(), r.FormValue("offline") == "true")
	})
	rt.addHistory(c.History, c.Stop)
	if c.Console != nil {
		rt.addPath("POST console", func(*http.Request) (any, error) { return c.Console(), nil })
	}
	rt.addPath("GET alarms", func(*http.Request) (any, error) { return c.Alarms.List(), nil })
	rt.addPath("POST unfreeze", func(r *http.Request) (any, error) {
		return struct{}{}, c.Alarms.Unfreeze(r.FormValue("session"))
	})
	if c.AddInput != nil {
		rt.addPath("POST input", func(r *http.Request) (any, error) {
			var in sandboxapi.Input
			if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxInputBody)).Decode(&in); err != nil {
				return nil, newRefused(http.StatusBadRequest, "", err)
			}
			id, err := c.AddInput(&in)
			return operatorapi.InputID{ID: id}, err
		})
	}
	if c.Servers != nil {
		rt.addServers(c.Servers)
	}
	rt.addLogins(c.Logins)
	return mux
}

// addLogins adds the paths about the logins of hosted clients.
func (rt pathRouter) addLogins(logins *authserver.Server) {
	add := func(pattern string, answer func(*http.Request) (any, error)) {
		rt.addPath(pattern, func(r *http.Request) (any, error) {
			if logins == nil {
				return nil, errNoLogins
			}
			return answer(r)
		})
	}
	add("GET clients", func(r *http.Request) (any, error) {
		list, err := logins.ListLogins(r.Context())
		return convert.Each(list, authserver.Login.ToHostedClient), err
	})
	add("POST clients/revoke", func(r *http.Request) (any, error) {
		return struct{}{}, logins.RevokeLogin(r.Context(), r.FormValue("id"))
	})
	add("POST clients/code", func(r *http.Request) (any, error) {
		tenant := r.FormValue("tenant") // it also parses the form
		code, err := logins.NewOneTimeCode(r.Context(), tenant, r.Form["host"])
		return operatorapi.OneTimeCode{Code: code}, err
	})
}

// errNoLogins is the error if clients do not log in here.
var errNoLogins = errors.New("clients do not log in at this CodeForge: it needs PUBLIC_URL and MCP_TOKENS_FILE, " +
	"without OIDC_ISSUER. See docs/guides/hosted-clients.md")

// addServers adds the paths about MCP servers. Two of them change state: approving a server's tools, and restarting a
// server. Only the operator, who can stop all of CodeForge anyway, reaches this socket. Code and MCP clients cannot.
func (rt pathRouter) addServers(servers *broker.Broker) {
	rt.addPath("GET server/review", func(r *http.Request) (any, error) {
		return servers.ReviewTools(r.Context(), r.FormValue("server"))
	})
	rt.addPath("GET server/log", func(r *http.Request) (any, error) { return servers.ServerLog(r.FormValue("server")) })
	rt.addPath("POST server/approve", func(r *http.Request) (any, error) {
		return struct{}{}, servers.ApproveTools(r.Context(), r.FormValue("server"), r.FormValue("digest"))
	})
	rt.addPath("POST server/restart", func(r *http.Request) (any, error) {
		return struct{}{}, servers.RestartServer(r.FormValue("server"))
	})
}

// pathRouter adds paths below operatorapi.Prefix to mux.
type pathRouter struct{ mux *http.ServeMux }

// addPath adds "METHOD path". answer returns a value to send as JSON, an http.Handler that answers, or an error.
func (rt pathRouter) addPath(pattern string, answer func(*http.Request) (any, error)) {
	method, path, _ := strings.Cut(pattern, " ")
	rt.mux.HandleFunc(method+" "+operatorapi.Prefix+path, func(w http.ResponseWriter, r *http.Request) {
		v, err := answer(r)
		if h, ok := v.(http.Handler); ok && err == nil {
			h.ServeHTTP(w, r)
			return
		}
		writeAnswer(w, v, err)
	})
}

func writeAnswer(w http.ResponseWriter, v any, err error) {
	if err == nil {
		rpc.WriteAnswer(w, http.StatusOK, v)
		return
	}
	// Other errors are sentences for the operator. The proxy's and sandboxd's errors have no meaning as codes of this API.
	if errors.Is(err, history.ErrUnknown) {
		err = operatorapi.ErrNotFound
	} else if e := (*rpc.Error)(nil); !errors.As(err, &e) || e.API != operatorapi.PeerName {
		err = newRefused(http.StatusConflict, "refused", err)
	}
	rpc.WriteRefusal(w, err)
}

// newRefused returns an error of this API whose text is for the operator.
func newRefused(status int, code string, err error) error {
	return &rpc.Error{API: operatorapi.PeerName, Status: status, Code: code, Text: err.Error()}
}

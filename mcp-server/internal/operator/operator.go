// Package operator answers the operator on the unix socket: see mcp-server/operatorapi.
//
// Threat: the answers reveal the APIs and the actions of code. Contract: only the socket's owner may send requests.
// Handler has no further check, so it must not be served on an address.
package operator

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/alarm"
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
	// Stop ends the streams when it is closed.
	Stop <-chan struct{}
}

// maxInputBody bounds an input as JSON, in bytes: base64 takes four bytes for three.
const maxInputBody = sandboxapi.MaxInput/3*4 + 1<<20

// NewHandler returns the handler of operatorapi.Prefix.
func NewHandler(c Config) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+operatorapi.Prefix+"about", func(w http.ResponseWriter, _ *http.Request) {
		rpc.WriteAnswer(w, http.StatusOK, c.About)
	})
	mux.HandleFunc("GET "+operatorapi.Prefix+"tenants", func(w http.ResponseWriter, _ *http.Request) {
		rpc.WriteAnswer(w, http.StatusOK, c.Tenants())
	})
	mux.HandleFunc("GET "+operatorapi.Prefix+"packages", func(w http.ResponseWriter, _ *http.Request) {
		rpc.WriteAnswer(w, http.StatusOK, c.Packages())
	})
	mux.HandleFunc("GET "+operatorapi.Prefix+"database", func(w http.ResponseWriter, r *http.Request) {
		rpc.WriteAnswer(w, http.StatusOK, c.Database(r.Context()))
	})
	mux.HandleFunc("GET "+operatorapi.Prefix+"catalog", func(w http.ResponseWriter, r *http.Request) {
		forwardAnswer(w, r, c.Control.FetchCatalog)
	})
	mux.HandleFunc("GET "+operatorapi.Prefix+"inspection", func(w http.ResponseWriter, r *http.Request) {
		forwardAnswer(w, r, c.Control.FetchInspection)
	})
	mux.HandleFunc("GET "+operatorapi.Prefix+"diagnosis", func(w http.ResponseWriter, r *http.Request) {
		forwardAnswer(w, r, func(ctx context.Context) (proxyapi.Diagnosis, error) {
			return c.Control.Diagnose(ctx, r.URL.Query().Get("offline") == "true")
		})
	})
	historyRoutes(mux, c.History, c.Stop)
	if c.Console != nil {
		mux.HandleFunc("POST "+operatorapi.Prefix+"console", func(w http.ResponseWriter, _ *http.Request) {
			rpc.WriteAnswer(w, http.StatusOK, c.Console())
		})
	}
	mux.HandleFunc("GET "+operatorapi.Prefix+"alarms", func(w http.ResponseWriter, _ *http.Request) {
		rpc.WriteAnswer(w, http.StatusOK, c.Alarms.List())
	})
	mux.HandleFunc("POST "+operatorapi.Prefix+"unfreeze", func(w http.ResponseWriter, r *http.Request) {
		writeAnswer(w, struct{}{}, c.Alarms.Unfreeze(r.URL.Query().Get("session")))
	})
	if c.AddInput != nil {
		mux.HandleFunc("POST "+operatorapi.Prefix+"input", func(w http.ResponseWriter, r *http.Request) {
			var in sandboxapi.Input
			if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxInputBody)).Decode(&in); err != nil {
				rpc.WriteError(w, http.StatusBadRequest, err.Error())
				return
			}
			id, err := c.AddInput(&in)
			writeAnswer(w, operatorapi.InputID{ID: id}, err)
		})
	}
	if c.Servers != nil {
		serverRoutes(mux, c.Servers)
	}
	return mux
}

// forwardAnswer answers with the proxy's answer.
func forwardAnswer[T any](w http.ResponseWriter, r *http.Request, ask func(context.Context) (T, error)) {
	v, err := ask(r.Context())
	if err != nil {
		rpc.WriteError(w, http.StatusBadGateway, err.Error())
		return
	}
	rpc.WriteAnswer(w, http.StatusOK, v)
}

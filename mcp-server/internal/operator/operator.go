// Package operator answers whoever runs CodeForge, on the unix socket: see mcp-server/operatorapi.
//
// Threat: the answers tell which APIs there are and what code did. Only the socket's owner may ask, so Handler has no
// check of its own and must not be served on an address.
package operator

import (
	"context"
	"net/http"

	"github.com/codeforge-mcp/codeforge/internal/httpjson"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/alarm"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/history"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// Config holds what the answers come from.
type Config struct {
	About   operatorapi.About
	Control *controlapi.Client
	// History is what is kept of runs.
	History *history.Store
	// Servers are the MCP servers. Nil means that they are not served here.
	Servers Servers
	// Alarms are those of the proxy. Nil means none.
	Alarms *alarm.Book
	// Tenants are the clients of MCP_TOKENS_FILE.
	Tenants func() operatorapi.Tenants
	// Database returns the state of Postgres. It is nil without the daemon.
	Database func(context.Context) operatorapi.Database
	// Console makes a way in to the console. Nil means none.
	Console func() operatorapi.ConsoleLogin
	// Stop, when closed, ends the streams.
	Stop <-chan struct{}
}

// Handler makes the handler of operatorapi.Prefix.
func Handler(c Config) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+operatorapi.Prefix+"about", func(w http.ResponseWriter, _ *http.Request) {
		httpjson.Answer(w, http.StatusOK, c.About)
	})
	mux.HandleFunc("GET "+operatorapi.Prefix+"tenants", func(w http.ResponseWriter, _ *http.Request) {
		httpjson.Answer(w, http.StatusOK, c.Tenants())
	})
	mux.HandleFunc("GET "+operatorapi.Prefix+"database", func(w http.ResponseWriter, r *http.Request) {
		httpjson.Answer(w, http.StatusOK, c.Database(r.Context()))
	})
	mux.HandleFunc("GET "+operatorapi.Prefix+"catalog", func(w http.ResponseWriter, r *http.Request) {
		forward(w, r, c.Control.Catalog)
	})
	mux.HandleFunc("GET "+operatorapi.Prefix+"inspection", func(w http.ResponseWriter, r *http.Request) {
		forward(w, r, c.Control.Inspection)
	})
	mux.HandleFunc("GET "+operatorapi.Prefix+"diagnosis", func(w http.ResponseWriter, r *http.Request) {
		forward(w, r, func(ctx context.Context) (controlapi.Diagnosis, error) {
			return c.Control.Diagnose(ctx, r.URL.Query().Get("offline") == "true")
		})
	})
	historyRoutes(mux, c.History, c.Stop)
	if c.Console != nil {
		mux.HandleFunc("POST "+operatorapi.Prefix+"console", func(w http.ResponseWriter, _ *http.Request) {
			httpjson.Answer(w, http.StatusOK, c.Console())
		})
	}
	mux.HandleFunc("GET "+operatorapi.Prefix+"alarms", func(w http.ResponseWriter, _ *http.Request) {
		httpjson.Answer(w, http.StatusOK, c.Alarms.List())
	})
	mux.HandleFunc("POST "+operatorapi.Prefix+"unfreeze", func(w http.ResponseWriter, r *http.Request) {
		told(w, struct{}{}, c.Alarms.Unfreeze(r.URL.Query().Get("session")))
	})
	if c.Servers != nil {
		serverRoutes(mux, c.Servers)
	}
	return mux
}

// forward answers with what the proxy says.
func forward[T any](w http.ResponseWriter, r *http.Request, ask func(context.Context) (T, error)) {
	v, err := ask(r.Context())
	if err != nil {
		httpjson.Fail(w, http.StatusBadGateway, err.Error())
		return
	}
	httpjson.Answer(w, http.StatusOK, v)
}

package operator

import (
	"errors"
	"net/http"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/broker"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// serverRoutes adds the paths about MCP servers. Two of them change state: approving a server's tools, and restarting a
// server. Only the operator, who can stop all of CodeForge anyway, reaches this socket. Code and MCP clients cannot.
func serverRoutes(mux *http.ServeMux, servers *broker.Broker) {
	const base = operatorapi.Prefix + "server/"
	mux.HandleFunc("GET "+base+"review", func(w http.ResponseWriter, r *http.Request) {
		review, err := servers.ReviewTools(r.Context(), r.URL.Query().Get("server"))
		writeAnswer(w, review, err)
	})
	mux.HandleFunc("GET "+base+"log", func(w http.ResponseWriter, r *http.Request) {
		lines, err := servers.ServerLog(r.URL.Query().Get("server"))
		writeAnswer(w, lines, err)
	})
	mux.HandleFunc("POST "+base+"approve", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		writeAnswer(w, struct{}{}, servers.ApproveTools(r.Context(), q.Get("server"), q.Get("digest")))
	})
	mux.HandleFunc("POST "+base+"restart", func(w http.ResponseWriter, r *http.Request) {
		writeAnswer(w, struct{}{}, servers.RestartServer(r.URL.Query().Get("server")))
	})
}

// writeAnswer answers with a value, or with the error.
func writeAnswer(w http.ResponseWriter, v any, err error) {
	if err == nil {
		rpc.WriteAnswer(w, http.StatusOK, v)
		return
	}
	// Other errors are sentences for the operator. The proxy's and sandboxd's errors have no meaning as codes of this API.
	if e := (*rpc.Error)(nil); !errors.As(err, &e) || e.API != operatorapi.PeerName {
		err = newRefused(err)
	}
	rpc.WriteRefusal(w, err)
}

// newRefused returns an error whose text is for the operator.
func newRefused(err error) error {
	return &rpc.Error{Status: http.StatusConflict, Code: "refused", Text: err.Error()}
}

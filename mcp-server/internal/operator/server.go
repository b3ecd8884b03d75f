package operator

import (
	"context"
	"errors"
	"net/http"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// Servers are the MCP servers, for the user to inspect and decide about.
type Servers interface {
	Review(ctx context.Context, server string) (operatorapi.Review, error)
	Approve(ctx context.Context, server, digest string) error
	Restart(server string) error
	Log(server string) ([]operatorapi.Line, error)
}

// serverRoutes adds the paths about MCP servers. Two of them change something: approving a server's tools and
// restarting it. Whoever reaches this socket runs CodeForge, and may stop all of it anyway; code and MCP clients do not
// reach it.
func serverRoutes(mux *http.ServeMux, servers Servers) {
	const base = operatorapi.Prefix + "server/"
	mux.HandleFunc("GET "+base+"review", func(w http.ResponseWriter, r *http.Request) {
		review, err := servers.Review(r.Context(), r.URL.Query().Get("server"))
		told(w, review, err)
	})
	mux.HandleFunc("GET "+base+"log", func(w http.ResponseWriter, r *http.Request) {
		lines, err := servers.Log(r.URL.Query().Get("server"))
		told(w, lines, err)
	})
	mux.HandleFunc("POST "+base+"approve", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		told(w, struct{}{}, servers.Approve(r.Context(), q.Get("server"), q.Get("digest")))
	})
	mux.HandleFunc("POST "+base+"restart", func(w http.ResponseWriter, r *http.Request) {
		told(w, struct{}{}, servers.Restart(r.URL.Query().Get("server")))
	})
}

// told answers with a value, or with the reason for which there is none.
func told(w http.ResponseWriter, v any, err error) {
	if err == nil {
		rpc.Answer(w, http.StatusOK, v)
		return
	}
	if e := (*rpc.Error)(nil); !errors.As(err, &e) {
		err = refused(err)
	}
	rpc.Refuse(w, err)
}

// refused is an error whose text is for the operator.
func refused(err error) error {
	return &rpc.Error{Status: http.StatusConflict, Code: "refused", Text: err.Error()}
}

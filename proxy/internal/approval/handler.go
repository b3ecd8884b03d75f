package approval

import (
	"io"
	"net/http"

	"github.com/codeforge-mcp/codeforge/internal/jsonread"
	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// maxAnswer bounds a decision, in bytes.
const maxAnswer = 64 << 10

// AddRoutes serves approvalapi at some paths of a socket. mcp-server could forge an answer, so isOperator is true only
// for the operator's socket.
func (s *Store) AddRoutes(mux *http.ServeMux, at approvalapi.Paths, isOperator bool) {
	mux.HandleFunc("GET "+at.Held,
		rpc.NewHandler(func(r *http.Request) (any, error) { return s.ListHeldOfAll(r.Context()) }))
	mux.HandleFunc("GET "+at.Plans, rpc.NewHandler(func(*http.Request) (any, error) { return s.ListPlans(), nil }))
	mux.HandleFunc("GET "+at.Plans+"/{id}",
		rpc.NewHandler(func(r *http.Request) (any, error) { return s.GetPlan(r.PathValue("id")) }))
	mux.HandleFunc("POST "+at.Held+"/{id}", newDecisionHandler(s.DecideHeld, isOperator))
	mux.HandleFunc("POST "+at.Plans+"/{id}", newDecisionHandler(s.DecidePlan, isOperator))
}

// newDecisionHandler passes a person's decision on.
func newDecisionHandler[T any](
	decide func(id string, a approvalapi.Answer, isOperator bool) (T, error), isOperator bool,
) http.HandlerFunc {
	return rpc.NewHandler(func(r *http.Request) (any, error) {
		var in approvalapi.Answer
		if jsonread.Decode(io.LimitReader(r.Body, maxAnswer), &in) != nil {
			return nil, rpc.NewBadRequest("want an answer as JSON")
		}
		return decide(r.PathValue("id"), in, isOperator)
	})
}

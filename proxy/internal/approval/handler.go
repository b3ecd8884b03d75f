package approval

import (
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
	mux.HandleFunc("GET "+at.Held, func(w http.ResponseWriter, r *http.Request) {
		list, err := s.ListHeldOfAll(r.Context())
		writeResult(w, list, err)
	})
	mux.HandleFunc("GET "+at.Plans, func(w http.ResponseWriter, _ *http.Request) { writeResult(w, s.ListPlans(), nil) })
	mux.HandleFunc("GET "+at.Plans+"/{id}", func(w http.ResponseWriter, r *http.Request) {
		p, err := s.GetPlan(r.PathValue("id"))
		writeResult(w, p, err)
	})
	mux.HandleFunc("POST "+at.Held+"/{id}", newDecisionHandler(s.DecideHeld, isOperator))
	mux.HandleFunc("POST "+at.Plans+"/{id}", newDecisionHandler(s.DecidePlan, isOperator))
}

// newDecisionHandler passes a person's decision on.
func newDecisionHandler[T any](
	decide func(id string, a approvalapi.Answer, isOperator bool) (T, error), isOperator bool,
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in approvalapi.Answer
		if jsonread.Decode(http.MaxBytesReader(w, r.Body, maxAnswer), &in) != nil {
			rpc.WriteError(w, http.StatusBadRequest, "want an answer as JSON")
			return
		}
		out, err := decide(r.PathValue("id"), in, isOperator)
		writeResult(w, out, err)
	}
}

func writeResult(w http.ResponseWriter, v any, err error) {
	if err != nil {
		rpc.WriteRefusal(w, err)
		return
	}
	rpc.WriteAnswer(w, http.StatusOK, v)
}

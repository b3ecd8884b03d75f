package broker

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/frame"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// The codes of failures, as code sees them.
const (
	serverNotFound    = "server_not_found"
	toolNotFound      = "tool_not_found"
	badArguments      = "bad_arguments"
	toolDenied        = "tool_denied"
	exclusive         = "exclusive"
	serverUnavailable = "server_unavailable"
	slotsFull         = "slots_full"
	timedOut          = "timeout"
	cancelled         = "cancelled"
	resultTooLarge    = "result_too_large"
	serverError       = "server_error"
	packageMissing    = "package_missing"
	installFailed     = "install_failed"
	badRequest        = "bad_request"
	stashFull         = "stash_full"
	quarantined       = "quarantined"
)

// statuses are the HTTP statuses of the codes.
var statuses = map[string]int{
	serverNotFound: http.StatusNotFound, toolNotFound: http.StatusNotFound,
	badArguments: http.StatusUnprocessableEntity, badRequest: http.StatusBadRequest,
	quarantined: http.StatusForbidden,
	toolDenied:  http.StatusForbidden, exclusive: http.StatusForbidden,
	serverUnavailable: http.StatusServiceUnavailable, slotsFull: http.StatusServiceUnavailable,
	packageMissing: http.StatusServiceUnavailable, installFailed: http.StatusServiceUnavailable,
	timedOut: http.StatusGatewayTimeout, cancelled: http.StatusGatewayTimeout,
	resultTooLarge: http.StatusBadGateway, serverError: http.StatusBadGateway,
	stashFull: http.StatusInsufficientStorage,
}

// failure is why a call has no result, as reported to code. All layers use this one error type.
type failure struct {
	code    string
	message string
	hint    string
	// data is what a server's error has beside its message, or nil.
	data json.RawMessage
	// retryable: the call was not made, and may be possible later.
	retryable bool
	server    string
	tool      string

	// transport means that the server's process or connection failed, which counts for the breaker.
	transport bool
	// unsent means that the call was certainly not sent.
	unsent bool
}

func (f *failure) Error() string { return f.code + ": " + f.message }

// write answers a request with the failure.
func (f *failure) write(w http.ResponseWriter) {
	line, _ := json.Marshal(controlapi.Refusal{
		Error: f.message, Code: f.code, Hint: f.hint, Retryable: f.retryable, Server: f.server, Tool: f.tool,
		Data: f.data,
	})
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set(controlapi.HeaderCode, f.code)
	w.WriteHeader(statuses[f.code])
	_, _ = w.Write(line) // an error means that the client is gone
}

// unavailable is the failure of a server that cannot be used now.
func unavailable(message, hint string) *failure {
	return &failure{code: serverUnavailable, message: message, hint: hint, retryable: true, unsent: true}
}

// ended is the failure of a call whose server ended under it.
func ended(why string, unsent bool) *failure {
	f := &failure{code: serverUnavailable, message: why, transport: true, unsent: unsent, retryable: unsent}
	if !unsent {
		f.hint = "The call may have been carried out. Check before you repeat it."
	}
	return f
}

// late is the failure of a call whose time is over.
func late(limit time.Duration) *failure {
	return &failure{
		code: timedOut, message: fmt.Sprintf("no answer within %v", limit.Round(time.Millisecond)),
		hint: "The call was cancelled, but may have been carried out. " +
			"Pass {timeout: milliseconds} as the last argument to wait longer.",
	}
}

// maxErrorData bounds what is handed on of a server's error beside its message, in bytes.
const maxErrorData = 64 << 10

// dataOf is the data of a server's JSON-RPC error, or nil: there is none, or it is too long.
func dataOf(e *frame.Error) json.RawMessage {
	var of struct{ Data json.RawMessage }
	if json.Unmarshal(e.Data, &of) != nil || len(of.Data) > maxErrorData {
		return nil
	}
	return of.Data
}

// fromBridge is the only place that makes an error of the bridge one for code.
func fromBridge(e *frame.Error) *failure {
	message := clean(e.Message)
	switch e.Code {
	case frame.ServerError, frame.BadRequest, frame.Refused:
		return &failure{code: serverError, message: message, data: dataOf(e)}
	case frame.ResultTooLarge:
		return &failure{code: resultTooLarge, message: message, hint: "Ask for less: a smaller page, or fewer fields."}
	case frame.NotSent:
		return ended(message, true)
	case frame.Cancelled, frame.Abandoned:
		// Answers to calls that the broker cancelled come elsewhere: this bridge gave up by itself, because it is ending.
		return ended("the connection to the server ended", false)
	}
	return ended(message, false)
}

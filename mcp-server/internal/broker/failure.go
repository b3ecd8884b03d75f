package broker

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bridgewire"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// Codes of failures that code can see.
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

// statuses maps a failure's code to its HTTP status.
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

// callFailure is the reason why a call has no result. All layers use this type, and code sees it.
type callFailure struct {
	code    string
	message string
	hint    string
	// data is the data member of a server's error, or nil.
	data json.RawMessage
	// retryable means that the call was not made, and may succeed later.
	retryable bool
	server    string
	tool      string

	// transport means that the server's process or connection failed. The breaker counts such failures.
	transport bool
	// unsent means that the call was certainly not sent.
	unsent bool
}

func (f *callFailure) Error() string { return f.code + ": " + f.message }

// writeFailure answers a request with the failure.
func (f *callFailure) writeFailure(w http.ResponseWriter) {
	line, _ := json.Marshal(proxyapi.Refusal{
		Error: f.message, Code: f.code, Hint: f.hint, Retryable: f.retryable, Server: f.server, Tool: f.tool,
		Data: f.data,
	})
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set(proxyapi.HeaderCode, f.code)
	w.WriteHeader(statuses[f.code])
	_, _ = w.Write(line) // an error means that the client is gone
}

// newUnavailable returns the failure for a server that cannot be used now.
func newUnavailable(message, hint string) *callFailure {
	return &callFailure{code: serverUnavailable, message: message, hint: hint, retryable: true, unsent: true}
}

// newEnded returns the failure for a call whose server ended during the call.
func newEnded(why string, unsent bool) *callFailure {
	f := &callFailure{code: serverUnavailable, message: why, transport: true, unsent: unsent, retryable: unsent}
	if !unsent {
		f.hint = "The call may have been carried out. Check before you repeat it."
	}
	return f
}

func newTimeout(limit time.Duration) *callFailure {
	return &callFailure{
		code: timedOut, message: fmt.Sprintf("no answer within %v", limit.Round(time.Millisecond)),
		hint: "The call was cancelled, but may have been carried out. " +
			"Pass {timeout: milliseconds} as the last argument to wait longer.",
	}
}

// maxErrorData bounds the data of a server's error that is passed on to code, in bytes.
const maxErrorData = 64 << 10

// dataOf returns the data of a server's JSON-RPC error. It returns nil if the data is missing or too long.
func dataOf(e *bridgewire.Error) json.RawMessage {
	var of struct{ Data json.RawMessage }
	if json.Unmarshal(e.Data, &of) != nil || len(of.Data) > maxErrorData {
		return nil
	}
	return of.Data
}

// fromBridge converts a bridge's error to one for code. It is the only place that does so.
func fromBridge(e *bridgewire.Error) *callFailure {
	message := cleanText(e.Message)
	switch e.Code {
	case bridgewire.ServerError, bridgewire.BadRequest, bridgewire.Refused:
		return &callFailure{code: serverError, message: message, data: dataOf(e)}
	case bridgewire.Limited:
		return &callFailure{
			code: serverError, message: message, retryable: true,
			hint: "The server limits how often it is called. Wait, then repeat the call.",
		}
	case bridgewire.ResultTooLarge:
		return &callFailure{code: resultTooLarge, message: message, hint: "Ask for less: a smaller page, or fewer fields."}
	case bridgewire.NotSent:
		return newEnded(message, true)
	case bridgewire.Cancelled, bridgewire.Abandoned:
		// Answers to calls that the broker cancelled take another path. Here the bridge gave up because it is ending.
		return newEnded("the connection to the server ended", false)
	}
	return newEnded(message, false)
}

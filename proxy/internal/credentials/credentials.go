// Package credentials serves proxy/credentialapi, proxy/approvalapi and the ledger (proxy/ledger) on a unix
// socket for the operator.
//
// Threat: a process that reaches the socket can begin and end logins, replace the value of a "command", and approve
// requests.
//
// Contract: the control API, which mcp-server uses, has another socket. The kernel reports the user of every
// connection, and only the proxy's user and root may connect. No answer contains a credential.
package credentials

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/codeforge-mcp/codeforge/internal/jsonread"
	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/internal/unixsocket"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/approval"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
)

const maxBody = 64 << 10

// CredentialMinter is the part of mint.Minter that the API needs.
type CredentialMinter interface {
	ListCredentials() []credentialapi.Credential
	BeginLogin(ctx context.Context, l credentialapi.Login) (credentialapi.StartedLogin, error)
	FinishLogin(ctx context.Context, r credentialapi.Redirect) error
	PollLogin(ctx context.Context, id string) (credentialapi.LoginProgress, error)
	ForgetLogin(name string) error
	SupplyValue(name string, v credentialapi.SuppliedValue) error
}

// NewHandler serves all these APIs, and the ledger for reading.
func NewHandler(m CredentialMinter, approvals *approval.Store, records ledger.Dir) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(ledger.Prefix, ledger.NewHandler(records))
	mux.Handle(ledger.Prefix+"/", ledger.NewHandler(records))
	mux.HandleFunc("GET "+credentialapi.Prefix, func(w http.ResponseWriter, _ *http.Request) {
		writeAnswer(w, m.ListCredentials(), nil)
	})
	mux.HandleFunc("POST "+credentialapi.Prefix+"/logins",
		newJSONHandler(func(r *http.Request, in credentialapi.Login) (any, error) { return m.BeginLogin(r.Context(), in) }))
	mux.HandleFunc("POST "+credentialapi.Prefix+"/logins/finish",
		newJSONHandler(func(r *http.Request, in credentialapi.Redirect) (any, error) {
			return struct{}{}, m.FinishLogin(r.Context(), in)
		}))
	mux.HandleFunc("POST "+credentialapi.Prefix+"/logins/poll",
		newJSONHandler(func(r *http.Request, in credentialapi.LoginPoll) (any,
			error) {
			return m.PollLogin(r.Context(), in.ID)
		}))
	mux.HandleFunc("DELETE "+credentialapi.Prefix+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		writeAnswer(w, struct{}{}, m.ForgetLogin(r.PathValue("name")))
	})
	mux.HandleFunc("PUT "+credentialapi.Prefix+"/{name}",
		newJSONHandler(func(r *http.Request, in credentialapi.SuppliedValue) (any, error) {
			return struct{}{}, m.SupplyValue(r.PathValue("name"), in)
		}))
	approvals.AddRoutes(mux, approvalapi.OperatorPaths, true)
	return mux
}

// newJSONHandler decodes a request's body: one JSON object without unknown fields.
func newJSONHandler[T any](serve func(*http.Request, T) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in T
		// The error of the decoder could quote a secret.
		if jsonread.Decode(http.MaxBytesReader(w, r.Body, maxBody), &in) != nil {
			writeAnswer(w, nil, &rpc.Error{Code: "bad_request", Text: "The request is malformed."})
			return
		}
		out, err := serve(r, in)
		writeAnswer(w, out, err)
	}
}

func writeAnswer(w http.ResponseWriter, v any, err error) {
	if err == nil {
		rpc.WriteAnswer(w, http.StatusOK, v)
		return
	}
	// An unexpected error could quote a secret, so only an *rpc.Error is shown.
	r := &rpc.Error{Code: "failed", Text: "The request could not be carried out."}
	_ = errors.As(err, &r)
	rpc.WriteAnswer(w, http.StatusConflict, r)
}

// Serve answers on the listener until ctx ends. Then it returns nil.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	if err := rpc.Serve(ctx, &ownerListener{l}, h); err != nil {
		return fmt.Errorf("serving the credentials API: %w", err)
	}
	return nil
}

// ownerListener accepts only connections of the proxy's user and of root.
type ownerListener struct{ net.Listener }

func (l *ownerListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		// The kernel reports the user of the peer, regardless of the mode of the socket's file.
		uid, err := unixsocket.PeerUID(c)
		if err == nil && (uid == os.Geteuid() || uid == 0) {
			return c, nil
		}
		_ = c.Close()
	}
}

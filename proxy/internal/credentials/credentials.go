// Package credentials serves proxy/credentialapi, proxy/approvalapi, proxy/planapi and the ledger (proxy/ledger) on a
// unix socket for the operator.
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
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
	"github.com/codeforge-mcp/codeforge/proxy/planapi"
)

const maxBody = 64 << 10

// Minter is the part of mint.Minter that the API needs.
type Minter interface {
	List() []credentialapi.Credential
	Begin(ctx context.Context, l credentialapi.Login) (credentialapi.Started, error)
	Finish(ctx context.Context, r credentialapi.Redirect) error
	Poll(ctx context.Context, id string) (credentialapi.Progress, error)
	Logout(name string) error
	Supply(name string, v credentialapi.Supply) error
}

// Room is the part of hold.Room that the approval API needs.
type Room interface {
	List() []approvalapi.Held
	Decide(id string, a approvalapi.Answer) (approvalapi.Held, error)
}

// Plans is the part of plan.Book that the plan API needs.
type Plans interface {
	List() []planapi.Plan
	Get(id string) (planapi.Plan, error)
	Decide(id string, a planapi.Answer) (planapi.Plan, error)
}

// Handler serves all these APIs, and the ledger for reading.
func Handler(m Minter, room Room, plans Plans, records ledger.Dir) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(ledger.Prefix, ledger.Handler(records))
	mux.Handle(ledger.Prefix+"/", ledger.Handler(records))
	mux.HandleFunc("GET "+credentialapi.Prefix, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, m.List(), nil)
	})
	mux.HandleFunc("POST "+credentialapi.Prefix+"/logins",
		with(func(r *http.Request, in credentialapi.Login) (any, error) { return m.Begin(r.Context(), in) }))
	mux.HandleFunc("POST "+credentialapi.Prefix+"/logins/finish",
		with(func(r *http.Request, in credentialapi.Redirect) (any, error) {
			return struct{}{}, m.Finish(r.Context(), in)
		}))
	mux.HandleFunc("POST "+credentialapi.Prefix+"/logins/poll",
		with(func(r *http.Request, in credentialapi.Poll) (any, error) { return m.Poll(r.Context(), in.ID) }))
	mux.HandleFunc("DELETE "+credentialapi.Prefix+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, struct{}{}, m.Logout(r.PathValue("name")))
	})
	mux.HandleFunc("PUT "+credentialapi.Prefix+"/{name}",
		with(func(r *http.Request, in credentialapi.Supply) (any, error) {
			return struct{}{}, m.Supply(r.PathValue("name"), in)
		}))
	mux.HandleFunc("GET "+approvalapi.Prefix, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, room.List(), nil)
	})
	mux.HandleFunc("POST "+approvalapi.Prefix+"/{id}", with(func(r *http.Request, in approvalapi.Answer) (any, error) {
		return room.Decide(r.PathValue("id"), in)
	}))
	mux.HandleFunc("GET "+planapi.Prefix, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, plans.List(), nil)
	})
	mux.HandleFunc("GET "+planapi.Prefix+"/{id}", func(w http.ResponseWriter, r *http.Request) {
		p, err := plans.Get(r.PathValue("id"))
		answer(w, p, err)
	})
	mux.HandleFunc("POST "+planapi.Prefix+"/{id}", with(func(r *http.Request, in planapi.Answer) (any, error) {
		return plans.Decide(r.PathValue("id"), in)
	}))
	return mux
}

// with decodes a request's body: one JSON object without unknown fields.
func with[T any](serve func(*http.Request, T) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in T
		// The error of the decoder could quote a secret.
		if jsonread.Decode(http.MaxBytesReader(w, r.Body, maxBody), &in) != nil {
			answer(w, nil, &rpc.Error{Code: "bad_request", Text: "The request is malformed."})
			return
		}
		out, err := serve(r, in)
		answer(w, out, err)
	}
}

func answer(w http.ResponseWriter, v any, err error) {
	if err == nil {
		rpc.Answer(w, http.StatusOK, v)
		return
	}
	// An unexpected error could quote a secret, so only an *rpc.Error is shown.
	r := &rpc.Error{Code: "failed", Text: "The request could not be carried out."}
	_ = errors.As(err, &r)
	rpc.Answer(w, http.StatusConflict, r)
}

// Serve answers on the listener until ctx ends. Then it returns nil.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	if err := rpc.Serve(ctx, &own{l}, h); err != nil {
		return fmt.Errorf("serving the credentials API: %w", err)
	}
	return nil
}

// own accepts only connections of the proxy's user and of root.
type own struct{ net.Listener }

func (l *own) Accept() (net.Conn, error) {
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

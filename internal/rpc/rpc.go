// Package rpc is JSON over HTTP for the daemons' APIs: an answer is a value or an Error.
package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// maxError bounds the part of an answer that is read for its error, in bytes.
	maxError = 64 << 10
	// maxAnswer bounds an answer of one value, in bytes. The answer for a plan contains all its bodies, escaped.
	maxAnswer = 64 << 20
)

// Error is the reason for a failed call. errors.Is treats two errors with the same API and code as equal.
type Error struct {
	// API is the Name of the Peer that answers with this error. A peer cannot answer with an error of another API.
	API string `json:"-"`
	// Status is the status of the answer. Zero means 500.
	Status int `json:"-"`
	// Code is one word. Callers test for it. Empty: callers do not test for this error.
	Code string `json:"code,omitempty"`
	// Text is a sentence.
	Text string `json:"error"`
}

func (e *Error) Error() string { return e.Text }

// Is implements the interface of errors.Is.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error) //nolint:errorlint // errors.Is unwraps
	return ok && e.Code != "" && e.Code == t.Code && e.API == t.API
}

// WriteAnswer writes a value as the answer.
func WriteAnswer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client has gone
}

// WriteError writes an error as the answer.
func WriteError(w http.ResponseWriter, status int, why string) {
	WriteAnswer(w, status, &Error{Text: why})
}

// WriteRefusal writes err as the answer: its whole text, and the status and code of the first Error in it.
func WriteRefusal(w http.ResponseWriter, err error) {
	status, code := http.StatusInternalServerError, ""
	if e := (*Error)(nil); errors.As(err, &e) {
		code = e.Code
		if e.Status != 0 {
			status = e.Status
		}
	}
	WriteAnswer(w, status, &Error{Code: code, Text: err.Error()})
}

// NewHandler answers with the result of serve, or with its error as WriteRefusal does. A nil result is the status 204.
func NewHandler(serve func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch v, err := serve(r); {
		case err != nil:
			WriteRefusal(w, err)
		case v == nil:
			w.WriteHeader(http.StatusNoContent)
		default:
			WriteAnswer(w, http.StatusOK, v)
		}
	}
}

// NewBadRequest returns the error for a request with a mistake.
func NewBadRequest(why string) error { return &Error{Status: http.StatusBadRequest, Text: why} }

// Peer is a daemon to call. Do sends a request. Name is the daemon's name in messages.
type Peer interface {
	Do(r *http.Request) (*http.Response, error)
	Name() string
}

// Send sends a request with a JSON body, or without one if body is nil. It returns the answer if its status is a
// success, otherwise an *Error. The caller must close the answer's body.
func Send(ctx context.Context, p Peer, method, url string, body any) (*http.Response, error) {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	resp, err := p.Do(r)
	if err != nil {
		return nil, err
	}
	if err := ReadError(p, resp); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// ReadError returns the *Error in an answer, or nil if its status is a success.
func ReadError(p Peer, resp *http.Response) error {
	if resp.StatusCode < http.StatusMultipleChoices {
		return nil
	}
	e := &Error{}
	// The body may be something else, such as a proxy's page. The status is then the whole error.
	_ = json.NewDecoder(io.LimitReader(resp.Body, maxError)).Decode(e)
	e.API, e.Status = p.Name(), resp.StatusCode
	if e.Code == "" {
		e.Text = fmt.Sprintf("%s answered %d: %s", p.Name(), resp.StatusCode, e.Text)
	}
	return e
}

// Call is Send for an answer of one value. If the answer has no body, Call returns the zero value.
func Call[T any](ctx context.Context, p Peer, method, url string, body any) (out T, err error) {
	resp, err := Send(ctx, p, method, url, body)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&out); err != nil &&
		resp.StatusCode != http.StatusNoContent {
		return out, fmt.Errorf("reading the answer of %s: %w", p.Name(), err)
	}
	return out, nil
}

// Serve serves a listener until ctx ends. Then it returns nil.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: log.New(io.Discard, "", 0), BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	err := srv.Serve(l)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// ListenOnce returns a listener with one connection to accept. It ends when that connection is closed.
func ListenOnce(c net.Conn) net.Listener {
	h := NewHandoff(c.LocalAddr())
	go h.PassConn(OnClose(c, h.end))
	return h
}

// Handoff is a net.Listener of connections that were accepted elsewhere. Make one with NewHandoff.
type Handoff struct {
	conns chan net.Conn
	over  chan struct{}
	end   func() // closes over
	addr  net.Addr
}

// NewHandoff returns a Handoff with an address.
func NewHandoff(addr net.Addr) *Handoff {
	h := &Handoff{conns: make(chan net.Conn), over: make(chan struct{}), addr: addr}
	h.end = sync.OnceFunc(func() { close(h.over) })
	return h
}

// PassConn passes a connection on, or closes it if the server no longer accepts.
func (h *Handoff) PassConn(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.over:
		_ = c.Close()
	}
}

// Accept implements net.Listener.
func (h *Handoff) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.over:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *Handoff) Close() error {
	h.end()
	return nil
}

// Addr implements net.Listener.
func (h *Handoff) Addr() net.Addr { return h.addr }

// OnClose returns c as a connection that calls closed after each Close.
func OnClose(c net.Conn, closed func()) net.Conn { return &watchedConn{c, closed} }

// watchedConn calls closed when its connection is closed.
type watchedConn struct {
	net.Conn
	closed func()
}

func (w *watchedConn) Close() error {
	err := w.Conn.Close()
	w.closed()
	return err
}

// Package httpjson is JSON over HTTP, as the daemons' own APIs speak it: an answer is a value, or {"error": "..."}.
package httpjson

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// maxError bounds how much of an answer is read for its error, in bytes.
const maxError = 64 << 10

// Answer answers with a value.
func Answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client has gone
}

type failure struct {
	Error string `json:"error"`
}

// Fail answers with why there is no value.
func Fail(w http.ResponseWriter, status int, why string) { Answer(w, status, failure{why}) }

// Error is what Fail has said, or empty.
func Error(r *http.Response) string {
	var e failure
	_ = json.NewDecoder(io.LimitReader(r.Body, maxError)).Decode(&e)
	return e.Error
}

// Serve answers on the listener until ctx ends; then it returns nil.
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

// Once is a listener that has one connection to accept, and ends with that.
func Once(c net.Conn) net.Listener {
	l := &once{conn: make(chan net.Conn, 1), over: make(chan struct{}), addr: c.LocalAddr()}
	l.end = sync.OnceFunc(func() { close(l.over) })
	l.conn <- &watched{c, l.end}
	return l
}

type once struct {
	conn chan net.Conn
	over chan struct{}
	end  func() // closes over
	addr net.Addr
}

func (l *once) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.over:
		return nil, net.ErrClosed
	}
}

// Close ends Accept, for which a server waits before it closes its connections, and leaves the connection.
func (l *once) Close() error {
	l.end()
	return nil
}

func (l *once) Addr() net.Addr { return l.addr }

// watched says when a connection was closed.
type watched struct {
	net.Conn
	closed func()
}

func (w *watched) Close() error {
	err := w.Conn.Close()
	w.closed()
	return err
}

// Package login receives the redirect of a login on 127.0.0.1.
//
// Contract: it passes the parameters of the redirect (state, code and issuer) to the proxy, and never sees a token. The
// proxy made the state and the verifier, and exchanges the code.
//
// Threat: another page in the browser, or another user of the machine, that sends a request to the port. It accepts
// only the redirect's path at the redirect's host, with the state of this login. On Linux, the request must also come
// from a process of the same user. It answers every other request with an error and keeps waiting.
package login

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/tcpsocket"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
)

// Listener waits for a redirect. Make one with Listen.
type Listener struct {
	host  string
	port  int
	ports []net.Listener
}

// ListenLoopback listens on a port of loopback; 0 means any free one. host is the host of the redirect's address:
// 127.0.0.1 or localhost. For localhost, browsers try ::1 first. A process with that port on ::1 would receive the code
// and the state, and could redirect the browser with another code. So the port must be free there too, unless the
// machine has no IPv6.
func ListenLoopback(ctx context.Context, host string, port int) (*Listener, error) {
	const most = 16 // tries for a port that is free on 127.0.0.1 and on ::1
	for i := 1; ; i++ {
		l, err := listenPort(ctx, host, port)
		if err == nil || port != 0 || i == most {
			return l, err
		}
	}
}

func listenPort(ctx context.Context, host string, port int) (*Listener, error) {
	var c net.ListenConfig
	first, err := c.Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("the port for the browser's redirect: %w", err)
	}
	l := &Listener{host: host, ports: []net.Listener{first}}
	addr, ok := first.Addr().(*net.TCPAddr)
	if !ok {
		return nil, errors.Join(errors.New("the port for the browser's redirect is unknown"), first.Close())
	}
	l.port = addr.Port
	if host != "localhost" {
		return l, nil
	}
	second, err := c.Listen(ctx, "tcp6", net.JoinHostPort("::1", strconv.Itoa(l.port)))
	switch {
	case err == nil:
		l.ports = append(l.ports, second)
	case isPortTaken(err):
		return nil, errors.Join(fmt.Errorf("the port for the browser's redirect: %w", err), l.Close())
	}
	return l, nil
}

// isPortTaken reports whether a port could not be opened because another process uses it.
func isPortTaken(err error) bool {
	const windows = syscall.Errno(10048) // WSAEADDRINUSE
	return errors.Is(err, syscall.EADDRINUSE) || runtime.GOOS == "windows" && errors.Is(err, windows)
}

// Port returns the port.
func (l *Listener) Port() int { return l.port }

// Close frees the port.
func (l *Listener) Close() error {
	errs := convert.Each(l.ports, net.Listener.Close)
	return errors.Join(errs...)
}

// WaitForRedirect serves until the redirect of the login has arrived and finish was called with it. It returns finish's
// error, or the error of ctx.
func (l *Listener) WaitForRedirect(ctx context.Context, started credentialapi.StartedLogin,
	finish func(context.Context, credentialapi.Redirect) error,
) error {
	state, err := stateOf(started.URL)
	if err != nil {
		return err
	}
	w := &loginHandler{l: l, id: started.ID, state: state, finish: finish, done: make(chan error, 1)}
	const most = 5 * time.Second
	srv := &http.Server{
		Handler: w, ReadTimeout: most, ReadHeaderTimeout: most, MaxHeaderBytes: 64 << 10, //nolint:mnd // bytes
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, strangerKey{}, tcpsocket.IsForeignPeer(c))
		},
	}
	for _, p := range l.ports {
		go func() { _ = srv.Serve(p) }()
	}
	select {
	case err = <-w.done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	defer cancel()
	_ = srv.Shutdown(stop) // so that the browser receives its page
	select {
	case err = <-w.done: // the redirect arrived before ctx ended
	default:
	}
	return err
}

// strangerKey is the key of whether a connection belongs to another user.
type strangerKey struct{}

type loginHandler struct {
	l         *Listener
	id, state string
	finish    func(context.Context, credentialapi.Redirect) error

	mu   sync.Mutex
	over bool
	done chan error
}

// ServeHTTP answers the browser.
func (w *loginHandler) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	h := out.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	redirect, status := w.readRedirect(r)
	if status != http.StatusOK {
		writePage(out, status, "This is not the login that CodeForge waits for.")
		return
	}
	w.mu.Lock()
	over := w.over
	w.over = true
	w.mu.Unlock()
	if over {
		writePage(out, http.StatusConflict, "This login has ended.")
		return
	}
	err := w.finish(context.WithoutCancel(r.Context()), redirect) // a closed page must not waste the code
	if err != nil {
		writePage(out, http.StatusBadGateway, "The login failed. See the cause in the terminal.")
	} else {
		writePage(out, http.StatusOK, "CodeForge is logged in. You can close this page.")
	}
	w.done <- err
}

// writePage writes a page of one constant sentence.
func writePage(out http.ResponseWriter, status int, text string) {
	out.WriteHeader(status)
	fmt.Fprintf(out, "<!doctype html><title>CodeForge</title><p>%s</p>\n", text)
}

// readRedirect extracts the redirect from a request, or returns the status of its refusal.
func (w *loginHandler) readRedirect(r *http.Request) (credentialapi.Redirect, int) {
	none := credentialapi.Redirect{}
	host, port, err := net.SplitHostPort(r.Host)
	switch {
	case r.Context().Value(strangerKey{}) == true, err != nil, port != strconv.Itoa(w.l.port),
		host != w.l.host && host != "127.0.0.1":
		return none, http.StatusForbidden
	case r.URL.Path != catalog.RedirectPath:
		return none, http.StatusNotFound
	case r.Method != http.MethodGet:
		return none, http.StatusMethodNotAllowed
	}
	redirect, err := parseRedirect(r.URL.RawQuery)
	// The comparison takes constant time, so that timing does not reveal the state.
	if err != nil || subtle.ConstantTimeCompare([]byte(redirect.State), []byte(w.state)) != 1 {
		return none, http.StatusForbidden
	}
	redirect.ID = w.id
	return redirect, http.StatusOK
}

// errRedirect is the error for an address that is not a redirect. Its text does not quote the address, which may hold a
// code.
var errRedirect = errors.New("this is not the address that the login came back to: it has no state, or no code")

// parseRedirect parses the query of a redirect. Each parameter may occur once.
func parseRedirect(query string) (credentialapi.Redirect, error) {
	q, err := url.ParseQuery(query)
	if err != nil {
		return credentialapi.Redirect{}, errRedirect
	}
	for _, name := range []string{"state", "code", "iss", "error"} {
		// With two values, two readers could use different ones.
		if len(q[name]) > 1 {
			return credentialapi.Redirect{}, errRedirect
		}
	}
	r := credentialapi.Redirect{State: q.Get("state"), Code: q.Get("code"), Issuer: q.Get("iss"), Error: q.Get("error")}
	if r.State == "" || (r.Code == "") == (r.Error == "") {
		return credentialapi.Redirect{}, errRedirect
	}
	return r, nil
}

// ParsePasted parses an address that the user pasted. Its state must be the login's.
func ParsePasted(started credentialapi.StartedLogin, text string) (credentialapi.Redirect, error) {
	state, err := stateOf(started.URL)
	if err != nil {
		return credentialapi.Redirect{}, err
	}
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil {
		return credentialapi.Redirect{}, errRedirect // the error would quote the address
	}
	r, err := parseRedirect(u.RawQuery)
	switch {
	case err != nil:
		return credentialapi.Redirect{}, err
	case subtle.ConstantTimeCompare([]byte(r.State), []byte(state)) != 1:
		return credentialapi.Redirect{}, errors.New("this address belongs to another login")
	}
	r.ID = started.ID
	return r, nil
}

func stateOf(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Query().Get("state") == "" {
		return "", errors.New("the proxy gave no address for the login")
	}
	return u.Query().Get("state"), nil
}

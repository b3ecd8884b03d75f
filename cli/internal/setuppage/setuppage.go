// Package setuppage serves one page on loopback to one browser of the user, for a few minutes.
//
// Threat: the forms of the page write files with credentials. Other pages in the browser can send requests to the port,
// even under their own host names if those resolve to 127.0.0.1 (DNS rebinding). Other users of the machine can connect
// as well, and another person may read the link later.
//
// Contract: the page is at a random path. The first request to the path gets a cookie, and later requests need it. The
// Host must be the listener's, and a form must come from the page. On Linux, a request must also come from a process of
// the same user. All other requests get a constant sentence. The package logs no request.
package setuppage

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/tcpsocket"
)

const (
	// IdleTime is the time without a request after which a page ends.
	IdleTime = 15 * time.Minute
	// maxForm bounds a form, in bytes.
	maxForm = 64 << 10
	// readTime bounds the time in which a request must arrive.
	readTime   = 10 * time.Second
	cookieName = "codeforge-setup"
)

// ErrIdle means that the page ended because it got no request for IdleTime.
var ErrIdle = errors.New("the page ended after 15 minutes without a request")

// Server serves the page. Make one with Listen.
type Server struct {
	listener net.Listener
	port     string
	link     string // the random path, without slashes
	check    *http.CrossOriginProtection
	ended    chan error // gets the result of Serve
	idle     *time.Timer

	mu     sync.Mutex
	cookie string // empty until the link is used
}

// Listen listens on a free port of 127.0.0.1.
func Listen(ctx context.Context) (*Server, error) {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{
		listener: l, link: rand.Text(), check: http.NewCrossOriginProtection(), ended: make(chan error, 1),
	}
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		s.port = strconv.Itoa(a.Port)
	}
	return s, nil
}

// Address returns the address of the page. It works for one browser.
func (s *Server) Address() string { return "http://127.0.0.1:" + s.port + "/" + s.link + "/" }

// End makes Serve return err once the current answers are written.
func (s *Server) End(err error) {
	select {
	case s.ended <- err:
	default: // it has ended already
	}
}

// Serve serves a page until End, and returns nil. It returns ErrIdle after IdleTime without a request, or the error of
// ctx. The page gets paths below Address, which begin with "/".
func (s *Server) Serve(ctx context.Context, page http.Handler) error {
	s.idle = time.AfterFunc(IdleTime, func() { s.End(ErrIdle) })
	defer s.idle.Stop()
	srv := &http.Server{
		Handler: s.protect(page), ReadTimeout: readTime, ReadHeaderTimeout: readTime,
		MaxHeaderBytes: maxForm, ErrorLog: log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, foreignKey{}, tcpsocket.IsForeignPeer(c))
		},
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(s.listener) })
	defer serving.Wait()
	var err error
	select {
	case err = <-s.ended:
	case <-ctx.Done():
		err = ctx.Err()
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTime)
	defer cancel()
	if srv.Shutdown(stop) != nil {
		_ = srv.Close()
	}
	return err
}

// foreignKey is the context key of a bool: whether the connection may belong to another user.
type foreignKey struct{}

// policy permits forms and the style sheet. The page has no script, and no page may frame it.
const policy = "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'self'; " +
	"frame-ancestors 'none'"

// protect passes the requests of the user's browser to the page, and refuses all others.
func (s *Server) protect(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		//defence:setup-frames
		h.Set("Content-Security-Policy", policy)
		h.Set("Cache-Control", "no-store")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("X-Content-Type-Options", "nosniff")
		// Not no-referrer, with which browsers send the Origin null with the page's own forms.
		h.Set("Referrer-Policy", "same-origin")
		link, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		switch {
		//defence:setup-user
		case r.Context().Value(foreignKey{}) == true:
		//defence:setup-host
		case r.Host != "127.0.0.1:"+s.port && r.Host != "localhost:"+s.port:
		//defence:setup-origin
		case s.check.Check(r) != nil:
		//defence:setup-link
		case subtle.ConstantTimeCompare([]byte(link), []byte(s.link)) != 1:
		case s.admitBrowser(w, r):
			s.idle.Reset(IdleTime)
			r.Body = http.MaxBytesReader(w, r.Body, maxForm)
			r.URL.Path = "/" + path
			page.ServeHTTP(w, r)
			return
		}
		http.Error(w, "This is not your setup page. A link works in one browser: run codeforge setup again.",
			http.StatusForbidden)
	})
}

// admitBrowser gives the first request the cookie, and reports whether a request is the first or has the cookie.
func (s *Server) admitBrowser(w http.ResponseWriter, r *http.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := r.Cookie(cookieName)
	if err == nil && s.cookie != "" && subtle.ConstantTimeCompare([]byte(c.Value), []byte(s.cookie)) == 1 {
		return true
	}
	//defence:setup-once
	if s.cookie != "" {
		return false
	}
	s.cookie = rand.Text()
	// Browsers send cookies to every port of a host. The random path keeps this one from other servers at 127.0.0.1.
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // not Secure, because loopback has no TLS
		Name: cookieName, Value: s.cookie, Path: "/" + s.link + "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	return true
}

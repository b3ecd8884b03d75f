package upstream

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// deaf responds without reading the body, and parses what follows on the connection as requests, as Python's
// http.server does if a method's handler reads nothing. A following request with a Content-Length consumes that many
// bytes, and its response shows them.
func (s *Server) deaf(w http.ResponseWriter, r *http.Request) {
	hj, ok := w.(http.Hijacker)
	if !ok {
		http.Error(w, "HTTP/1 only", http.StatusBadRequest)
		return
	}
	c, rw, err := hj.Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	for say, in := "first", rw.Reader; ; {
		_, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", len(say), say)
		if err != nil || r.Close {
			return
		}
		if r, err = s.next(in); err != nil {
			return
		}
		body, _ := io.ReadAll(io.LimitReader(r.Body, maxSeenBody))
		say = "chosen " + r.RequestURI + " " + string(body)
		s.add(Seen{At: time.Now(), Trial: r.URL.Query().Get("t"), Host: r.Host, Proto: r.Proto, Method: r.Method, Target: r.RequestURI, Header: r.Header, Body: body})
	}
}

// next reads a request head, which the rest of a line may precede.
func (s *Server) next(in *bufio.Reader) (*http.Request, error) {
	for {
		line, err := in.Peek(4)
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(string(line), "\r\n") {
			return http.ReadRequest(in)
		}
		_, _ = in.Discard(2)
	}
}

package origin

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// server serves keep-alive HTTP/1.1 over TLS from prepared bytes. It understands only the benchmark's requests, because
// on a machine with few processors its own processor time is taken from the proxies.
type server struct {
	tls         *tls.Config
	small       []byte // the whole response
	refused     []byte
	json, noise []byte // bodies, repeated as needed
}

func newServer(cert tls.Certificate) *server {
	s := &server{
		tls: &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}, DynamicRecordSizingDisabled: true,
		},
		json:  records(1 << 20),
		noise: make([]byte, 1<<20),
	}
	_, _ = mathrand.NewChaCha8([32]byte{1}).Read(s.noise)
	// Some 200 bytes that quote the credential, as an echo would.
	text := `{"id":"cus_9s6XKzkNRiz8i3","object":"customer","balance":0,"currency":"eur","email":"jenny@example.com",` +
		`"authorization":"Bearer ` + Credential + `","name":"Jenny Rosen"}` + "\n"
	s.small = append(head("200 OK", "application/json", int64(len(text))), text...)
	s.refused = head("403 Forbidden", "text/plain", 0)
	return s
}

// head is the head of a response. A negative length means chunks.
func head(status, kind string, length int64) []byte {
	framing := "Transfer-Encoding: chunked"
	if length >= 0 {
		framing = "Content-Length: " + strconv.FormatInt(length, 10)
	}
	return []byte("HTTP/1.1 " + status + "\r\nContent-Type: " + kind + "\r\n" + framing + "\r\n\r\n")
}

// serve accepts until the listener fails.
func (s *server) serve(l net.Listener) error {
	for {
		tcp, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer tcp.Close()
			_ = s.talk(tls.Server(tcp, s.tls))
		}()
	}
}

var (
	headEnd = []byte("\r\n\r\n")
	errHead = errors.New("not a request of the benchmark")
)

// talk serves the requests of one connection, which a proxy may keep open as long as the benchmark lasts.
func (s *server) talk(c *tls.Conn) error {
	buf, n := make([]byte, 16<<10), 0
	for {
		end := bytes.Index(buf[:n], headEnd)
		if end < 0 {
			if n == len(buf) {
				return errHead
			}
			m, err := c.Read(buf[n:])
			if err != nil {
				return err
			}
			n += m
			continue
		}
		if err := s.answer(c, buf[:end]); err != nil {
			return err
		}
		n = copy(buf, buf[end+len(headEnd):n])
	}
}

// answer answers one request.
func (s *server) answer(c *tls.Conn, request []byte) error {
	line, fields, _ := bytes.Cut(request, []byte("\r\n"))
	method, rest, _ := bytes.Cut(line, []byte(" "))
	target, _, ok := bytes.Cut(rest, []byte(" "))
	if !ok || string(method) != "GET" {
		return errHead
	}
	path, query, _ := bytes.Cut(target, []byte("?"))
	switch string(path) {
	case "/small":
		answer := s.small
		if !authorized(fields) {
			answer = s.refused
		}
		_, err := c.Write(answer)
		return err
	case "/json":
		return body(c, string(query), "application/json", s.json)
	case "/bytes":
		return body(c, string(query), "application/octet-stream", s.noise)
	case "/events":
		return events(c, string(query))
	}
	return errHead
}

// authorized reports whether the credential arrived.
func authorized(fields []byte) bool {
	for len(fields) > 0 {
		var field []byte
		field, fields, _ = bytes.Cut(fields, []byte("\r\n"))
		if name, value, ok := bytes.Cut(field, []byte(":")); ok && strings.EqualFold(string(name), "Authorization") {
			return string(bytes.TrimSpace(value)) == "Bearer "+Credential
		}
	}
	return false
}

// body sends size= bytes of a repeated text.
func body(c *tls.Conn, query, kind string, text []byte) error {
	q, err := url.ParseQuery(query)
	if err != nil {
		return err
	}
	size, err := strconv.ParseInt(q.Get("size"), 10, 64)
	if err != nil {
		return err
	}
	if _, err = c.Write(head("200 OK", kind, size)); err != nil {
		return err
	}
	for size > 0 {
		n, err := c.Write(text[:min(size, int64(len(text)))])
		if err != nil {
			return err
		}
		size -= int64(n)
	}
	return nil
}

// events sends n= events at the interval every=, each with its sending time in nanoseconds.
func events(c *tls.Conn, query string) error {
	q, err := url.ParseQuery(query)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(q.Get("n"))
	if err != nil {
		return err
	}
	every, err := time.ParseDuration(q.Get("every"))
	if err != nil {
		return err
	}
	if _, err := c.Write(head("200 OK", "text/event-stream", -1)); err != nil {
		return err
	}
	for range n {
		time.Sleep(every)
		event := fmt.Sprintf("data: %d\n\n", time.Now().UnixNano())
		if _, err := fmt.Fprintf(c, "%x\r\n%s\r\n", len(event), event); err != nil {
			return err
		}
	}
	_, err = c.Write([]byte("0\r\n\r\n"))
	return err
}

// Package load is the client of the benchmark. It does as little work per request as HTTP over TLS allows, so that the
// measurement shows what is between the client and the origin.
package load

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/bench/origin"
	"github.com/codeforge-mcp/codeforge/e2e/bench/peer"
)

// Conn is one keep-alive connection. It parses HTTP itself: net/http takes more time per response than a proxy should.
type Conn struct {
	tls  *tls.Conn
	buf  *[16 << 10]byte // unread bytes are buf[r:w]
	r, w int
}

// patience is how long a load may take beyond its planned duration.
const patience = 60 * time.Second

// Dial connects and does a full TLS handshake. The connection has a deadline of d plus patience.
func Dial(ctx context.Context, p *peer.Peer, address string, d time.Duration) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tcp, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	over := tls.Client(tcp, config(p))
	err = over.SetDeadline(time.Now().Add(d + patience))
	if err == nil {
		err = over.HandshakeContext(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", p.Name, err), tcp.Close())
	}
	return &Conn{tls: over, buf: buffers.Get().(*[16 << 10]byte)}, nil
}

var buffers = sync.Pool{New: func() any { return new([16 << 10]byte) }}

// config is the client's TLS configuration: the curves that Deno's rustls offers, and no session resumption.
func config(p *peer.Peer) *tls.Config {
	return &tls.Config{
		ServerName: origin.Host, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12,
		CurvePreferences:   []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384},
		InsecureSkipVerify: true, VerifyConnection: p.Verify, //nolint:gosec // Verify does
	}
}

// Close closes the connection.
func (c *Conn) Close() {
	_ = c.tls.NetConn().Close()
	buffers.Put(c.buf)
	c.buf = nil
}

// Request is the bytes of a GET.
func Request(p *peer.Peer, path string) []byte {
	return []byte("GET " + path + " HTTP/1.1\r\nHost: " + origin.Host + "\r\nAuthorization: " + p.Auth + "\r\nAccept: */*\r\nUser-Agent: bench\r\n\r\n")
}

// Do sends a request and writes the body to w. The status must be 200.
func (c *Conn) Do(request []byte, w io.Writer) error {
	if _, err := c.tls.Write(request); err != nil {
		return err
	}
	head, err := c.until("\r\n\r\n")
	if err != nil {
		return err
	}
	status, length, err := parse(head)
	switch {
	case err != nil:
		return err
	case status != "200":
		return fmt.Errorf("status %s", status)
	case length >= 0:
		return c.copy(w, length)
	}
	for {
		line, err := c.until("\r\n")
		if err != nil {
			return err
		}
		size, err := strconv.ParseInt(string(line[:len(line)-2]), 16, 64)
		if err != nil {
			return err
		}
		if err := c.copy(w, size); err != nil {
			return err
		}
		if end, err := c.until("\r\n"); err != nil || len(end) != 2 {
			return errors.Join(errChunk, err)
		}
		if size == 0 {
			return nil
		}
	}
}

var (
	errHead  = errors.New("not a response head that the benchmark understands")
	errChunk = errors.New("a chunk that does not end where it should, or a trailer")
)

// until returns what comes before and with a separator. The result is valid until the next read.
func (c *Conn) until(separator string) ([]byte, error) {
	for {
		if i := bytes.Index(c.buf[c.r:c.w], []byte(separator)); i >= 0 {
			found := c.buf[c.r : c.r+i+len(separator)]
			c.r += len(found)
			return found, nil
		}
		if err := c.more(); err != nil {
			return nil, err
		}
	}
}

// more reads once.
func (c *Conn) more() error {
	switch {
	case c.r == c.w:
		c.r, c.w = 0, 0
	case c.w == len(c.buf):
		c.r, c.w = 0, copy(c.buf[:], c.buf[c.r:c.w])
	}
	if c.w == len(c.buf) {
		return errHead
	}
	n, err := c.tls.Read(c.buf[c.w:])
	c.w += n
	if n > 0 {
		return nil
	}
	return err
}

// copy writes the next n bytes to w.
func (c *Conn) copy(w io.Writer, n int64) error {
	for n > 0 {
		if c.r == c.w {
			if err := c.more(); err != nil {
				return err
			}
		}
		p := c.buf[c.r:c.w]
		p = p[:min(int64(len(p)), n)]
		if _, err := w.Write(p); err != nil {
			return err
		}
		c.r, n = c.r+len(p), n-int64(len(p))
	}
	return nil
}

// parse returns the status of a response head and the length of its body, -1 for chunks.
func parse(head []byte) (status string, length int64, err error) {
	line, fields, _ := bytes.Cut(head, []byte("\r\n"))
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return "", 0, errHead
	}
	length = -2
	for len(fields) > 0 {
		var field []byte
		field, fields, _ = bytes.Cut(fields, []byte("\r\n"))
		name, value, _ := bytes.Cut(field, []byte(":"))
		switch value = bytes.TrimSpace(value); {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.ParseInt(string(value), 10, 64); err != nil {
				return "", 0, err
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")) && bytes.EqualFold(value, []byte("chunked")):
			length = -1
		}
	}
	if length < -1 {
		return "", 0, errHead
	}
	return string(line[9:12]), length, nil
}

// Verify checks that a peer does the work it is measured for: the credential arrives, and its echo comes back as the
// name.
func Verify(ctx context.Context, p *peer.Peer) error {
	for _, address := range []string{p.Address, p.StreamAddress} {
		c, err := Dial(ctx, p, address, 0)
		if err != nil {
			return err
		}
		var body bytes.Buffer
		err = c.Do(Request(p, "/small"), &body)
		c.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		if p.Process != nil && !p.Echoes && strings.Contains(body.String(), origin.Credential) {
			return fmt.Errorf("%s did not take the credential out of the answer", p.Name)
		}
	}
	return nil
}

// Samples are the times of requests, in seconds, and the total time.
type Samples struct {
	Took    []float64
	Elapsed time.Duration
}

// Rate is requests per second.
func (s Samples) Rate() float64 { return float64(len(s.Took)) / s.Elapsed.Seconds() }

// Keep requests a path over n keep-alive connections for the duration. Each sends its next request after the response
// to the last one. Connections are opened and used before the clock starts and started is called.
func Keep(ctx context.Context, p *peer.Peer, path string, n int, d time.Duration, started func()) (Samples, error) {
	conns := make([]*Conn, n)
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}()
	request := Request(p, path)
	for i := range conns {
		var err error
		if conns[i], err = Dial(ctx, p, p.Address, d); err != nil {
			return Samples{}, err
		}
		if err := conns[i].Do(request, io.Discard); err != nil {
			return Samples{}, fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	started()
	return together(n, d, func(i int) error { return conns[i].Do(request, io.Discard) })
}

// Fresh does the same with a new connection for every request.
func Fresh(ctx context.Context, p *peer.Peer, path string, n int, d time.Duration) (Samples, error) {
	request := Request(p, path)
	return together(n, d, func(int) error {
		c, err := Dial(ctx, p, p.Address, d)
		if err != nil {
			return err
		}
		defer c.Close()
		return c.Do(request, io.Discard)
	})
}

// together calls f repeatedly from n goroutines until the duration is over or a call fails.
func together(n int, d time.Duration, f func(i int) error) (Samples, error) {
	var mu sync.Mutex
	var all Samples
	var failed error
	var wg sync.WaitGroup
	start := time.Now()
	for i := range n {
		wg.Go(func() {
			var took []float64
			var err error
			for last := start; err == nil && time.Since(start) < d; {
				err = f(i)
				now := time.Now()
				took = append(took, now.Sub(last).Seconds())
				last = now
			}
			mu.Lock()
			defer mu.Unlock()
			all.Took = append(all.Took, took...)
			failed = errors.Join(failed, err)
		})
	}
	wg.Wait()
	all.Elapsed = time.Since(start)
	return all, failed
}

// Download fetches one body of size bytes, of the kind "bytes" or "json", and returns the time from the request to its
// end. started is called before the request.
func Download(ctx context.Context, p *peer.Peer, address, kind string, size int64, started func()) (time.Duration, error) {
	c, err := Dial(ctx, p, address, 0)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	var got count
	started()
	start := time.Now()
	if err := c.Do(Request(p, "/"+kind+"?size="+strconv.FormatInt(size, 10)), &got); err != nil {
		return 0, fmt.Errorf("%s: %w", p.Name, err)
	}
	took := time.Since(start)
	if int64(got) != size {
		return 0, fmt.Errorf("%s: %d bytes arrived of %d", p.Name, got, size)
	}
	return took, nil
}

// count counts the bytes written to it.
type count int64

// Write implements io.Writer.
func (c *count) Write(p []byte) (int, error) {
	*c += count(len(p))
	return len(p), nil
}

// Events reads n events, sent at the interval every, and returns the age of each at its arrival, in seconds.
func Events(ctx context.Context, p *peer.Peer, n int, every time.Duration) ([]float64, error) {
	c, err := Dial(ctx, p, p.Address, time.Duration(n)*every)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var ages ages
	err = c.Do(Request(p, fmt.Sprintf("/events?n=%d&every=%s", n, every)), &ages)
	if err == nil && len(ages.seconds) != n {
		err = fmt.Errorf("%d events arrived of %d", len(ages.seconds), n)
	}
	return ages.seconds, err
}

// ages reads events and records the age of each.
type ages struct {
	rest    []byte
	seconds []float64
}

// Write implements io.Writer.
func (a *ages) Write(p []byte) (int, error) {
	now := time.Now().UnixNano()
	a.rest = append(a.rest, p...)
	for {
		event, rest, ok := bytes.Cut(a.rest, []byte("\n\n"))
		if !ok {
			return len(p), nil
		}
		a.rest = rest
		sent, err := strconv.ParseInt(strings.TrimPrefix(string(event), "data: "), 10, 64)
		if err != nil {
			return 0, err
		}
		a.seconds = append(a.seconds, float64(now-sent)/1e9)
	}
}

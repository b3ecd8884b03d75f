// Package strict lets through only HTTP/1 requests that every parser reads the same way.
//
// Threat: request smuggling. net/http, which reads the requests next, is lenient in places (bare LF, folded lines,
// Content-Length next to chunked, absolute targets). What is refused here is replaced by a harmless request, so that
// the refusal is answered, logged and recorded as every other.
package strict

import (
	"bytes"
	"errors"
	"net"
	"sync/atomic"

	"github.com/codeforge-mcp/codeforge/internal/disarm"
)

// The bounds of HTTP/1 requests, in bytes.
const (
	// MaxHead bounds a request's line and fields.
	MaxHead      = 64 << 10
	maxTrailer   = 8 << 10
	maxChunkLine = 16 + 2
	firstBuffer  = 4 << 10
)

// state is where in the stream of requests the next byte belongs.
type state uint8

const (
	stateHead      state = iota
	stateFixed           // a body of known length
	stateChunkSize       // a chunk's size line
	stateChunkData       // a chunk's bytes and the CRLF behind them
	stateTrailer         // what follows the last chunk
	stateEnd             // after a request that was refused: no further byte counts
	stateRaw             // after a change of protocol: nothing is checked
)

// errFraming breaks off a body whose chunks are malformed.
var errFraming = errors.New("malformed chunked body")

// refusedHead is what the HTTP server reads in place of a refused request, so that the refusal is answered, logged and
// recorded as every other. That it stands for a refused one is known from Conn.bad, never from its bytes.
const refusedHead = "GET / HTTP/1.1\r\nHost: refused.invalid\r\nConnection: close\r\n\r\n"

// badRequest is the refused request: the at-th of its connection.
type badRequest struct {
	at  int
	err error
}

// Conn is a connection whose requests are checked as they are read. It hands on at most one request at a time: what
// follows is looked at when the server reads on.
type Conn struct {
	net.Conn // plain, or TLS

	state state
	left  int64  // bytes left of a fixed body or of a chunk with its CRLF
	heads int    // heads handed on
	buf   []byte // read and not handed on
	store []byte // the memory that buf lies in
	pass  int    // bytes at the start of buf that were checked
	bad   atomic.Pointer[badRequest]
}

// New checks what is read from c.
func New(c net.Conn) *Conn {
	s := &Conn{Conn: c}
	if disarm.Off("strict") {
		s.Raw()
	}
	return s
}

// Bad says why the n-th request of the connection was refused, counted from 1; nil is good. It may be called while the
// server reads.
func (s *Conn) Bad(n int) error {
	if b := s.bad.Load(); b != nil && b.at == n {
		return b.err
	}
	return nil
}

// Raw ends the check, for a connection that was hijacked after a change of protocol. Nobody may be reading.
func (s *Conn) Raw() { s.state = stateRaw }

// Read hands on checked bytes.
func (s *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for s.pass == 0 {
		switch s.state {
		case stateEnd:
			// An EOF now would tell the server that the client is gone before it was answered.
			if _, err := s.Conn.Read(make([]byte, firstBuffer)); err != nil {
				return 0, err
			}
		case stateRaw:
			if len(s.buf) == 0 {
				return s.Conn.Read(p)
			}
			s.pass = len(s.buf)
		case stateFixed:
			if len(s.buf) == 0 { // straight into the reader's buffer
				n, err := s.Conn.Read(p[:min(int64(len(p)), s.left)])
				s.count(n)
				return n, err
			}
			s.pass = int(min(int64(len(s.buf)), s.left))
			s.count(s.pass)
		default:
			if err := s.step(); err != nil {
				return 0, err
			}
		}
	}
	n := copy(p, s.buf[:s.pass])
	s.pass -= n
	s.buf = s.buf[n:]
	return n, nil
}

// count takes n bytes off a fixed body.
func (s *Conn) count(n int) {
	s.left -= int64(n)
	if s.left == 0 {
		s.state = stateHead
	}
}

// step checks the next piece of a head or of a chunked body, reading more as needed.
func (s *Conn) step() error {
	var n int
	var err error
	switch s.state {
	case stateHead:
		n, err = s.head()
	case stateChunkSize:
		n, err = s.chunkSize()
	case stateChunkData:
		n, err = s.chunkData()
	case stateTrailer:
		n, err = s.trailer()
	}
	s.pass = n
	return err
}

// head checks a whole request head.
func (s *Conn) head() (int, error) {
	end, err := s.find([]byte("\r\n\r\n"), MaxHead)
	if errors.Is(err, errTooLong) {
		return s.refuse(errHeadTooLong)
	}
	if err != nil {
		return 0, err
	}
	h, err := parseHead(s.buf[:end])
	if err != nil {
		return s.refuse(err)
	}
	s.heads++
	switch {
	case h.chunked:
		s.state = stateChunkSize
	case h.length > 0:
		s.state, s.left = stateFixed, h.length
	}
	return end, nil
}

// refuse puts refusedHead in the place of the request and of everything behind it.
func (s *Conn) refuse(why error) (int, error) {
	s.heads++
	s.bad.Store(&badRequest{at: s.heads, err: why})
	s.state = stateEnd
	s.buf = []byte(refusedHead)
	return len(s.buf), nil
}

// chunkSize checks a size line: hexadecimal digits and CRLF, no extension.
func (s *Conn) chunkSize() (int, error) {
	end, err := s.find([]byte("\r\n"), maxChunkLine)
	if errors.Is(err, errTooLong) {
		return 0, errFraming
	}
	if err != nil {
		return 0, err
	}
	digits := s.buf[:end-2]
	var size int64
	for _, b := range digits {
		d := unhex(b)
		if d < 0 || size > 1<<55 {
			return 0, errFraming
		}
		size = size<<4 | int64(d)
	}
	switch {
	case len(digits) == 0:
		return 0, errFraming
	case size == 0:
		s.state = stateTrailer
	default:
		s.state, s.left = stateChunkData, size+2
	}
	return end, nil
}

// chunkData hands on what there is of a chunk, and checks the CRLF behind it.
func (s *Conn) chunkData() (int, error) {
	if s.left > 2 {
		if len(s.buf) == 0 {
			if err := s.more(); err != nil {
				return 0, err
			}
		}
		n := int(min(int64(len(s.buf)), s.left-2))
		s.left -= int64(n)
		return n, nil
	}
	for len(s.buf) < 2 {
		if err := s.more(); err != nil {
			return 0, err
		}
	}
	if s.buf[0] != '\r' || s.buf[1] != '\n' {
		return 0, errFraming
	}
	s.state = stateChunkSize
	return 2, nil
}

// trailer checks what follows the last chunk: header lines and an empty line.
func (s *Conn) trailer() (int, error) {
	for len(s.buf) < 2 {
		if err := s.more(); err != nil {
			return 0, err
		}
	}
	if s.buf[0] == '\r' && s.buf[1] == '\n' {
		s.state = stateHead
		return 2, nil
	}
	end, err := s.find([]byte("\r\n\r\n"), maxTrailer)
	if errors.Is(err, errTooLong) {
		return 0, errFraming
	}
	if err != nil {
		return 0, err
	}
	if err := parseTrailer(s.buf[:end]); err != nil {
		return 0, errFraming
	}
	s.state = stateHead
	return end, nil
}

var errTooLong = errors.New("too long")

// find reads until the separator is there and gives the index behind it. errTooLong when limit bytes do not hold it.
func (s *Conn) find(sep []byte, limit int) (int, error) {
	from := 0
	for {
		window := s.buf[:min(len(s.buf), limit)]
		if i := bytes.Index(window[from:], sep); i >= 0 {
			return from + i + len(sep), nil
		}
		if len(window) >= limit {
			return 0, errTooLong
		}
		from = max(0, len(window)-len(sep)+1)
		if err := s.more(); err != nil {
			return 0, err
		}
	}
}

// more reads at least one byte. An error is not remembered: it may be a deadline that the server moves.
func (s *Conn) more() error {
	if len(s.buf) == 0 {
		s.buf = s.store[:0]
	}
	if cap(s.buf)-len(s.buf) < firstBuffer/2 {
		s.store = make([]byte, max(firstBuffer, 2*len(s.buf)))
		s.buf = s.store[:copy(s.store, s.buf)]
	}
	n, err := s.Conn.Read(s.buf[len(s.buf):cap(s.buf)])
	s.buf = s.buf[:len(s.buf)+n]
	if n > 0 {
		return nil
	}
	return err
}

func unhex(b byte) int {
	switch {
	case '0' <= b && b <= '9':
		return int(b - '0')
	case 'a' <= b && b <= 'f':
		return int(b-'a') + 10
	case 'A' <= b && b <= 'F':
		return int(b-'A') + 10
	}
	return -1
}

// Package strict passes only HTTP/1 requests that every parser reads in the same way.
//
// Threat: request smuggling. net/http, which reads the requests next, is lenient in places (bare LF, folded lines,
// Content-Length next to chunked, absolute targets). Contract: a harmless request replaces a refused one, so that the
// refusal is answered, logged and recorded like every other.
//
// Conn follows the requests of a connection and the framing of their bodies; head.go checks the heads.
package strict

import (
	"bytes"
	"errors"
	"net"
	"strconv"
	"sync/atomic"
)

// The bounds of HTTP/1 requests, in bytes.
const (
	// MaxHead bounds the request line and the fields together.
	MaxHead      = 64 << 10
	maxTrailer   = 8 << 10
	maxChunkLine = 16 + 2
	firstBuffer  = 4 << 10
)

// connState is the part of the request stream to which the next byte belongs.
type connState uint8

const (
	stateHead      connState = iota
	stateFixed               // a body of known length
	stateChunkSize           // a chunk's size line
	stateChunkData           // a chunk's bytes and the CRLF after them
	stateTrailer             // the fields after the last chunk, and the empty line
	stateEnd                 // after a refused request: further bytes are ignored
	stateRaw                 // after an upgrade: nothing is checked
)

// errFraming ends a body with malformed chunks.
var errFraming = errors.New("malformed chunked body")

// refusedHead replaces a refused request for the HTTP server, so that the refusal is answered, logged and recorded like
// every other. Only Conn.bad marks the request as refused, never its bytes.
const refusedHead = "GET / HTTP/1.1\r\nHost: refused.invalid\r\nConnection: close\r\n\r\n"

// badRequest is the refused request: the at-th request of the connection.
type badRequest struct {
	at  int
	err error
}

// Conn is a connection whose requests are checked while they are read. It passes on at most one request at a time. The
// next request is checked when the server reads on.
type Conn struct {
	net.Conn // plain, or TLS

	state connState
	left  int64  // the remaining bytes of a fixed body, or of a chunk with its CRLF
	heads int    // the number of heads passed on
	buf   []byte // read and not passed on
	store []byte // the memory that buf is part of
	pass  int    // the number of checked bytes at the start of buf
	bad   atomic.Pointer[badRequest]
}

// New returns a connection that checks the bytes read from c.
func New(c net.Conn) *Conn {
	//defence:strict instead &Conn{Conn: c, state: stateRaw}
	return &Conn{Conn: c}
}

// FindRefusal returns why the n-th request of the connection was refused, counted from 1, or nil. It may be called
// while the server reads.
func (s *Conn) FindRefusal(n int) error {
	if b := s.bad.Load(); b != nil && b.at == n {
		return b.err
	}
	return nil
}

// StopChecks ends the checks, for a connection that was hijacked after an upgrade. No Read may be in progress.
func (s *Conn) StopChecks() { s.state = stateRaw }

// Read passes on checked bytes.
func (s *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for s.pass == 0 {
		switch s.state {
		case stateEnd:
			// An EOF now would mean to the server that the client has disconnected before the answer.
			if _, err := s.Conn.Read(make([]byte, firstBuffer)); err != nil {
				return 0, err
			}
		case stateRaw:
			if len(s.buf) == 0 {
				return s.Conn.Read(p)
			}
			s.pass = len(s.buf)
		case stateFixed:
			if len(s.buf) == 0 { // directly into the reader's buffer
				// Not beyond the body: the next head must be checked first.
				n, err := s.Conn.Read(p[:min(int64(len(p)), s.left)])
				s.countBody(n)
				return n, err
			}
			s.pass = int(min(int64(len(s.buf)), s.left))
			s.countBody(s.pass)
		default:
			if err := s.checkPiece(); err != nil {
				return 0, err
			}
		}
	}
	n := copy(p, s.buf[:s.pass])
	s.pass -= n
	s.buf = s.buf[n:]
	return n, nil
}

// countBody subtracts n bytes from a fixed body.
func (s *Conn) countBody(n int) {
	s.left -= int64(n)
	if s.left == 0 {
		s.state = stateHead
	}
}

// checkPiece checks the next piece of a head or of a chunked body. It reads more bytes if necessary.
func (s *Conn) checkPiece() error {
	var n int
	var err error
	switch s.state {
	case stateHead:
		n, err = s.checkRequestHead()
	case stateChunkSize:
		n, err = s.checkChunkSize()
	case stateChunkData:
		n, err = s.checkChunkData()
	case stateTrailer:
		n, err = s.checkTrailer()
	}
	s.pass = n
	return err
}

func (s *Conn) checkRequestHead() (int, error) {
	end, err := s.readUntil([]byte("\r\n\r\n"), MaxHead, errHeadTooLong)
	if errors.Is(err, errHeadTooLong) {
		// net/http has a limit too, but would answer without a record of the refusal.
		return s.refuseRequest(err)
	}
	if err != nil {
		return 0, err
	}
	h, err := parseHead(s.buf[:end])
	if err != nil {
		return s.refuseRequest(err)
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

// refuseRequest replaces the request, and everything after it, by refusedHead.
func (s *Conn) refuseRequest(why error) (int, error) {
	s.heads++
	s.bad.Store(&badRequest{at: s.heads, err: why})
	// The end of the refused request is unknown, so the connection cannot be used further.
	s.state = stateEnd
	s.buf = []byte(refusedHead)
	return len(s.buf), nil
}

// checkChunkSize checks a size line: hexadecimal digits and CRLF, without an extension.
func (s *Conn) checkChunkSize() (int, error) {
	end, err := s.readUntil([]byte("\r\n"), maxChunkLine, errFraming)
	if err != nil {
		return 0, err
	}
	// No chunk extension passes: servers that accept a bare LF in one end its line elsewhere (see CVE-2025-22871).
	size, err := strconv.ParseUint(string(s.buf[:end-2]), 16, 59)
	if err != nil {
		return 0, errFraming
	}
	if s.state, s.left = stateChunkData, int64(size)+2; size == 0 {
		s.state = stateTrailer
	}
	return end, nil
}

// checkChunkData passes on the arrived bytes of a chunk, and checks the CRLF after the chunk.
func (s *Conn) checkChunkData() (int, error) {
	if s.left > 2 {
		if err := s.readAtLeast(1); err != nil {
			return 0, err
		}
		// n leaves out the CRLF after the chunk: checkChunkData must check these two bytes before they pass.
		n := int(min(int64(len(s.buf)), s.left-2))
		s.left -= int64(n)
		return n, nil
	}
	if err := s.readAtLeast(2); err != nil {
		return 0, err
	}
	if s.buf[0] != '\r' || s.buf[1] != '\n' {
		return 0, errFraming
	}
	s.state = stateChunkSize
	return 2, nil
}

// checkTrailer checks the text after the last chunk: header lines and an empty line.
func (s *Conn) checkTrailer() (int, error) {
	if err := s.readAtLeast(2); err != nil {
		return 0, err
	}
	// Without trailers one CRLF ends the body. The search below would continue into a pipelined request.
	if s.buf[0] == '\r' && s.buf[1] == '\n' {
		s.state = stateHead
		return 2, nil
	}
	end, err := s.readUntil([]byte("\r\n\r\n"), maxTrailer, errFraming)
	if err != nil {
		return 0, err
	}
	if err := parseTrailer(s.buf[:end]); err != nil {
		return 0, errFraming
	}
	s.state = stateHead
	return end, nil
}

// readUntil reads until it finds the separator. It returns the index after the separator, or tooLong if the separator
// is not within limit bytes.
func (s *Conn) readUntil(sep []byte, limit int, tooLong error) (int, error) {
	from := 0
	for {
		window := s.buf[:min(len(s.buf), limit)]
		if i := bytes.Index(window[from:], sep); i >= 0 {
			return from + i + len(sep), nil
		}
		if len(window) >= limit {
			return 0, tooLong
		}
		// The separator may be split over two reads.
		from = max(0, len(window)-len(sep)+1)
		if err := s.readMore(); err != nil {
			return 0, err
		}
	}
}

// readAtLeast reads until buf has n bytes.
func (s *Conn) readAtLeast(n int) (err error) {
	for err == nil && len(s.buf) < n {
		err = s.readMore()
	}
	return err
}

// readMore reads at least one byte. Errors are not sticky: an error may be a deadline that the server extends.
func (s *Conn) readMore() error {
	if len(s.buf) == 0 {
		// All bytes were passed on: use the memory again from its beginning.
		s.buf = s.store[:0]
	}
	// Most heads fit into the first buffer; a longer one grows it step by step.
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

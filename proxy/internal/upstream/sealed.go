package upstream

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// errCut is the end of a TLS connection that TLS did not announce.
var errCut = errors.New("the connection ended without a closing alert")

// sealed is a connection that, once TLS is spoken over it, does not end by itself: io.EOF below TLS is an error.
//
// Threat: an answer without a length ends with its connection, and anybody on the way can close one. crypto/tls takes
// that for an end if it comes between two records (RFC 8446, 6.1, says that it is none).
//
// It also reports that writing failed only when it has been read to its end: an upstream that refuses a long body
// answers and hangs up, and net/http forgets an answer that it reads after such a report.
type sealed struct {
	net.Conn
	tls  atomic.Bool
	over chan struct{} // closed at the end of reading, or by Close
	end  func()        // closes over
}

// answerTime is how long a connection may be read on when writing has failed.
const answerTime = 5 * time.Second

func seal(c net.Conn) *sealed {
	s := &sealed{Conn: c, over: make(chan struct{})}
	s.end = sync.OnceFunc(func() { close(s.over) })
	return s
}

func (s *sealed) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if err != nil {
		s.end()
	}
	if err == io.EOF && s.tls.Load() { //nolint:errorlint // a net.Conn ends with this value itself
		err = errCut
	}
	return n, err
}

// Write implements io.Writer. A handshake may come first, or after a proxy was asked for a tunnel.
func (s *sealed) Write(p []byte) (int, error) {
	if !s.tls.Load() && len(p) > 2 && p[0] == 0x16 && p[1] == 3 {
		s.tls.Store(true)
	}
	n, err := s.Conn.Write(p)
	if err != nil {
		timer := time.NewTimer(answerTime)
		defer timer.Stop()
		select {
		case <-s.over:
		case <-timer.C:
		}
	}
	return n, err
}

func (s *sealed) Close() error {
	s.end()
	return s.Conn.Close()
}

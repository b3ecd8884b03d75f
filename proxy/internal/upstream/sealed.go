package upstream

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// errCut is the error for a TLS connection that ended without a close_notify alert.
var errCut = errors.New("the connection ended without a closing alert")

// sealedConn is a connection on which io.EOF below TLS is an error.
//
// Threat: a response without a length ends with its connection, and anyone on the network path can close a connection.
// If that happens between two records, crypto/tls reports a regular end (against RFC 8446, section 6.1).
//
// A sealed connection also delays a write error until the connection was read to its end. An upstream that refuses a
// long body answers and hangs up. net/http drops an answer that it reads after a write error.
type sealedConn struct {
	net.Conn
	tls  atomic.Bool
	over chan struct{} // closed at the end of reading, or by Close
	end  func()        // closes over
}

// answerTime is the time to read an answer after a failed write.
const answerTime = 5 * time.Second

func sealConn(c net.Conn) *sealedConn {
	s := &sealedConn{Conn: c, over: make(chan struct{})}
	s.end = sync.OnceFunc(func() { close(s.over) })
	return s
}

func (s *sealedConn) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if err != nil {
		s.end()
	}
	if err == io.EOF && s.tls.Load() { //nolint:errorlint // a net.Conn ends with this value itself
		err = errCut
	}
	return n, err
}

// Write implements io.Writer. It detects the start of TLS, which may follow the request for a tunnel.
func (s *sealedConn) Write(p []byte) (int, error) {
	// The first bytes of a TLS record: a handshake, protocol version 3.x (RFC 8446, section 5.1).
	if !s.tls.Load() && len(p) > 2 && p[0] == 0x16 && p[1] == 3 {
		s.tls.Store(true)
	}
	n, err := s.Conn.Write(p)
	if err != nil {
		timer := time.NewTimer(answerTime)
		defer timer.Stop()
		select {
		// The reader has the answer, or the connection has ended.
		case <-s.over:
		case <-timer.C:
		}
	}
	return n, err
}

func (s *sealedConn) Close() error {
	s.end()
	return s.Conn.Close()
}

package upstream

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
)

// errCut is the end of a TLS connection that TLS did not announce.
var errCut = errors.New("the connection ended without a closing alert")

// sealed is a connection that, once TLS is spoken over it, does not end by itself: io.EOF below TLS is an error.
//
// Threat: an answer without a length ends with its connection, and anybody on the way can close one. crypto/tls takes
// that for an end if it comes between two records (RFC 8446, 6.1, says that it is none).
type sealed struct {
	net.Conn
	tls atomic.Bool
}

func (s *sealed) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
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
	return s.Conn.Write(p)
}

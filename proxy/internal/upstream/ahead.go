package upstream

import (
	"net"
	"sync"
)

// The sizes of reads from a connection, in bytes. TLS reads the head and the body of a record separately, which would
// take two system calls for every 16 KiB. If bodies arrive faster than they are read, larger reads wake fewer threads.
const (
	aheadSize = 32 << 10
	bulkSize  = 256 << 10
)

var bulkBuffers = sync.Pool{New: func() any { return new([bulkSize]byte) }}

// aheadConn is a connection that is read in large pieces.
type aheadConn struct {
	net.Conn
	own  []byte          // aheadSize
	bulk *[bulkSize]byte // used instead of own while every read fills the buffer
	have []byte          // the bytes that were read and not passed on
	last int             // the size of the last read
}

func (a *aheadConn) Read(p []byte) (int, error) {
	if len(a.have) == 0 {
		buf := a.nextBuffer()
		n, err := a.Conn.Read(buf)
		a.last, a.have = n, buf[:n]
		// An error beside bytes may be dropped, because the next read returns it again.
		if n == 0 {
			return 0, err
		}
	}
	n := copy(p, a.have)
	a.have = a.have[n:]
	return n, nil
}

// nextBuffer returns the buffer for the next read. All bytes of the previous read must have been passed on.
func (a *aheadConn) nextBuffer() []byte {
	switch {
	case a.own == nil:
		a.own = make([]byte, aheadSize)
	// A full read means that bytes arrive faster than they are read.
	case a.bulk == nil && a.last == aheadSize:
		a.bulk = bulkBuffers.Get().(*[bulkSize]byte)
	case a.bulk != nil && a.last < aheadSize:
		bulkBuffers.Put(a.bulk)
		a.bulk = nil
	}
	if a.bulk != nil {
		return a.bulk[:]
	}
	return a.own
}

package upstream

import (
	"net"
	"sync"
)

// What is read from a connection at once, in bytes. TLS asks for a record's head and body apart, which would take two
// system calls for every 16 KiB; and where bodies come faster than they are read, larger pieces wake fewer threads.
const (
	aheadSize = 32 << 10
	bulkSize  = 128 << 10
)

var bulks = sync.Pool{New: func() any { return new([bulkSize]byte) }}

// ahead is a connection that is read in large pieces.
type ahead struct {
	net.Conn
	own  []byte          // aheadSize
	bulk *[bulkSize]byte // in its place while that is filled by every read
	have []byte          // what was read and not handed on
	last int             // how much the last read gave
}

// Read implements io.Reader.
func (a *ahead) Read(p []byte) (int, error) {
	if len(a.have) == 0 {
		buf := a.buffer()
		if len(p) >= len(buf) {
			return a.Conn.Read(p)
		}
		n, err := a.Conn.Read(buf)
		a.last, a.have = n, buf[:n]
		if n == 0 {
			return 0, err
		}
	}
	n := copy(p, a.have)
	a.have = a.have[n:]
	return n, nil
}

// buffer is where to read to next. Nothing of what was read before must be left.
func (a *ahead) buffer() []byte {
	switch {
	case a.own == nil:
		a.own = make([]byte, aheadSize)
	case a.bulk == nil && a.last == aheadSize:
		a.bulk = bulks.Get().(*[bulkSize]byte)
	case a.bulk != nil && a.last < aheadSize:
		bulks.Put(a.bulk)
		a.bulk = nil
	}
	if a.bulk != nil {
		return a.bulk[:]
	}
	return a.own
}

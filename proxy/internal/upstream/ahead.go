package upstream

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// How many bytes are read from a connection at once. TLS reads a record's head and body separately, which would take
// two system calls for every 16 KiB.
const (
	aheadSize = 32 << 10
	bulkSize  = 128 << 10
)

// While bodies arrive fast, the kernel announces bytes only once there are lowWater of them: else every packet wakes a
// thread. bulkTime is how long fewer may wait: short compared with any network.
const (
	lowWater = bulkSize / 2
	bulkTime = time.Millisecond
)

var bulks = sync.Pool{New: func() any { return new([bulkSize]byte) }}

// ahead is a connection that is read in large pieces. Its read deadline belongs to it alone.
type ahead struct {
	net.Conn
	own  []byte          // aheadSize
	bulk *[bulkSize]byte // used instead from when a read fills own until nothing has come for bulkTime
	have []byte          // what was read and not passed on
	full bool            // the last read filled own
}

func (a *ahead) Read(p []byte) (int, error) {
	if len(a.have) == 0 {
		if a.bulk == nil && a.full {
			a.hurry()
		}
		if err := a.more(); len(a.have) == 0 {
			return 0, err
		}
	}
	n := copy(p, a.have)
	a.have = a.have[n:]
	return n, nil
}

// more reads once. Everything read before must have been passed on.
func (a *ahead) more() error {
	if a.bulk != nil {
		_ = a.SetReadDeadline(time.Now().Add(bulkTime))
		n, err := a.Conn.Read(a.bulk[:])
		a.have = a.bulk[:n]
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		a.relax()
	}
	if a.own == nil {
		a.own = make([]byte, aheadSize)
	}
	n, err := a.Conn.Read(a.own)
	a.have, a.full = a.own[:n], n == aheadSize
	return err
}

// hurry begins to read in larger pieces.
func (a *ahead) hurry() {
	a.bulk = bulks.Get().(*[bulkSize]byte)
	a.announce(lowWater)
}

// relax returns to small pieces, which arrive as they come.
func (a *ahead) relax() {
	bulks.Put(a.bulk)
	a.bulk = nil
	a.announce(1)
	_ = a.SetReadDeadline(time.Time{})
}

// announce sets how many bytes must have arrived before a read that waits for them is woken. It changes nothing on a
// connection that is no socket, where a read is woken by any.
func (a *ahead) announce(n int) {
	s, ok := a.Conn.(*sealed)
	if !ok {
		return
	}
	socket, ok := s.Conn.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, n) })
	}
}

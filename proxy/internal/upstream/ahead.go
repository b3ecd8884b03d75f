package upstream

import "net"

// aheadSize is what is read from a connection at once. TLS asks for a record's head and body apart, which would take
// two system calls for every 16 KiB.
const aheadSize = 32 << 10

// ahead is a connection that is read in large pieces.
type ahead struct {
	net.Conn
	buf  []byte
	r, w int
}

// Read implements io.Reader.
func (a *ahead) Read(p []byte) (int, error) {
	if a.r == a.w {
		if len(p) >= aheadSize {
			return a.Conn.Read(p)
		}
		if a.buf == nil {
			a.buf = make([]byte, aheadSize)
		}
		n, err := a.Conn.Read(a.buf)
		a.r, a.w = 0, n
		if n == 0 {
			return 0, err
		}
	}
	n := copy(p, a.buf[a.r:a.w])
	a.r += n
	return n, nil
}

package upstream

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/iotest"
)

type source struct {
	net.Conn
	r io.Reader
}

func (s source) Read(p []byte) (int, error) { return s.r.Read(p) }

// TestAhead: byte for byte what the connection has, and its error behind it, whatever is asked for.
func TestAhead(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 2*aheadSize/10)
	gone := errors.New("gone")
	for _, size := range []int{5, 4096, aheadSize} {
		for _, wrap := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.HalfReader, iotest.DataErrReader} {
			a := &ahead{Conn: source{r: wrap(io.MultiReader(bytes.NewReader(data), iotest.ErrReader(gone)))}}
			var got []byte
			var err error
			for err == nil {
				p := make([]byte, size)
				var n int
				n, err = a.Read(p)
				got = append(got, p[:n]...)
			}
			if !bytes.Equal(got, data) || !errors.Is(err, gone) {
				t.Errorf("size %d: %d bytes, %v", size, len(got), err)
			}
		}
	}
}

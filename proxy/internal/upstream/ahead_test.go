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

// TestAhead: it returns every byte of the connection and then its error, whatever the sizes of the reads.
func TestAhead(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 2*aheadSize/10)
	gone := errors.New("gone")
	for _, size := range []int{5, 4096, aheadSize} {
		for _, wrap := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.HalfReader, iotest.DataErrReader} {
			a := &aheadConn{Conn: source{r: wrap(io.MultiReader(bytes.NewReader(data), iotest.ErrReader(gone)))}}
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

// TestAheadBulk: a body that fills every read is read in larger pieces, and the memory for that is returned afterwards.
func TestAheadBulk(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 4*bulkSize/10)
	var sizes []int
	more := readerFunc(func(p []byte) (int, error) {
		n := copy(p, data)
		if data = data[n:]; len(data) == 0 {
			n = min(n, 1) // the end, and then short messages
		}
		sizes = append(sizes, n)
		return n, nil
	})
	a := &aheadConn{Conn: source{r: more}}
	p := make([]byte, aheadSize+1) // crypto/tls reads into a buffer that once held two records
	for len(data) > 0 {
		if _, err := a.Read(p); err != nil {
			t.Fatal(err)
		}
	}
	if a.bulk == nil || sizes[0] != aheadSize || sizes[1] != bulkSize {
		t.Errorf("reads of %v", sizes)
	}
	data = []byte("ab")
	for len(a.have) > 0 || a.last > 1 {
		if _, err := a.Read(p); err != nil {
			t.Fatal(err)
		}
	}
	data = []byte("c")
	if n, err := a.Read(p); n != 1 || err != nil || p[0] != 'c' || a.bulk != nil {
		t.Errorf("%d bytes, %q, %v; long buffer kept: %v", n, p[:n], err, a.bulk != nil)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

package upstream

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/iotest"
	"time"
)

type source struct {
	net.Conn
	r io.Reader
}

func (s source) Read(p []byte) (int, error) { return s.r.Read(p) }

func (s source) SetReadDeadline(time.Time) error { return nil }

// TestAhead: it returns every byte of the connection and then its error, whatever the sizes of the reads.
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

// TestAheadBulk: a body that fills a read is read in larger pieces, and the memory for that is returned once nothing
// comes for a while.
func TestAheadBulk(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 4*bulkSize/10)
	var sizes []int
	more := readerFunc(func(p []byte) (int, error) {
		if len(data) == 0 {
			return 0, os.ErrDeadlineExceeded
		}
		n := copy(p, data)
		data = data[n:]
		sizes = append(sizes, n)
		return n, nil
	})
	a := &ahead{Conn: source{r: more}}
	p := make([]byte, 1000)
	for len(data) > 0 {
		if _, err := a.Read(p); err != nil {
			t.Fatal(err)
		}
	}
	if a.bulk == nil || sizes[0] != aheadSize || sizes[1] != bulkSize {
		t.Errorf("reads of %v", sizes)
	}
	for len(a.have) > 0 {
		if _, err := a.Read(p); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := a.Read(p); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || a.bulk != nil {
		t.Errorf("%d bytes, %v; long buffer kept: %v", n, err, a.bulk != nil)
	}
}

// TestAheadPause: what has come of a fast body leaves when the rest does not come, and then each byte as it comes.
func TestAheadPause(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	server, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	defer time.AfterFunc(10*time.Second, func() { _ = accepted.Close() }).Stop()
	a := &ahead{Conn: &sealed{Conn: accepted}}
	for _, n := range []int{4 * bulkSize, 4*bulkSize + 1, 4*bulkSize + lowWater - 1, 1, 1, aheadSize} {
		written := make(chan error, 1)
		go func() {
			_, err := server.Write(make([]byte, n))
			written <- err
		}()
		p := make([]byte, 10000)
		for left := n; left > 0; {
			got, err := a.Read(p)
			if err != nil {
				t.Fatalf("%d of %d bytes: %v", n-left, n, err)
			}
			left -= got
		}
		if err := <-written; err != nil {
			t.Fatal(err)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

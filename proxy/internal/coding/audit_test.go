package coding

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

// TestAudit: a body that is audited passes as it is, and what the copy fails with, at its very end too, comes before
// the last byte: a reader that knows the length never has it all.
func TestAudit(t *testing.T) {
	found := errors.New("found")
	for _, n := range []int{0, 1, 2, 8 << 10, 8<<10 + 1, 100 << 10} {
		text := strings.Repeat("x", n)
		for name, source := range map[string]func(io.Reader) io.Reader{
			"as it is": func(r io.Reader) io.Reader { return r }, "by the byte": iotest.OneByteReader, "the end with the data": iotest.DataErrReader,
		} {
			for _, bad := range []bool{false, true} {
				b := NewBody(io.NopCloser(source(strings.NewReader(text))))
				var copied strings.Builder
				b.AddWatcher(func(c *Body) {
					c.AddReader(func(r io.Reader) io.Reader {
						return readerFunc(func(p []byte) (int, error) {
							k, err := r.Read(p)
							copied.Write(p[:k])
							if errors.Is(err, io.EOF) && bad {
								err = found
							}
							return k, err
						})
					})
				})
				var got bytes.Buffer
				_, err := got.ReadFrom(b)
				_ = b.Close()
				switch {
				case copied.String() != text:
					t.Errorf("%d %s: the copy has %d bytes", n, name, copied.Len())
				case !bad && (err != nil || got.String() != text):
					t.Errorf("%d %s: %d bytes, %v", n, name, got.Len(), err)
				case bad && (!errors.Is(err, found) || n > 0 && got.Len() >= n):
					t.Errorf("%d %s: %d bytes and %v", n, name, got.Len(), err)
				}
			}
		}
	}
	b := NewBody(io.NopCloser(strings.NewReader(strings.Repeat("x", 100<<10))))
	b.AddWatcher(func(*Body) {})
	_, _ = b.Read(make([]byte, 10))
	_ = b.Close() // waits for the copy
	broken := NewBody(io.NopCloser(io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(found))))
	broken.AddWatcher(func(*Body) {})
	if _, err := io.ReadAll(broken); !errors.Is(err, found) {
		t.Errorf("a body that breaks off: %v", err)
	}
}

// TestReleaseBody: the readers of a body stop, also below a split, and its source stays open. A body that is being read
// keeps them.
func TestReleaseBody(t *testing.T) {
	ReleaseBody(nil)
	ReleaseBody(&http.Request{Body: http.NoBody})
	source := &closable{Reader: strings.NewReader("text")}
	req := &http.Request{Body: source}
	ended := make(chan error, 1)
	watch := func(c *Body) {
		c.AddReader(func(r io.Reader) io.Reader {
			return readerFunc(func(p []byte) (int, error) {
				n, err := r.Read(p)
				if err != nil {
					ended <- err
				}
				return n, err
			})
		})
	}
	b := BodyOf(req)
	b.AddWatcher(watch)
	below := b.Split()
	b.mu.Lock()
	ReleaseBody(req) // as if Read waited
	b.mu.Unlock()
	if len(below.stops) != 1 {
		t.Fatal("a body that is being read was released")
	}
	ReleaseBody(req)
	if err := <-ended; err == nil || source.closed {
		t.Errorf("the watcher ended with %v; the source is closed: %t", err, source.closed)
	}
	if n, err := req.Body.Read(make([]byte, 4)); n > 0 || err == nil {
		t.Errorf("afterwards: %d bytes, %v", n, err)
	}
}

type closable struct {
	io.Reader
	closed bool
}

func (c *closable) Close() error { c.closed = true; return nil }

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

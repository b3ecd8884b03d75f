package coding

import (
	"bytes"
	"errors"
	"io"
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

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

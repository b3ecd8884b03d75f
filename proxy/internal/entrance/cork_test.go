package entrance

import (
	"bytes"
	"errors"
	"net"
	"testing"
)

// sink is a connection that notes every write.
type sink struct {
	net.Conn
	writes [][]byte
	err    error
}

func (s *sink) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	s.writes = append(s.writes, bytes.Clone(p))
	return len(p), nil
}

// TestCork: what is written while corked leaves at once and whole, in order, however much it is.
func TestCork(t *testing.T) {
	for _, sizes := range [][]int{{1}, {5, 16 << 10, 2}, {maxHeld, 1}, {1, maxHeld}, {1, maxHeld + 1, 3}, {maxHeld + 1}, {}} {
		s := &sink{}
		c := &Conn{Conn: s}
		var want []byte
		c.Cork()
		for i, n := range sizes {
			p := bytes.Repeat([]byte{byte('a' + i)}, n)
			want = append(want, p...)
			if m, err := c.Write(p); m != n || err != nil {
				t.Fatal(m, err)
			}
		}
		if len(want) <= maxHeld && len(s.writes) > 0 {
			t.Errorf("%v: it wrote while corked", sizes)
		}
		if err := c.Uncork(); err != nil {
			t.Error(err)
		}
		if got := bytes.Join(s.writes, nil); !bytes.Equal(got, want) {
			t.Errorf("%v: %d bytes left, want %d", sizes, len(got), len(want))
		}
		if len(want) <= maxHeld && len(s.writes) > 1 {
			t.Errorf("%v: %d writes", sizes, len(s.writes))
		}
		if _, err := c.Write([]byte("x")); err != nil || string(s.writes[len(s.writes)-1]) != "x" {
			t.Errorf("%v: it still holds after Uncork", sizes)
		}
	}
	c := &Conn{Conn: &sink{err: errors.New("gone")}}
	c.Cork()
	_, _ = c.Write([]byte("x"))
	if c.Uncork() == nil {
		t.Error("a failed write is not told")
	}
}

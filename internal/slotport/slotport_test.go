package slotport

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// TestListen: who asks gets the listener that the other end opened, or why there is none, as often as it asks.
func TestListen(t *testing.T) {
	ask, answer, err := NewPair()
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	done := make(chan error, 1)
	go func() {
		done <- ServeRequests(answer, func(id slot.ID, port uint16) (*os.File, error) {
			asked = append(asked, slot.FileName(id, slot.HTTP))
			if port != 3000 {
				return nil, errors.New("address already in use")
			}
			l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
			if err != nil {
				return nil, err
			}
			defer l.Close()
			return l.(*net.TCPListener).File()
		})
	}()
	a, err := NewAsker(ask)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		l, err := a.ListenOn(7, 3000)
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp4", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		got, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, _, _ = got.Close(), c.Close(), l.Close()
		if l, err := a.ListenOn(8, 3001); err == nil || !strings.Contains(err.Error(), "port 3001 of slot 8: address already in use") {
			t.Fatalf("got %v, %v", l, err)
		}
	}
	for _, bad := range []struct {
		id   slot.ID
		port uint16
	}{{-1, 3000}, {slot.Total, 3000}, {0, 0}} {
		if l, err := a.ListenOn(bad.id, bad.port); err == nil {
			t.Errorf("%+v opened %v", bad, l)
		}
	}
	_ = a.conn.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := strings.Join(asked, " "); got != "slot7-http slot8-http slot7-http slot8-http" {
		t.Errorf("asked for %s", got)
	}
}

// TestNobodyAnswers: without the other end there is an error, not a wait.
func TestNobodyAnswers(t *testing.T) {
	ask, answer, err := NewPair()
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Close()
	a, err := NewAsker(ask)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := a.ListenOn(0, 3000); err == nil {
		t.Errorf("got %v", l)
	}
}

func TestParse(t *testing.T) {
	for _, bad := range []string{"", "1", "1 ", " 3000", "1 0", "1 65536", "1 -1", "x 3000", "1 3000 1", "132 3000", "1  3000", "1 3000\n"} {
		if id, port, err := parseRequest(bad); err == nil {
			t.Errorf("%q is %d, %d", bad, id, port)
		}
	}
}

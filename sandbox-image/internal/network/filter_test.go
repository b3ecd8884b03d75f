package network

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// everywhere makes the proxy's end answer at every address and port, as an outside network would, and counts incoming
// datagrams: one that leaves has left even if it is not answered.
func (w *wire) everywhere(t *testing.T) *atomic.Int64 {
	heard := new(atomic.Int64)
	w.in(t, w.proxy, 0, func() error {
		for _, rule := range []string{"-p tcp -j REDIRECT --to-ports 8000", "-p udp -j REDIRECT --to-ports 5354"} {
			out, err := exec.Command("iptables", append(strings.Fields("-t nat -A PREROUTING -i eth1"), strings.Fields(rule)...)...).CombinedOutput() //nolint:gosec // constants
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
		}
		return nil
	})
	w.udp(t, w.proxy, "0.0.0.0:5354", func(p []byte, _ net.Addr) []byte {
		heard.Add(1)
		return p
	})
	return heard
}

// soon is how long a test waits for an answer that must not come.
const soon = 400 * time.Millisecond

// reaches reports whether the address answers in time.
func reaches(network, remote string, within time.Duration) bool {
	c, err := (&net.Dialer{Timeout: within}).Dial(network, remote)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(within))
	_, err = c.Write([]byte("x"))
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	return err == nil
}

// TestNoOtherWayOut makes the outside network answer at every address and port. The sandbox's namespace reaches only what
// the rules allow. With the filter open, the same probes are answered.
// Promise: no-other-way-out
func TestNoOtherWayOut(t *testing.T) {
	w := newWire(t)
	from := w.serve(t)
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	go func() { // who came does not matter here
		for {
			select {
			case <-from:
			case <-done:
				return
			}
		}
	}()
	heard, inside := w.everywhere(t), new(atomic.Int64)
	w.in(t, w.sandbox, 0, func() error { return SetUp(Size{Runs: 2}) })
	w.udp(t, w.sandbox, "0.0.0.0:8081", func([]byte, net.Addr) []byte {
		inside.Add(1)
		return nil
	})
	w.tcp(t, w.sandbox, "0.0.0.0:8080", func(c net.Conn) { _, _ = c.Write([]byte("y")) })
	one := slot.ID(1).UID()
	type question struct {
		outside         bool // asked from outside
		uid             int
		network, remote string
	}
	closed := []question{
		{false, one, "tcp4", "1.1.1.1:53"}, {false, 0, "tcp4", "10.77.0.2:3000"}, {false, slot.ServiceUID, "tcp4", "1.2.3.4:3000"},
		{false, one, "udp4", "1.1.1.1:53"}, {false, one, "udp4", "10.77.0.2:443"}, {false, one, "udp4", "8.8.8.8:443"}, {false, one, "udp4", "10.77.0.2:123"},
		{false, 0, "tcp4", "10.77.0.2:443"}, {false, 0, "udp4", "198.18.0.1:53"}, {false, slot.ServiceUID, "tcp4", "10.77.0.2:443"}, {false, slot.ServiceUID, "udp4", "10.77.0.2:443"},
		{true, 0, "tcp4", "10.77.0.3:8080"},
	}
	knock := func() {
		w.in(t, w.proxy, 0, func() error { reaches("udp4", "10.77.0.3:8081", soon); return nil })
	}
	ask := func(q question, within time.Duration) (answered bool) {
		ns := w.sandbox
		if q.outside {
			ns = w.proxy
		}
		w.in(t, ns, q.uid, func() error { answered = reaches(q.network, q.remote, within); return nil })
		return answered
	}
	open := []question{{false, one, "tcp4", "1.2.3.4:443"}, {false, one, "tcp4", "10.77.0.2:80"}, {false, one, "tcp4", "198.18.0.1:3000"}, {false, one, "udp4", "198.18.0.1:53"}}
	for _, q := range open {
		if !ask(q, patience) {
			t.Errorf("%+v does not reach the proxy", q)
		}
	}
	heard.Store(0)
	for _, q := range closed {
		if ask(q, soon) {
			t.Errorf("%+v is answered", q)
		}
	}
	knock()
	if heard.Load() > 0 || inside.Load() > 0 {
		t.Errorf("%d datagrams left, %d came in", heard.Load(), inside.Load())
	}
	w.in(t, w.sandbox, 0, func() error {
		var errs []error
		for _, args := range []string{"-P OUTPUT ACCEPT", "-P INPUT ACCEPT", "-F " + chainIn, "-F " + chainOut} {
			out, err := exec.Command("iptables", strings.Fields(args)...).CombinedOutput() //nolint:gosec // constants
			if err != nil {
				errs = append(errs, fmt.Errorf("%w: %s", err, out))
			}
		}
		return errors.Join(errs...)
	})
	for _, q := range closed {
		if !ask(q, patience) {
			t.Errorf("%+v is not answered without the filter either: nothing was shown", q)
		}
	}
	if knock(); heard.Load() == 0 || inside.Load() == 0 {
		t.Errorf("without the filter %d datagrams left and %d came in: nothing was shown", heard.Load(), inside.Load())
	}
}

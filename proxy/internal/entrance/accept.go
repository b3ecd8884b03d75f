package entrance

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// acceptor accepts on one listener. Its barrier makes generations sound. A connection that waits in the accept queue
// comes from an earlier run, even if another run has the slot by the time of accept.
type acceptor struct {
	listener Listener
	admit    func(Listener, net.Conn)
	done     chan struct{} // closed when run returns

	mu      sync.Mutex
	stopped bool
	waiting []chan struct{} // requested barriers
}

// acceptConns accepts until stop is called, and then returns nil.
func (a *acceptor) acceptConns() error {
	defer close(a.done)
	for {
		c, err := a.listener.TCP.Accept()
		switch {
		case err == nil:
			a.admit(a.listener, c)
		// barrier interrupts Accept with a deadline in the past.
		case errors.Is(err, os.ErrDeadlineExceeded):
			a.releaseBarriers()
		case errors.Is(err, net.ErrClosed):
			if a.isStopped() {
				return nil
			}
			return err
		default: // out of descriptors, or the client reset a queued connection
			// Without descriptors Accept fails at once, so this loop would use a whole processor.
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// startBarrier makes run empty the accept queue. It closes the returned channel afterwards.
func (a *acceptor) startBarrier() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	// A closed listener has no queue: wait only for the last admission.
	if a.stopped {
		return a.done
	}
	w := make(chan struct{})
	a.waiting = append(a.waiting, w)
	_ = a.listener.TCP.SetDeadline(time.Unix(1, 0))
	// run may return without passing this barrier.
	out := make(chan struct{})
	go func() {
		defer close(out)
		select {
		case <-w:
		case <-a.done:
		}
	}()
	return out
}

// releaseBarriers empties the accept queue and then releases the waiting barriers.
func (a *acceptor) releaseBarriers() {
	a.mu.Lock()
	// Take the barriers first: a barrier that comes later needs a later pass.
	waiting := a.waiting
	a.waiting = nil
	if !a.stopped {
		_ = a.listener.TCP.SetDeadline(time.Time{})
	}
	a.mu.Unlock()
	for _, c := range a.acceptQueued() {
		a.admit(a.listener, c)
	}
	for _, w := range waiting {
		close(w)
	}
}

// acceptQueued accepts without blocking until the queue is empty.
func (a *acceptor) acceptQueued() []net.Conn {
	raw, err := a.listener.TCP.SyscallConn()
	if err != nil {
		return nil
	}
	var out []net.Conn
	// A deadline in the past makes Accept fail although connections are queued, so accept on the descriptor.
	_ = raw.Control(func(fd uintptr) {
		for {
			nfd, _, err := unix.Accept4(int(fd), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			// ECONNABORTED is about one connection that its client has reset; others may wait behind it.
			if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECONNABORTED) {
				continue
			}
			if err != nil {
				return
			}
			f := os.NewFile(uintptr(nfd), "accepted")
			c, err := net.FileConn(f)
			// net.FileConn has duplicated the descriptor.
			_ = f.Close()
			if err == nil {
				out = append(out, c)
			}
		}
	})
	return out
}

func (a *acceptor) isStopped() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stopped
}

// stop closes the listener and waits for run to return.
func (a *acceptor) stop() {
	// stopped comes before Close: otherwise acceptConns reports the closed listener as a failure, which ends Serve.
	a.mu.Lock()
	a.stopped = true
	a.mu.Unlock()
	_ = a.listener.TCP.Close()
	<-a.done
}

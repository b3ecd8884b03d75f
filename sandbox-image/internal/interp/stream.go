package interp

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// stream is the read end of the pipe to which an interpreter prints. Programs print line by line, and waking the reader
// takes longer than everything else that is done with a line. So the reader sleeps after each read, and what is
// printed during that time wakes nobody.
type stream struct {
	fd    int
	room  int             // of the pipe, in bytes
	read  int             // since then, in bytes
	since time.Time       // the beginning of the last pause
	ended <-chan struct{} // closed when no process of the interpreter is left
}

const (
	// pipeRoom is how much an interpreter can print before it has to wait for the reader, if the kernel grants it.
	pipeRoom = 256 << 10
	// pause is how long the reader sleeps, and shortPause the least when so much is printed that the pipe might fill up.
	// With runapi's flushTime it is what a line takes to be seen.
	pause, shortPause = 5 * time.Millisecond, time.Millisecond
	// lookEvery bounds the wait for output, in milliseconds: a process that could not be killed may hold the pipe.
	lookEvery = 1000
)

// newStream takes the read end from Go's poller, which every write to the pipe would wake, whether or not anybody
// reads. It closes f.
func newStream(f *os.File, ended <-chan struct{}) (*stream, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return nil, err
	}
	_ = f.Close()
	s := &stream{fd: fd, ended: ended, since: time.Now()}
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, pipeRoom) // else it has the kernel's 64 KiB
	s.room, _ = unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0)
	return s, nil
}

// Read implements io.Reader. It returns what has been printed since the last time.
func (s *stream) Read(p []byte) (int, error) {
	for {
		over := false // before the read: what was printed up to the end is in the pipe
		select {
		case <-s.ended:
			over = true
		default:
		}
		n, err := unix.Read(s.fd, p)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			if over {
				return 0, io.EOF
			}
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}, lookEvery) //nolint:gosec // a descriptor
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			s.read += n
			return n, nil
		}
	}
}

// rest sleeps between two calls of Read, the first of which filled its buffer or not.
func (s *stream) rest(full bool) {
	if full {
		return
	}
	// At the rate of the last time, half of the pipe is full after this.
	d := pause
	if s.read > 0 {
		d = min(pause, max(shortPause, time.Duration(int64(time.Since(s.since))*int64(s.room/2)/int64(s.read))))
	}
	s.read, s.since = 0, time.Now()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.ended:
	}
}

// Close closes the pipe.
func (s *stream) Close() { _ = unix.Close(s.fd) }

package interp

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// outputStream is the read end of the pipe to which an interpreter prints. Programs print line by line, and waking the
// reader takes longer than handling a line. So the reader sleeps after each read, and output printed during that sleep
// wakes no thread.
type outputStream struct {
	fd    int
	room  int             // size of the pipe, in bytes
	read  int             // bytes read since then
	since time.Time       // the start of the last pause
	ended <-chan struct{} // closed when no process of the interpreter is left
}

const (
	// pipeRoom is the number of bytes that an interpreter can print before it blocks, if the kernel grants them.
	pipeRoom = 256 << 10
	// pause is how long the reader sleeps. If output could fill the pipe, it sleeps less, at least shortPause. Together
	// with sandboxapi's flushTime this is the delay of a line.
	pause, shortPause = 5 * time.Millisecond, time.Millisecond
	// lookEvery bounds a wait for output, in milliseconds, because a process that could not be killed may hold the pipe.
	lookEvery = 1000
)

// newStream takes the read end away from Go's poller, which every write to the pipe would wake even without a reader.
// It closes f.
func newStream(f *os.File, ended <-chan struct{}) (*outputStream, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return nil, err
	}
	_ = f.Close()
	s := &outputStream{fd: fd, ended: ended, since: time.Now()}
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, pipeRoom) // on failure the pipe keeps the kernel's 64 KiB
	s.room, _ = unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0)
	return s, nil
}

// Read implements io.Reader. It returns the output printed since the last call.
func (s *outputStream) Read(p []byte) (int, error) {
	for {
		over := false // check before the read: then all output is in the pipe
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

// pauseReading sleeps between two calls of Read. full means that the first call filled its buffer.
func (s *outputStream) pauseReading(full bool) {
	// A full buffer means that more output waits, and a sleep would block the program.
	if full {
		return
	}
	// At the rate of the last interval, the pipe is half full after d.
	d := pause
	if s.read > 0 {
		d = min(pause, max(shortPause, time.Duration(int64(time.Since(s.since))*int64(s.room/2)/int64(s.read))))
	}
	s.read, s.since = 0, time.Now()
	select {
	case <-time.After(d):
	case <-s.ended:
	}
}

// Close closes the pipe.
func (s *outputStream) Close() { _ = unix.Close(s.fd) }

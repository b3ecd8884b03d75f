// Package attach turns a process's standard input and output into one byte stream to sandboxd. It runs in a long-lived
// docker exec. It copies no bytes: the process passes its two pipes to sandboxd over the socket, and exits when
// sandboxd is done with them. If the input ends, or the process exits, sandboxd ends the runs of the connection.
package attach

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Bytes sent over the socket besides the pipes. No protocol on the socket begins with a zero byte, so the first byte
// shows whether pipes follow.
const (
	passPipes = 0 // to sandboxd, with the pipes attached
	inputEnd  = 1 // from sandboxd: the input has ended
)

// PassPipes passes two pipes to sandboxd and waits until sandboxd is done with them. The end of the input is not an
// error. If sandboxd closes the connection, PassPipes returns an error.
func PassPipes(conn *net.UnixConn, in, out *os.File) error {
	defer conn.Close()
	if !isPipe(in) || !isPipe(out) {
		return errNoPipes
	}
	// os.File.Fd would set the pipes to blocking mode, for sandboxd too.
	rights, err := withDescriptors(in, out, func(in, out int) []byte { return unix.UnixRights(in, out) })
	if err != nil {
		return err
	}
	if _, _, err := conn.WriteMsgUnix([]byte{passPipes}, rights, nil); err != nil {
		return fmt.Errorf("passing the pipes to sandboxd: %w", err)
	}
	var b [1]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil || b[0] != inputEnd {
		return errors.New("sandboxd closed the connection")
	}
	return nil
}

// errNoPipes refuses terminals and files: other processes use them, and sandboxd would read their input.
var errNoPipes = errors.New("attach: standard input and output must be pipes")

func isPipe(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode().Type()&(fs.ModeNamedPipe|fs.ModeSocket) != 0
}

// withDescriptors calls f with the descriptors of two files.
func withDescriptors(a, b *os.File, f func(a, b int) []byte) (result []byte, err error) {
	ra, err := a.SyscallConn()
	if err != nil {
		return nil, err
	}
	rb, err := b.SyscallConn()
	if err != nil {
		return nil, err
	}
	var inner error
	err = ra.Control(func(a uintptr) {
		inner = rb.Control(func(b uintptr) { result = f(int(a), int(b)) })
	})
	return result, errors.Join(err, inner)
}

// Listener accepts connections that may begin by passing two pipes. Such a connection then reads and writes the pipes.
type Listener struct{ net.Listener }

// Accept implements net.Listener. It does not wait for the first byte.
func (l Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		_ = c.Close()
		return nil, errors.New("attach: not a unix socket")
	}
	return &pipedStream{UnixConn: u}, nil
}

// pipedStream is a connection, or the two pipes that came over it.
type pipedStream struct {
	*net.UnixConn

	open  sync.Once
	fail  error
	first []byte   // the first byte, if no pipes came with it
	in    *os.File // nil: read and write the connection
	out   *os.File

	mu        sync.Mutex
	closed    bool
	readUntil time.Time
}

// receivePipes reads the first byte, and the pipes that may come with it.
func (s *pipedStream) receivePipes() {
	var b [1]byte
	oob := make([]byte, unix.CmsgSpace(2*4))
	n, oobn, flags, _, err := s.ReadMsgUnix(b[:], oob)
	if err != nil {
		s.fail = err
		return
	}
	if n == 0 {
		s.fail = io.EOF
		return
	}
	files, err := filesFromControl(oob[:oobn])
	// A truncated message means that the kernel closed descriptors that did not fit (recvmsg(2)).
	if err == nil && flags&unix.MSG_CTRUNC != 0 {
		err = errors.New("attach: too many descriptors")
	}
	if err == nil && len(files) == 0 {
		s.first = b[:]
		return
	}
	if err == nil && (b[0] != passPipes || len(files) != 2) {
		err = errors.New("attach: want two pipes")
	}
	// A file or terminal instead of a pipe would block sandboxd's reads.
	for _, f := range files {
		if err == nil && !isPipe(f) {
			err = errNoPipes
		}
	}
	if err != nil {
		for _, f := range files {
			_ = f.Close()
		}
		s.fail = err
		return
	}
	s.switchToPipes(files[0], files[1])
}

// filesFromControl returns the descriptors in a control message as files.
func filesFromControl(oob []byte) ([]*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue // not SCM_RIGHTS
		}
		for _, fd := range fds {
			if e := unix.SetNonblock(fd, true); e != nil { // so that deadlines and Close work
				err = e
			}
			files = append(files, os.NewFile(uintptr(fd), "stdio"))
		}
		if err != nil {
			return files, err
		}
	}
	return files, nil
}

func (s *pipedStream) switchToPipes(in, out *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.in, s.out = in, out
	// Close may have run while receive waited. It did not know the pipes.
	if s.closed {
		_, _ = in.Close(), out.Close()
		return
	}
	_ = in.SetReadDeadline(s.readUntil)
	_ = s.UnixConn.SetDeadline(time.Time{})
	go func() { // the sender sends no more bytes; the read returns when it exits
		_, _ = io.Copy(io.Discard, s.UnixConn)
		_ = s.Close()
	}()
}

func (s *pipedStream) Read(p []byte) (int, error) {
	s.open.Do(s.receivePipes)
	switch {
	case s.fail != nil:
		return 0, s.fail
	case s.in == nil && len(s.first) > 0 && len(p) > 0:
		n := copy(p, s.first)
		s.first = s.first[n:]
		return n, nil
	case s.in == nil:
		return s.UnixConn.Read(p)
	}
	n, err := s.in.Read(p)
	if errors.Is(err, io.EOF) {
		_, _ = s.UnixConn.Write([]byte{inputEnd})
	}
	return n, err
}

func (s *pipedStream) Write(p []byte) (int, error) {
	s.open.Do(s.receivePipes)
	switch {
	case s.fail != nil:
		return 0, s.fail
	case s.in == nil:
		return s.UnixConn.Write(p)
	}
	return s.out.Write(p)
}

func (s *pipedStream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.in != nil {
		_, _ = s.in.Close(), s.out.Close()
	}
	return s.UnixConn.Close()
}

func (s *pipedStream) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.in != nil {
		return s.in.SetReadDeadline(t)
	}
	s.readUntil = t
	return s.UnixConn.SetReadDeadline(t)
}

func (s *pipedStream) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out != nil {
		return s.out.SetWriteDeadline(t)
	}
	return s.UnixConn.SetWriteDeadline(t)
}

func (s *pipedStream) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// Package slotport opens listeners in the network namespaces of slots while embedded mode runs.
//
// The ports that code can reach follow the catalog, which the proxy reads and which changes. Only the supervisor may
// enter the namespaces of slots. So the proxy asks the supervisor for a listener on one port of one slot, over an
// inherited socket, and receives a descriptor.
//
// Contract: only the proxy and the supervisor have an end of that socket. A request can only listen.
package slotport

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// maxMessage exceeds the size of every request and answer, in bytes.
const maxMessage = 512

// NewPair makes the two ends: ask for requests, which a child inherits, and answer for the supervisor.
func NewPair() (ask, answer *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making the socket for further ports: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), string(slot.Ports)), os.NewFile(uintptr(fds[1]), "port requests"), nil
}

// Asker is the requesting end. Make one with NewAsker. It is safe for concurrent use.
type Asker struct {
	mu   sync.Mutex
	conn *net.UnixConn
}

// NewAsker takes over a file of NewPair.
func NewAsker(f *os.File) (*Asker, error) {
	conn, err := takeConn(f)
	if err != nil {
		return nil, err
	}
	return &Asker{conn: conn}, nil
}

// takeConn makes a connection from a file, and closes the file.
func takeConn(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("taking over the socket for further ports: %w", err)
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		_ = c.Close()
		return nil, errors.New("taking over the socket for further ports: not a unix socket")
	}
	return conn, nil
}

// ListenOn requests a listener on a port of a slot.
func (a *Asker) ListenOn(id slot.ID, port uint16) (*net.TCPListener, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := fmt.Fprintf(a.conn, "%d %d", int(id), port); err != nil {
		return nil, fmt.Errorf("asking for port %d of slot %d: %w", port, id, err)
	}
	text, oob := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := a.conn.ReadMsgUnix(text, oob)
	if err == nil && n == 0 {
		err = errors.New("no answer")
	}
	if err != nil {
		return nil, fmt.Errorf("asking for port %d of slot %d: %w", port, id, err)
	}
	f, err := fileFromControl(oob[:oobn])
	if err != nil || f == nil {
		return nil, fmt.Errorf("port %d of slot %d: %s", port, id, text[:n])
	}
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("port %d of slot %d: %w", port, id, err)
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		_ = l.Close()
		return nil, fmt.Errorf("port %d of slot %d: not a TCP listener", port, id)
	}
	return tcp, nil
}

// fileFromControl returns the file in a control message, or nil.
func fileFromControl(oob []byte) (*os.File, error) {
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	fds, err := unix.ParseUnixRights(&list[0])
	if err != nil || len(fds) == 0 {
		return nil, err
	}
	// A received descriptor must not leak into programs that the proxy starts.
	unix.CloseOnExec(fds[0])
	return os.NewFile(uintptr(fds[0]), "listener"), nil
}

// ServeRequests answers requests until the other end is closed. open listens on a port of a slot.
func ServeRequests(f *os.File, open func(slot.ID, uint16) (*os.File, error)) error {
	conn, err := takeConn(f)
	if err != nil {
		return err
	}
	defer conn.Close()
	buf := make([]byte, maxMessage)
	for {
		n, err := conn.Read(buf)
		if err != nil || n == 0 {
			return nil // the proxy has ended, and the supervisor ends with it
		}
		if err := serveRequest(conn, string(buf[:n]), open); err != nil {
			return err
		}
	}
}

func serveRequest(conn *net.UnixConn, request string, open func(slot.ID, uint16) (*os.File, error)) error {
	id, port, err := parseRequest(request)
	var f *os.File
	if err == nil {
		f, err = open(id, port)
	}
	if err != nil {
		text := err.Error()
		_, err = conn.Write([]byte(text[:min(len(text), maxMessage)]))
	} else {
		_, _, err = conn.WriteMsgUnix([]byte("ok"), unix.UnixRights(int(f.Fd())), nil)
		_ = f.Close()
	}
	if err != nil {
		return fmt.Errorf("answering the proxy: %w", err)
	}
	return nil
}

func parseRequest(request string) (slot.ID, uint16, error) {
	first, second, _ := strings.Cut(request, " ")
	n, err := strconv.Atoi(first)
	port, err2 := strconv.ParseUint(second, 10, 16)
	// Port 0 would let the kernel choose one.
	if id := slot.ID(n); err == nil && err2 == nil && id.IsValid() && port > 0 {
		return id, uint16(port), nil
	}
	return 0, 0, errors.New("not a slot and a port")
}

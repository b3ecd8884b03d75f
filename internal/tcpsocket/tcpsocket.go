// Package tcpsocket finds TCP sockets of this machine and their owners.
package tcpsocket

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// Socket is an open TCP socket in this process's network namespace.
type Socket struct {
	// UID is the owner as this process sees it. In a user namespace, all users without a mapping appear as the overflow
	// UID.
	UID int
	// Inode is the number in the link /proc/PID/fd/N, "socket:[N]".
	Inode uint32
}

var errNotFound = errors.New("no open socket on this machine has these addresses")

// FindPeer returns the other end of a TCP connection on this machine, or the UID -1 and an error. It does not find a
// socket that its process has closed, because the kernel would show root as the owner.
func FindPeer(c net.Conn) (Socket, error) {
	us, peer := addrPort(c.LocalAddr()), addrPort(c.RemoteAddr())
	if !us.IsValid() || !peer.IsValid() {
		return Socket{UID: -1}, fmt.Errorf("%s is not a TCP connection", c.RemoteAddr())
	}
	s, err := find(peer, us, isConnected)
	if err != nil {
		return Socket{UID: -1}, fmt.Errorf("finding the owner of %s: %w", peer, err)
	}
	return s, nil
}

// FindListener returns the socket that accepts connections to an address.
func FindListener(at netip.AddrPort) (Socket, error) { return find(at, netip.AddrPort{}, isListening) }

func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	return unmapAddress(t.AddrPort())
}

// unmapAddress removes the zone, and the IPv6 form of an IPv4 address.
func unmapAddress(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// entry is the kernel's description of a socket.
type entry struct {
	Socket
	local, remote netip.AddrPort
	state         byte
}

// listening is the state of a socket that accepts connections (TCP_LISTEN).
const listening = 0x0a

func isConnected(e entry, local, remote netip.AddrPort) bool {
	return e.state != listening && e.local == local && e.remote == remote
}

func isListening(e entry, local, _ netip.AddrPort) bool {
	return e.state == listening && e.local.Port() == local.Port() &&
		(e.local.Addr().IsUnspecified() || e.local.Addr() == local.Addr())
}

// find returns the open socket that match accepts.
func find(
	local, remote netip.AddrPort, match func(e entry, local, remote netip.AddrPort) bool,
) (Socket, error) {
	// The kernel finds the socket in a hash table. In /proc, it would write all sockets of the machine.
	if e, ok := ask(local, remote); ok && e.Inode != 0 && match(e, local, remote) {
		return e.Socket, nil
	}
	// sock_diag(7) may be missing in the kernel, or a security module may refuse it. It then reports ENOENT, as for a
	// socket that does not exist.
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue // the kernel has no IPv6
		}
		s, err := findInTable(f, func(e entry) bool { return match(e, local, remote) })
		_ = f.Close()
		if !errors.Is(err, errNotFound) {
			return s, err
		}
	}
	return Socket{}, errNotFound
}

// findInTable finds the first open socket that match accepts in a table of /proc/net.
func findInTable(table io.Reader, match func(entry) bool) (Socket, error) {
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		if e, ok := parseLine(lines.Text()); ok && e.Inode != 0 && match(e) {
			return e.Socket, nil
		}
	}
	if err := lines.Err(); err != nil {
		return Socket{}, err
	}
	return Socket{}, errNotFound
}

// parseLine parses a line of /proc/net/tcp or /proc/net/tcp6 (proc_pid_net(5)).
func parseLine(line string) (e entry, ok bool) {
	const localAt, remoteAt, stateAt, uidAt, inodeAt = 1, 2, 3, 7, 9
	f := strings.Fields(line)
	if len(f) <= inodeAt {
		return entry{}, false
	}
	local, okLocal := parseAddr(f[localAt])
	remote, okRemote := parseAddr(f[remoteAt])
	state, err := strconv.ParseUint(f[stateAt], 16, 8)
	uid, errUID := strconv.ParseUint(f[uidAt], 10, 32)
	inode, errInode := strconv.ParseUint(f[inodeAt], 10, 32)
	return entry{Socket{int(uid), uint32(inode)}, local, remote, byte(state)},
		okLocal && okRemote && errors.Join(err, errUID, errInode) == nil
}

// parseAddr parses an address of /proc/net: 32-bit words in the machine's byte order, a colon, and the port. All
// supported machines are little endian.
func parseAddr(s string) (netip.AddrPort, bool) {
	hexAddr, hexPort, ok := strings.Cut(s, ":")
	port, err := strconv.ParseUint(hexPort, 16, 16)
	if !ok || err != nil || len(hexAddr)%8 != 0 {
		return netip.AddrPort{}, false
	}
	var b []byte
	for i := 0; i < len(hexAddr); i += 8 {
		w, err := strconv.ParseUint(hexAddr[i:i+8], 16, 32)
		if err != nil {
			return netip.AddrPort{}, false
		}
		b = append(b, byte(w), byte(w>>8), byte(w>>16), byte(w>>24))
	}
	a, ok := netip.AddrFromSlice(b)
	// An IPv4 connection of an IPv6 socket is listed with a mapped address.
	return netip.AddrPortFrom(a.Unmap(), uint16(port)), ok
}

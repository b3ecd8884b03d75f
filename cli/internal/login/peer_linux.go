package login

import (
	"bufio"
	"encoding/hex"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// isForeignPeer reports whether the other end of a loopback connection belongs, or may belong, to another user. The
// kernel no longer knows the owner of a closed socket, so that counts as foreign. Root's processes count as the user's
// own.
func isForeignPeer(c net.Conn) bool {
	peer, ok := c.RemoteAddr().(*net.TCPAddr)
	own, ok2 := c.LocalAddr().(*net.TCPAddr)
	if !ok || !ok2 {
		return true
	}
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		if uid, found := ownerOf(table, peer.AddrPort(), own.AddrPort()); found {
			return uid != 0 && uid != os.Getuid()
		}
	}
	return true
}

// ownerOf finds the user of the open socket at local that is connected to remote, in one of the kernel's tables.
func ownerOf(table string, local, remote netip.AddrPort) (uid int, found bool) {
	f, err := os.Open(table)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		const localAt, remoteAt, uidAt, inodeAt = 1, 2, 7, 9
		fields := strings.Fields(s.Text())
		if len(fields) <= inodeAt || !isAt(fields[localAt], local) || !isAt(fields[remoteAt], remote) {
			continue
		}
		uid, err := strconv.Atoi(fields[uidAt])
		return uid, err == nil && fields[inodeAt] != "0" // a closed socket has no inode and is listed as root's
	}
	return 0, false
}

// isAt reports whether text is an address in the kernel's form: 32-bit words in the machine's byte order, which is
// little-endian on all supported machines.
func isAt(text string, at netip.AddrPort) bool {
	address, port, _ := strings.Cut(text, ":")
	n, err := strconv.ParseUint(port, 16, 16)
	raw, err2 := hex.DecodeString(address)
	const word = 4
	if err != nil || err2 != nil || uint16(n) != at.Port() || len(raw)%word != 0 {
		return false
	}
	for i := 0; i < len(raw); i += word {
		slices.Reverse(raw[i : i+word])
	}
	ip, ok := netip.AddrFromSlice(raw)
	return ok && ip.Unmap() == at.Addr().Unmap()
}

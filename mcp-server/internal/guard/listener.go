package guard

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
)

// Listener accepts TCP connections only from certain users of this machine.
type Listener struct {
	net.Listener
	// UIDs are the users whose connections are accepted, as /proc shows them to this process. In a user namespace these
	// are mapped UIDs. All users without a mapping appear as the overflow UID.
	UIDs []int
	Log  *slog.Logger

	logged  time.Time // the last logged refusal; only for Accept's goroutine
	refused int       // refusals since then
}

// logEvery bounds the rate of logged refusals, because another user could cause any number.
const logEvery = time.Second

// Accept waits for a connection from an accepted user, and closes others unread. It also closes a connection whose user
// cannot be found, because the peer has disconnected or is not on this machine.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		uid, err := PeerUID(c)
		//defence:mcp-owner permits
		if err == nil && slices.Contains(l.UIDs, uid) {
			return c, nil
		}
		_ = c.Close()
		l.logRefusal(uid, err)
	}
}

// logRefusal logs a refusal, or counts it if one was logged recently.
func (l *Listener) logRefusal(uid int, err error) {
	if l.refused++; time.Since(l.logged) < logEvery {
		return
	}
	attrs := []any{logline.Tag("mcp"), slog.Int("uid", uid), slog.Int("count", l.refused)}
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	l.Log.Warn("refused a connection of another user; MCP_AUTH_TOKEN would allow it with a token", attrs...)
	l.logged, l.refused = time.Now(), 0
}

// PeerUID returns the user who owns the other end of a TCP connection on this machine, or -1.
func PeerUID(c net.Conn) (int, error) {
	us, peer := addrPort(c.LocalAddr()), addrPort(c.RemoteAddr())
	if !us.IsValid() || !peer.IsValid() {
		return -1, fmt.Errorf("%s is not a TCP connection", c.RemoteAddr())
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue // the kernel has no IPv6
		}
		uid, err := findUID(f, peer, us)
		_ = f.Close()
		if err != nil || uid >= 0 {
			return uid, err
		}
	}
	return -1, fmt.Errorf("the peer %s has no established connection on this machine", peer)
}

func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	p := t.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap().WithZone(""), p.Port())
}

// established is the socket state in which /proc shows the owner. After the process has closed the socket, /proc shows
// UID 0.
const established = "01"

// findUID finds the owner of the established socket from local to remote in a table of /proc/net. It returns -1 if
// there is none.
func findUID(table io.Reader, local, remote netip.AddrPort) (int, error) {
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		// sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode
		f := strings.Fields(lines.Text())
		// An inode of 0 means that the process has closed the socket: its UID 0 must not count as root.
		if len(f) < 10 || f[3] != established || f[9] == "0" {
			continue
		}
		l, okLocal := parseAddr(f[1])
		r, okRemote := parseAddr(f[2])
		if okLocal && okRemote && l == local && r == remote {
			return strconv.Atoi(f[7])
		}
	}
	return -1, lines.Err()
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

package tcpsocket

import (
	"encoding/binary"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// question is the kernel's struct inet_diag_req_v2 for one TCP socket.
type question struct{ local, remote netip.AddrPort }

const (
	questionSize = 56
	// answerSize is the size of struct inet_diag_msg.
	answerSize = 72
)

// Len implements nl.NetlinkRequestData.
func (question) Len() int { return questionSize }

// Serialize implements nl.NetlinkRequestData.
func (q question) Serialize() []byte {
	family := byte(unix.AF_INET6)
	if q.local.Addr().Is4() {
		family = unix.AF_INET
	}
	b := make([]byte, questionSize)
	b[0], b[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(b[4:], ^uint32(0)) // all states
	binary.BigEndian.PutUint16(b[8:], q.local.Port())
	binary.BigEndian.PutUint16(b[10:], q.remote.Port())
	copy(b[12:], q.local.Addr().AsSlice())
	copy(b[28:], q.remote.Addr().AsSlice())
	binary.NativeEndian.PutUint64(b[48:], ^uint64(0)) // no cookie (INET_DIAG_NOCOOKIE)
	return b
}

// ask asks the kernel for the socket with these addresses (sock_diag(7)). If there is none, the kernel returns the
// socket that listens on local.
func ask(local, remote netip.AddrPort) (e entry, ok bool) {
	// netlink.SocketGet would make the kernel search its whole table (NLM_F_DUMP).
	req := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, 0)
	req.AddData(question{local, remote})
	messages, err := req.Execute(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY)
	if err != nil || len(messages) != 1 || len(messages[0]) < answerSize {
		return entry{}, false
	}
	b := messages[0]
	size := 16
	if b[0] == unix.AF_INET {
		size = 4
	}
	at := func(address, port int) netip.AddrPort {
		ip, _ := netip.AddrFromSlice(b[address : address+size])
		return unmapAddress(netip.AddrPortFrom(ip, binary.BigEndian.Uint16(b[port:])))
	}
	return entry{
		Socket: Socket{int(binary.NativeEndian.Uint32(b[64:])), binary.NativeEndian.Uint32(b[68:])},
		local:  at(8, 4), remote: at(24, 6), state: b[1],
	}, true
}

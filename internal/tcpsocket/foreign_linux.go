package tcpsocket

import (
	"net"
	"os"
)

// IsForeignPeer reports whether the other end of a loopback connection belongs, or may belong, to another user. The
// kernel no longer knows the owner of a closed socket, so that counts as foreign. Root's processes count as the user's
// own. On other systems IsForeignPeer always returns false.
func IsForeignPeer(c net.Conn) bool {
	peer, err := FindPeer(c)
	return err != nil || peer.UID != 0 && peer.UID != os.Getuid()
}

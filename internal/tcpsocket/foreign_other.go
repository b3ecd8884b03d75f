//go:build !linux

package tcpsocket

import "net"

// IsForeignPeer returns false: this system does not name the owner of a connection.
func IsForeignPeer(net.Conn) bool { return false }

//go:build !linux

package login

import "net"

// isForeignPeer returns false: on this system only the state identifies the redirect.
func isForeignPeer(net.Conn) bool { return false }

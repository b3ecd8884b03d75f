package unixsocket

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// PeerUID returns the user id of the process at the other end of a unix socket, as of connect(2) or listen(2)
// (SO_PEERCRED, unix(7)).
func PeerUID(c net.Conn) (int, error) {
	var cred *unix.Ucred
	var credErr error
	if err := withDescriptor(c, func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if credErr != nil {
		return 0, fmt.Errorf("asking who connected: %w", credErr)
	}
	return int(cred.Uid), nil
}

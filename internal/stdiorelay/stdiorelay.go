// Package stdiorelay connects a program's standard input and output to a unix socket. The host's codeforge reaches a
// socket in a container in this way, through docker exec and without a port.
package stdiorelay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
)

// Hello is the first output of RelayStdio after it has connected.
const Hello = "codeforge-relay 1\n"

// RelayStdio relays one connection to the socket at path until either side ends it.
func RelayStdio(ctx context.Context, path string, stdin io.Reader, stdout io.Writer) error {
	c, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", path, err)
	}
	// docker exec prints its own errors: Hello proves that the relay runs and is connected.
	if _, err := io.WriteString(stdout, Hello); err != nil {
		return errors.Join(err, c.Close())
	}
	RelayConn(ctx, c, stdin, stdout)
	return nil
}

// RelayConn relays a connection until either side ends it, or ctx ends. It closes the connection.
func RelayConn(ctx context.Context, c net.Conn, stdin io.Reader, stdout io.Writer) {
	defer c.Close()
	ended := make(chan struct{}, 2)
	go func() { _, _ = io.Copy(c, stdin); ended <- struct{}{} }()
	go func() { _, _ = io.Copy(stdout, c); ended <- struct{}{} }()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// Package attach makes one byte stream of a process's standard input and output and sandboxd's socket. It is what a
// long-lived docker exec runs. When its input ends it hangs up, and sandboxd ends the runs of the connection.
package attach

import (
	"errors"
	"fmt"
	"io"
	"net"
)

// Copy carries bytes both ways until one side ends, and closes the connection then. The input ending is no error; a
// connection that sandboxd closed is one.
func Copy(in io.Reader, out io.Writer, conn net.Conn) error {
	defer conn.Close()
	type end struct {
		input bool
		err   error
	}
	ends := make(chan end, 2)
	go func() {
		_, err := io.Copy(conn, in)
		ends <- end{true, err}
	}()
	go func() {
		_, err := io.Copy(out, conn)
		ends <- end{false, err}
	}()
	first := <-ends
	switch {
	case first.input && first.err == nil:
		return nil
	case first.input:
		return fmt.Errorf("copying to sandboxd: %w", first.err)
	case first.err != nil:
		return fmt.Errorf("copying from sandboxd: %w", first.err)
	}
	return errors.New("sandboxd closed the connection")
}

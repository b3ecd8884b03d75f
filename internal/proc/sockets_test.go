package proc

import (
	"bytes"
	"net"
	"os"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestSocketMemory: datagrams that a process does not read count.
// Promise: bounded-work
func TestSocketMemory(t *testing.T) {
	for range fewSockets {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		testkit.Must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		for range 100 {
			_, err := c.WriteToUDP(bytes.Repeat([]byte("x"), 1000), c.LocalAddr().(*net.UDPAddr))
			testkit.Must(t, err)
		}
	}
	if held := SocketMemory(os.Getpid(), os.Getuid()); held < fewSockets*50_000 {
		t.Errorf("%d bytes in %d sockets", held, fewSockets)
	}
}

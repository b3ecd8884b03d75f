package proc

import (
	"bytes"
	"net"
	"os"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

const manySockets = 32

// TestFewSockets: unread bytes of a few TCP connections count.
// Promise: memory-limits
func TestFewSockets(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	testkit.Must(t, err)
	defer l.Close()
	written := int64(0)
	for range 4 {
		c, err := net.Dial("tcp4", l.Addr().String())
		testkit.Must(t, err)
		defer c.Close()
		peer, err := l.Accept()
		testkit.Must(t, err)
		defer peer.Close()
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		n, _ := c.Write(make([]byte, 64<<20))
		written += int64(n)
	}
	if held := SocketMemory(os.Getpid(), os.Getuid(), false); held < written*9/10 || held < littleMemory {
		t.Errorf("%d bytes of %d count", held, written)
	}
}

// TestSocketMemory: datagrams that a process does not read count.
// Promise: bounded-work
func TestSocketMemory(t *testing.T) {
	for range manySockets {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		testkit.Must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		for range 100 {
			_, err := c.WriteToUDP(bytes.Repeat([]byte("x"), 1000), c.LocalAddr().(*net.UDPAddr))
			testkit.Must(t, err)
		}
	}
	if held := SocketMemory(os.Getpid(), os.Getuid(), false); held < manySockets*50_000 {
		t.Errorf("%d bytes in %d sockets", held, manySockets)
	}
}

// TestSocketsWithoutDescriptors: what a closed socket has still to send counts for the user whose namespace it is in,
// also as kernels before 6.17 list it.
// Promise: memory-limits
func TestSocketsWithoutDescriptors(t *testing.T) {
	const list = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:D5BC 0100007F:D1D9 04 003B2C1C:00000000 01:00000014 00000000     0        0 0 3 0000000000000000
   1: 0100007F:D1D9 0100007F:D5BC 01 00000000:0001BA00 00:00000000 00000000     0        0 0 1 0000000000000000
   2: 0100007F:D1DA 0100007F:D5BD 01 00000010:00000000 00:00000000 00000000 20001        0 77 1 0000000000000000
   3: 0100007F:D1DB 0100007F:D5BE 01 00000100:00000000 00:00000000 00000000     0        0 78 1 0000000000000000
`
	if got := sumQueues([]byte(list), 20001, true); got != 0x3B2C1C+0x1BA00+0x10 {
		t.Errorf("%d bytes", got)
	}
	if got := sumQueues([]byte(list), 20001, false); got != 0x10 {
		t.Errorf("%d bytes where others have sockets too", got)
	}
}

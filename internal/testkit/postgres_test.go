package testkit_test

import (
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestPostgresOutlivesThread: the server goes on after the thread has ended on which a test started it.
func TestPostgresOutlivesThread(t *testing.T) {
	started := make(chan *testkit.Postgres)
	var start func()
	start = func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if unix.Gettid() == os.Getpid() {
			go start() // the first thread never ends, and no other goroutine runs on it now
			<-t.Context().Done()
			return
		}
		defer close(started)
		started <- testkit.NewPostgres(t)
	}
	go start()
	p := <-started
	if p == nil {
		return // skipped
	}
	<-started
	for range 20 {
		c, err := net.Dial("tcp", p.Address)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		time.Sleep(20 * time.Millisecond)
	}
}

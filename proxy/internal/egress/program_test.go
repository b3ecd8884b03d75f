package egress_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// startServer builds and starts a server of e2e's module and returns its address. That module has dependencies that no
// product has. The server prints its port, and ends when its standard input ends.
func startServer(tb testing.TB, pkg string) string {
	tb.Helper()
	binary := filepath.Join(tb.TempDir(), "server")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, pkg)
	build.Dir = testkit.RootDir(tb)
	// With cgo, as under the race detector, Go would compile net and all that imports it once more.
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("building %s: %v\n%s", pkg, err, out)
	}
	cmd := exec.Command(binary)
	in, err := cmd.StdinPipe()
	testkit.Must(tb, err)
	out, err := cmd.StdoutPipe()
	testkit.Must(tb, err)
	cmd.Stderr = tb.Output()
	testkit.Must(tb, cmd.Start())
	tb.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	var port string
	_, err = fmt.Fscan(out, &port)
	testkit.Must(tb, err)
	return net.JoinHostPort("127.0.0.1", port)
}

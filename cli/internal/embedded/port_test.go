package embedded

import (
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// TestPort: a port in use on either address is an error that names its user and says how to choose another one.
func TestPort(t *testing.T) {
	if got, err := ChoosePort(t.Context(), 0); err != nil || got == 0 {
		t.Errorf("Port(0) = %d, %v; want a free one", got, err)
	}
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("%s: %v", address, err)
			continue
		}
		defer l.Close()
		taken := l.Addr().(*net.TCPAddr).Port
		_, err = ChoosePort(t.Context(), taken)
		if err == nil {
			t.Errorf("port %d of %s counts as free", taken, address)
			continue
		}
		want := []string{"port " + strconv.Itoa(taken), "in use by", "--port N", "MCP_PORT"}
		if runtime.GOOS == "linux" {
			want = append(want, "process "+strconv.Itoa(os.Getpid()))
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q does not say %q", err, w)
			}
		}
	}
}

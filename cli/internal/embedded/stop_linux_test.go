package embedded

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestStopAnother: a process whose id is in the lock, and which does not hold that, is not ended: the lock is held in
// another namespace, or its holder has not yet written its own id.
func TestStopAnother(t *testing.T) {
	d, err := statedir.CreateDir(t.TempDir())
	testkit.Must(t, err)
	lock, err := d.Lock()
	testkit.Must(t, err)
	defer lock.Close()
	other := exec.Command("sleep", "60")
	testkit.Must(t, other.Start())
	ended := make(chan error, 1)
	go func() { ended <- other.Wait() }()
	testkit.Must(t, os.WriteFile(d.Join("lock"), []byte(strconv.Itoa(other.Process.Pid)), 0o600))
	stopped, err := Stop(t.Context(), d)
	if stopped || err == nil || !strings.Contains(err.Error(), "cannot be seen from here") {
		t.Errorf("%v, %v", stopped, err)
	}
	select {
	case <-ended:
		t.Error("it ended another process")
	case <-time.After(100 * time.Millisecond):
		_ = other.Process.Kill()
		<-ended
	}
}

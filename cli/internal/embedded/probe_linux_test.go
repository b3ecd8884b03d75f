package embedded

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestBubblewrapRefused: if root may make namespaces, but the users of slots may not, the error names the setting. The
// machine's setting stays, because it is changed in a user namespace.
func TestBubblewrapRefused(t *testing.T) {
	if os.Getenv("BUBBLEWRAP_REFUSED") != "" {
		testkit.Must(t, os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0))
		err := tryBubblewrap(t.Context())
		if !errors.Is(err, errForbidden) || !strings.Contains(err.Error(), "sysctl -w user.max_user_namespaces=15000") ||
			!strings.Contains(err.Error(), "bwrap: ") {
			t.Errorf("got %v", err)
		}
		return
	}
	testkit.Must(t, tryBubblewrap(t.Context()))
	if !isPrivileged() {
		testkit.SkipBecause(t, "only root can make the users of slots in a user namespace")
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestBubblewrapRefused$")
	cmd.Env = append(os.Environ(), "BUBBLEWRAP_REFUSED=1")
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1 << 16}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true,
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

package embedded

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestExplain: the error names the setting and the command that changes it, and other errors stay as they are.
func TestExplain(t *testing.T) {
	rows := []struct {
		name   string
		err    error
		root   bool
		sysctl map[string]string
		want   []string
	}{
		{"no user namespaces", unix.ENOSPC, false, map[string]string{"user.max_user_namespaces": "0"}, []string{"user.max_user_namespaces is 0", "sysctl -w user.max_user_namespaces=15000"}},
		{"no user namespaces, as root of one", unix.ENOSPC, true, map[string]string{"user.max_user_namespaces": "0"}, []string{"sysctl -w user.max_user_namespaces="}},
		{"Debian's switch", unix.EPERM, false, map[string]string{"user.max_user_namespaces": "9", "kernel.unprivileged_userns_clone": "0"}, []string{"sysctl -w kernel.unprivileged_userns_clone=1"}},
		{"Ubuntu's switch", unix.EACCES, false, map[string]string{"kernel.apparmor_restrict_unprivileged_userns": "1"}, []string{"sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"}},
		{"both switches off, root in a container", unix.EPERM, true, map[string]string{"kernel.unprivileged_userns_clone": "0"}, []string{"--privileged"}},
		{"network namespaces", unix.ENOSPC, true, map[string]string{"user.max_net_namespaces": "0"}, []string{"sysctl -w user.max_net_namespaces=15000"}},
		{"seccomp profile", unix.EPERM, false, map[string]string{"user.max_user_namespaces": "9"}, []string{"seccomp", "as root"}},
		{"something else", unix.ENOENT, false, nil, []string{"no such file"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			wrapped := fmt.Errorf("doing it: %w", row.err)
			got := explainWith(wrapped, row.root, func(name string) string { return row.sysctl[name] })
			if !errors.Is(got, row.err) {
				t.Errorf("%v hides the cause", got)
			}
			for _, w := range row.want {
				if !strings.Contains(got.Error(), w) {
					t.Errorf("%q does not say %q", got, w)
				}
			}
			if strings.Contains(got.Error(), "sysctl -w") && strings.Contains(got.Error(), "CodeForge as root") {
				t.Errorf("%q: bubblewrap needs the setting if root starts CodeForge, too", got)
			}
		})
	}
}

// TestAttributes: root keeps its users, an ordinary user gets a namespace that holds only that user.
func TestAttributes(t *testing.T) {
	root := cloneAttributes(true)
	if root.Cloneflags&unix.CLONE_NEWUSER != 0 || root.Cloneflags&unix.CLONE_NEWPID == 0 || root.Cloneflags&unix.CLONE_NEWNS == 0 {
		t.Errorf("root: clone flags %x", root.Cloneflags)
	}
	user := cloneAttributes(false)
	if user.Cloneflags&unix.CLONE_NEWUSER == 0 || len(user.UidMappings) != 1 || user.UidMappings[0].Size != 1 || user.UidMappings[0].ContainerID != 0 || user.GidMappingsEnableSetgroups {
		t.Errorf("ordinary user: %+v", user)
	}
	for _, a := range []int{int(root.Pdeathsig), int(user.Pdeathsig)} {
		if a != int(unix.SIGKILL) {
			t.Errorf("the inner process would outlive the outer one: signal %d", a)
		}
	}
}

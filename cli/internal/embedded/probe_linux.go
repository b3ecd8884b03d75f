package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// ProbeKernel tries the kernel features that a start needs, in temporary namespaces. Its error names a remedy.
func ProbeKernel(ctx context.Context, environ []string) error {
	var output strings.Builder
	child, err := startInner(innerConfig{Args: []string{ProbeCommand}, Env: environ, Stdout: &output, Stderr: &output})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	select {
	case <-child.Done():
	case <-ctx.Done():
		child.Signal(unix.SIGKILL)
		<-child.Done()
		return fmt.Errorf("trying namespaces: %w", ctx.Err())
	}
	if child.Err() != nil {
		text := strings.TrimSpace(output.String())
		return fmt.Errorf("trying namespaces: %s (%w)", text, child.Err())
	}
	return nil
}

// RunProbe is the inner process of ProbeKernel.
func RunProbe(ctx context.Context) error {
	if os.Getpid() != 1 {
		return fmt.Errorf("only codeforge doctor may run this command")
	}
	// Otherwise the mounts below would appear on the host.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return explainRefusal(fmt.Errorf("making mounts private: %w", err))
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return explainRefusal(fmt.Errorf("mounting /proc: %w", err))
	}
	if err := unix.Mount("probe", "/tmp", "tmpfs", 0, "size=64k"); err != nil {
		return explainRefusal(fmt.Errorf("mounting a tmpfs: %w", err))
	}
	slots, err := makeSlotNets(slot.IDs(1, 0))
	if err != nil {
		return explainRefusal(err)
	}
	for _, s := range slots {
		s.Close()
	}
	// A program in a folder of root's own does not start as the user of a slot here, but sandboxd can use it.
	if err := tryBubblewrap(ctx); !isPrivileged() || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

// tryBubblewrap starts bubblewrap as the user who will run code. If root started CodeForge, that is the user of a slot,
// whom settings of the machine may restrict more than root.
func tryBubblewrap(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
		"--disable-userns", "--cap-drop", "ALL", "--ro-bind", "/", "/", "true")
	cmd.Dir = "/"
	if isPrivileged() {
		user := &syscall.Credential{Uid: uint32(slot.ID(0).UID()), Gid: slot.GroupID}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	}
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	err = fmt.Errorf("bubblewrap: %w: %s", err, strings.TrimSpace(string(out)))
	// Otherwise it did not start, or did not end in time: the kernel has not refused a namespace.
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || ctx.Err() != nil {
		return err
	}
	return cmp.Or(explainSettings(err, false, readSysctl), err)
}

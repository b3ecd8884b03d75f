package world

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// StartUpstream starts the upstream without CodeForge, in embedded mode, and writes the certificate of its authority to
// the file ca.
func StartUpstream(ca string) (*upstream.Server, error) {
	if err := requirements(); err != nil {
		return nil, err
	}
	s, authority, err := startUpstream(upstream.Embedded, nil, "", nil)
	if err != nil {
		return nil, err
	}
	return s, os.WriteFile(ca, authority.PEM(), 0o644) //nolint:gosec // public
}

// Root is the root of the source tree.
func Root() (string, error) {
	if root := os.Getenv(rootVar); root != "" {
		return root, nil
	}
	return testkit.FindRoot()
}

// Shell runs a script in dir as a user's shell would, with env added to what a build needs, and returns its output and
// exit code.
func Shell(ctx context.Context, dir, script string, env map[string]string) (string, int, error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "/bin/sh", "-ec", script) //nolint:gosec // see execStage
	if CurrentMode() == Docker {
		cmd = exec.CommandContext(ctx, "/bin/sh", "-ec", script) //nolint:gosec // a script of the project's own documents
	}
	all := map[string]string{stageVar: "exec"}
	for _, kv := range os.Environ() {
		if name, value, _ := strings.Cut(kv, "="); passed(name) {
			all[name] = value
		}
	}
	if deno := filepath.Join(shared, "deno"); CurrentMode() == Embedded {
		all["DENO_PATH"] = deno
	}
	for k, v := range env {
		all[k] = v
	}
	for k, v := range all {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = dir, &out, &out, 5*time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return out.String(), exit.ExitCode(), nil
	}
	return out.String(), 0, err
}

// passed reports whether a script inherits a variable: those that Go and Docker need here, and no setting of CodeForge.
func passed(name string) bool {
	switch name {
	case "PATH", "HOME", "LANG", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY":
		return true
	}
	return strings.HasPrefix(name, "GO") || strings.HasPrefix(name, "DOCKER_")
}

package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// newDenoScript is a Script that runs code in real Deno with a sandbox's flags, but without isolation. Skills is the
// directory that code knows as /skills. Its path in code is replaced, because there is no mount.
func newDenoScript(tb testing.TB, s *fakepeers.FakeSandbox, skills string) fakepeers.Script {
	tb.Helper()
	deno := testkit.DenoPath(tb)
	return func(ctx context.Context, r sandboxapi.RunRequest, emit func(sandboxapi.Event)) sandboxapi.Exit {
		dir, err := os.MkdirTemp("", "run")
		if err != nil {
			return sandboxapi.Exit{Code: 1, Reason: sandboxapi.Exited}
		}
		defer os.RemoveAll(dir)
		main := filepath.Join(dir, "main.ts")
		code := strings.ReplaceAll(r.Code, "/skills/", skills+"/")
		if os.WriteFile(main, []byte(code), 0o600) != nil {
			return sandboxapi.Exit{Code: 1, Reason: sandboxapi.Exited}
		}
		args := []string{"run", "--no-prompt", "--no-remote", "--no-npm", "--no-config", "--no-lock",
			"--allow-read=/tmp," + skills, "--allow-write=" + skills}
		if allow := s.AllowedHosts(); len(allow) > 0 {
			args = append(args, "--allow-net="+strings.Join(allow, ","))
		}
		cmd := exec.CommandContext(ctx, deno, append(args, main)...) //nolint:gosec // running code is its job
		cmd.Env = []string{"NO_COLOR=1", "HOME=" + dir, "DENO_DIR=" + filepath.Join(dir, "deno"), "DENO_NO_UPDATE_CHECK=1"}
		cmd.Stdout = outputEmitter(func(t string) { emit(sandboxapi.Event{Stdout: t}) })
		var errors strings.Builder
		cmd.Stderr = &errors
		_ = cmd.Run() // a failure shows in the exit code
		if errors.Len() > 0 {
			emit(sandboxapi.Event{Stderr: errors.String()})
		}
		exit := sandboxapi.Exit{Code: cmd.ProcessState.ExitCode(), Reason: sandboxapi.Exited}
		if ctx.Err() != nil {
			exit.Reason = sandboxapi.Cancelled
		}
		return exit
	}
}

type outputEmitter func(string)

func (e outputEmitter) Write(p []byte) (int, error) {
	e(string(p))
	return len(p), nil
}

var _ io.Writer = outputEmitter(nil)

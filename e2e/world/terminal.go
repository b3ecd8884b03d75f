package world

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/creack/pty"

	"github.com/codeforge-mcp/codeforge/e2e/compose"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// onTerminal gives a process its own terminal before it is started. Call the returned function when the process has
// ended: it waits until everything printed is in the process's output.
func onTerminal(p *Process) (shown func(), err error) {
	master, slave, err := pty.Open()
	if err != nil {
		return nil, fmt.Errorf("opening a terminal: %w", err)
	}
	p.Cmd.Stdin, p.Cmd.Stdout, p.Cmd.Stderr, p.keys = slave, slave, slave, master
	copied := make(chan struct{})
	go func() {
		_, _ = io.Copy(p.out, master) // ends with an error when the other end is closed
		close(copied)
	}()
	return func() {
		_ = slave.Close()
		<-copied
		_ = master.Close()
	}, nil
}

// Type types a text on the terminal of a process.
func (p *Process) Type(text string) error {
	_, err := io.WriteString(p.keys, text)
	return err
}

// Look runs the command line on a terminal, and returns what the terminal gets. The argument SCRIPT is replaced by the
// path of a file with this code.
func (w *World) Look(ctx context.Context, code string, args ...string) (string, error) {
	return w.tool(ctx, true, code, args)
}

// Pipe runs the command line like Look, with its output in a pipe.
func (w *World) Pipe(ctx context.Context, code string, args ...string) (string, error) {
	return w.tool(ctx, false, code, args)
}

// Operate is Pipe for commands that ask the proxy: in Docker the host's codeforge does, below the folder of the stack.
// Home is a folder of its own. It returns what the command printed on both outputs.
func (w *World) Operate(ctx context.Context, home string, args ...string) (string, error) {
	if w.Mode != Docker {
		return w.Pipe(ctx, "", args...)
	}
	program, err := Program("codeforge")
	if err != nil {
		return "", err
	}
	root, err := testkit.FindRoot()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // built here
	cmd.Dir = filepath.Join(root, "docs")
	cmd.Env = append(w.Stack.Environ(), "COMPOSE_PROJECT_NAME="+compose.Project, "HOME="+home)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (w *World) tool(ctx context.Context, terminal bool, code string, args []string) (string, error) {
	if w.Mode == Kubernetes { // no path leads into a pod
		if at := slices.Index(args, "SCRIPT"); at >= 0 {
			args = slices.Replace(slices.Clone(args), at, at+1, "-e", code)
		}
		return w.Cluster.exec(ctx, terminal, args)
	}
	script := ""
	if code != "" {
		var err error
		if script, err = w.script(ctx, code); err != nil {
			return "", err
		}
	}
	var all []string
	for _, a := range args {
		if a == "SCRIPT" {
			a = script
		}
		all = append(all, a)
	}
	if w.Mode == Docker {
		kind := "--tty=false"
		if terminal {
			kind = "--tty"
		}
		line := append([]string{"exec", "--env", "NO_COLOR=1", kind, w.Stack.Container("mcp-server"), "codeforge"}, all...)
		out, err := exec.CommandContext(ctx, "docker", line...).CombinedOutput() //nolint:gosec // a test's own arguments
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = nil
		}
		return string(out), err
	}
	out, _, err := Tool(ctx, Command{
		User: w.User, Dir: w.Dir, Args: append(all, "--state", w.Process.State), Terminal: terminal, Env: map[string]string{"NO_COLOR": "1"},
	})
	return out, err
}

// script writes code to a file that the command line can read.
func (w *World) script(ctx context.Context, code string) (string, error) {
	if w.Mode != Docker {
		path := filepath.Join(w.Dir, "script.ts")
		return path, os.WriteFile(path, []byte(code), 0o644) //nolint:gosec // a test's own code
	}
	_, err := w.Execute(ctx, fmt.Sprintf("Deno.writeTextFileSync('/skills/script.ts', %q)", code))
	return "/skills/script.ts", err
}

// Command is a codeforge command about this CodeForge, as its user gives it: in Docker mode on the host, in a folder of
// the stack.
func (w *World) Command(args ...string) (Command, error) {
	if w.Mode != Docker {
		return Command{User: w.User, Dir: w.Dir, Args: append(args, "--state", w.Process.State)}, nil
	}
	root, err := Root()
	if err != nil {
		return Command{}, err
	}
	program, err := Program("codeforge")
	c := Command{Dir: filepath.Join(root, "docs"), Args: args, Bin: filepath.Dir(program), Env: map[string]string{"HOME": w.Dir}}
	for _, kv := range w.Stack.Environ() {
		if name, value, _ := strings.Cut(kv, "="); name != "HOME" {
			c.Env[name] = value
		}
	}
	return c, err
}

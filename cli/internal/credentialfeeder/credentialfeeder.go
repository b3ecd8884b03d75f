// Package credentialfeeder runs the programs of credentials with "command", outside the proxy and the sandbox, and
// passes their output to the proxy.
//
// Threat: a program that code in the sandbox could replace; output in a log; a compromised proxy that names another
// program. Contract: programs come from apis/ on this machine, never from the proxy. No sandbox user may be able to
// write one. Neither output nor standard error is kept or shown.
package credentialfeeder

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
)

const (
	// runTime limits the time of a program.
	runTime = 30 * time.Second
	// maxOutput limits its output, in bytes.
	maxOutput = 64 << 10
	// grace is how long a program's children may keep its output open after its end.
	grace = time.Second
)

// Feeder runs programs. Make one with New.
type Feeder struct {
	environ []string
	path    []string
}

// New makes a Feeder with the environment of codeforge's start. It looks for programs without a path in the absolute
// folders of PATH.
func New(environ []string) *Feeder {
	f := &Feeder{environ: environ}
	for _, kv := range environ {
		if list, ok := strings.CutPrefix(kv, "PATH="); ok {
			f.path = nil
			for _, dir := range filepath.SplitList(list) {
				// A relative folder in PATH would let the current folder choose the program.
				if filepath.IsAbs(dir) {
					f.path = append(f.path, dir)
				}
			}
		}
	}
	return f
}

// RunProgram runs a program and parses a value from its output: a line of text, or {"value": "...", "expires_at":
// "..."}. Errors never quote the output.
func (f *Feeder) RunProgram(ctx context.Context, args []string) (credentialapi.SuppliedValue, error) {
	program, err := f.findProgram(args[0])
	if err != nil {
		return credentialapi.SuppliedValue{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args[1:]...) //nolint:gosec // the user's own configuration names it
	cmd.Args[0] = args[0]
	cmd.Env, cmd.Dir, cmd.WaitDelay = f.environ, workingDir(), grace
	startOwnGroup(cmd)
	out := &boundedOutput{stop: cancel}
	cmd.Stdout = out
	err = cmd.Run()
	name := filepath.Base(args[0])
	var exit *exec.ExitError
	switch {
	case out.over:
		return credentialapi.SuppliedValue{}, fmt.Errorf("%s printed more than %d KiB", name, maxOutput>>10)
	case ctx.Err() != nil:
		return credentialapi.SuppliedValue{}, fmt.Errorf("%s did not end within %s", name, runTime)
	case errors.As(err, &exit):
		return credentialapi.SuppliedValue{}, fmt.Errorf("%s failed (%s); run it yourself to see why", name,
			exit.ProcessState)
	case err != nil:
		return credentialapi.SuppliedValue{}, fmt.Errorf("%s cannot be run: %w", name, err)
	}
	s, err := parseSupply(out.kept.Bytes())
	if err != nil {
		return s, fmt.Errorf("%s printed %w", name, err)
	}
	return s, nil
}

// workingDir returns the working directory of programs, which does not depend on where codeforge was started.
func workingDir() string {
	if dir, err := os.UserHomeDir(); err == nil {
		return dir
	}
	return string(filepath.Separator)
}

// boundedOutput keeps a program's output, and ends the program if it prints too much.
type boundedOutput struct {
	kept bytes.Buffer // not embedded: its ReadFrom has no bound
	over bool
	stop func()
}

func (b *boundedOutput) Write(p []byte) (int, error) {
	if b.kept.Len()+len(p) > maxOutput {
		b.over = true
		b.stop()
		return 0, errors.New("too much output")
	}
	return b.kept.Write(p)
}

// parseSupply parses a program's output.
func parseSupply(out []byte) (credentialapi.SuppliedValue, error) {
	text := strings.TrimSuffix(strings.TrimSuffix(string(out), "\n"), "\r")
	var s credentialapi.SuppliedValue
	if strings.HasPrefix(strings.TrimSpace(text), "{") {
		var o struct {
			Value   *string    `json:"value"`
			Expires *time.Time `json:"expires_at"`
		}
		if json.Unmarshal(out, &o) != nil || o.Value == nil { // the error would quote the output
			return s, errors.New(`an object that is not {"value": "...", "expires_at": "2026-01-02T03:04:05Z"}`)
		}
		text, s.ExpiresAt = *o.Value, o.Expires
	}
	v, err := catalog.ParseSourceText(text)
	if err != nil {
		return s, err
	}
	s.Value = v.Reveal()
	return s, nil
}

// findProgram returns the absolute path of a program that no sandbox user can write.
func (f *Feeder) findProgram(name string) (string, error) {
	candidates := []string{name}
	if !filepath.IsAbs(name) {
		candidates = nil
		for _, dir := range f.path {
			candidates = append(candidates, filepath.Join(dir, name))
		}
	}
	for _, path := range candidates {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			continue
		}
		info, err := os.Stat(real)
		if err != nil || !info.Mode().IsRegular() || !isExecutable(info) {
			continue
		}
		// A folder above the program is as dangerous as the program: its writer could replace the program.
		for part := real; ; part = filepath.Dir(part) {
			if err := checkSafe(part); err != nil {
				return "", fmt.Errorf("%s: %w", part, err)
			}
			if part == filepath.Dir(part) {
				return real, nil // not path, because its links might be changed later
			}
		}
	}
	return "", fmt.Errorf("%s: no such program in PATH", name)
}

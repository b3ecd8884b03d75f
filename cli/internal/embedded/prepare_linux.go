package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/codeforge-mcp/codeforge/cli/internal/deno"
	"github.com/codeforge-mcp/codeforge/cli/internal/hostfolder"
	"github.com/codeforge-mcp/codeforge/internal/python"
)

// prepareSetup checks the machine and makes the plan. Warnings are problems that do not stop CodeForge but should be
// fixed.
func prepareSetup(ctx context.Context, c Config) (p supervisorSetup, warnings []string, err error) {
	p = supervisorSetup{
		State: c.State.Path(), Slots: c.Slots, Warm: min(c.Settings.Warm, c.Slots), Memory: c.Settings.Memory,
		WarmPython: min(c.Settings.WarmPython, c.Slots), Servers: c.Settings.Servers, ServerMemory: c.Settings.ServerMemory,
		Privileged: isPrivileged(), Quiet: c.Quiet, SkillsReadonly: c.Settings.SkillsReadonly,
	}
	p.OwnerUID = operatorUID(p.Privileged, c.getenv)
	if p.Bin, err = findBinaries(c.Bin); err != nil {
		return p, nil, err
	}
	var warning string
	if p.Deno, warning, err = deno.FindDeno(ctx, c.Deno, p.Bin); err != nil {
		return p, nil, err
	}
	if warning != "" {
		warnings = append(warnings, warning)
	}
	p.TypeScript, _ = TypeScript(p.Bin)
	p.UV = FindUV(p.Bin)
	if c.Python != "" {
		if _, err := os.Stat(c.Python); err != nil {
			return p, nil, fmt.Errorf("PYTHON_PATH: %w", err)
		}
	}
	p.Pythons = python.ListCandidates(c.Python)
	if _, err := exec.LookPath("bwrap"); err != nil {
		return p, nil, errors.New("bubblewrap (bwrap) is not installed. As root: apt-get install bubblewrap, " +
			"dnf install bubblewrap, apk add bubblewrap or pacman -S bubblewrap")
	}
	if p.APIs, err = resolveFolder(c.APIs); err != nil {
		return p, nil, err
	}
	var refused []error
	p.Folders, refused = hostfolder.List(hostfolder.FilePath(c.APIs),
		hostfolder.OwnPaths(c.getenv, p.APIs, p.State, p.Bin))
	for _, err := range refused {
		warnings = append(warnings, err.Error())
	}
	if c.Settings.Programs != "" {
		if p.Programs, err = resolvePrograms(c.Settings.Programs); err != nil {
			return p, nil, err
		}
	}
	p.Keep = append([]string{
		p.APIs, c.Settings.UpstreamCAFile, c.Settings.MCPTokensFile, c.Settings.DatabaseCAFile,
	}, p.Pythons...)
	p.Port, err = ChoosePort(ctx, c.Port)
	return p, append(warnings, findSharedUIDs(ctx, p)...), err
}

// operatorUID returns the user who may connect if root started CodeForge: the user behind sudo, else root.
func operatorUID(privileged bool, getenv func(string) string) int {
	if uid, err := strconv.Atoi(getenv("SUDO_UID")); err == nil && privileged && uid > 0 {
		return uid
	}
	return 0
}

// resolveFolder returns the absolute path of the folder of APIs, without symbolic links.
func resolveFolder(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("apis folder: %w", err)
	}
	real, err := filepath.EvalSymlinks(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("there is no folder of APIs at %s: "+
			"codeforge init creates one, or pass its path with --apis DIR", abs)
	}
	if err != nil {
		return "", fmt.Errorf("apis folder: %w", err)
	}
	return real, nil
}

// resolvePrograms returns the absolute path of the folder of programs for MCP servers, without symbolic links.
func resolvePrograms(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return "", fmt.Errorf("SANDBOX_PROGRAMS: %w", err)
	}
	if info, err := os.Stat(abs); err != nil || !info.IsDir() {
		return "", fmt.Errorf("SANDBOX_PROGRAMS: %s is not a folder", path)
	}
	return abs, nil
}

// findBinaries returns the folder that holds all daemons.
func findBinaries(dir string) (string, error) {
	if dir == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("finding the other binaries: %w", err)
		}
		dir = filepath.Dir(self)
	}
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", fmt.Errorf("finding the other binaries: %w", err)
	}
	for _, name := range []string{"egress-proxy", "sandboxd", "mcp-server"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("%s is not in %s: build the binaries with make build, or pass their directory with --bin DIR",
				name, dir)
		}
	}
	return dir, nil
}

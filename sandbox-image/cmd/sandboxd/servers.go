package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/packages"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/pool"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/quota"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

// Limits of an MCP server that cannot be configured.
const (
	maxServerProcesses = 256 // threads included
	maxServerFileSize  = 128 << 20
)

// jailServers says what the slots of MCP servers are made of.
func jailServers(f serveFlags) jail.Servers {
	return jail.Servers{
		Slots: f.servers, Bridge: present(f.bridge), Packages: f.packages, Programs: present(f.programs),
		Limits: jail.Limits{
			Memory: f.serverMemory, Processes: maxServerProcesses, Forks: true, FileSize: maxServerFileSize,
			OpenFiles: maxOpenFiles,
		},
	}
}

// closeSkills closes the skills of the container to all but the group of the slots for runs: MCP servers are not in it.
// The volume may be of a version that left them open. Where it is read-only, mcp-server's image has closed it.
func closeSkills(dir string) error {
	err := os.Chmod(dir, 0o770|os.ModeSetgid)
	if errors.Is(err, unix.EROFS) {
		return nil
	}
	return err
}

// present is the path if there is something, else "".
func present(path string) string {
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// serverSlots prepares the folder of packages and says what the pool needs to know. Without the bridge there are no
// servers, and everything else works.
func serverSlots(f serveFlags) (pool.Servers, error) {
	s := pool.Servers{
		Slots: f.servers, Memory: f.serverMemory, Watch: watchServer(f), Installing: jailServers(f).Installing,
	}
	if f.servers == 0 {
		return s, nil
	}
	switch _, err := os.Stat(f.bridge); {
	case f.bridge == "" || errors.Is(err, fs.ErrNotExist):
		s.Problem = "the program mcp-bridge is missing, so MCP servers cannot be started: build it with make build"
	case err != nil:
		s.Problem = "MCP servers cannot be started: " + err.Error()
	}
	var err error
	s.Packages, err = packages.Open(f.packages)
	return s, err
}

// watchServer bounds what a server writes to its home, and what an installation writes to its folder.
func watchServer(f serveFlags) func(slot.ID, bool, jail.Process) (runapi.Reason, string) {
	installing := jailServers(f).Installing
	return func(id slot.ID, installs bool, process jail.Process) (runapi.Reason, string) {
		if process.Home() > jail.HomeSize {
			return runapi.OutputLimit, fmt.Sprintf("The server wrote more than %d MiB to its home.", jail.HomeSize>>20)
		}
		if !installs {
			return "", ""
		}
		if c := quota.Tree(installing(id), packages.MaxFiles); c.Bytes > packages.MaxBytes || c.Files > packages.MaxFiles ||
			c.Hidden {
			return runapi.OutputLimit, fmt.Sprintf("The package with its dependencies has more than %d MiB or %d files.",
				packages.MaxBytes>>20, packages.MaxFiles)
		}
		return "", ""
	}
}

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/codeforge-mcp/codeforge/internal/python"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/packages"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/pool"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/quota"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// Limits of an MCP server that cannot be configured.
const (
	maxServerProcesses = 256 // threads included
	maxServerFileSize  = 128 << 20
)

// jailServers returns the configuration of the slots of MCP servers.
func jailServers(f serveFlags) jail.Servers {
	return jail.Servers{
		Slots: f.servers, Bridge: pathIfExists(f.bridge), Packages: f.packages, Programs: pathIfExists(f.programs),
		UV: pathIfExists(f.uv),
		Limits: jail.Limits{
			Memory: f.serverMemory, Processes: maxServerProcesses, Forks: true, FileSize: maxServerFileSize,
			OpenFiles: maxOpenFiles,
		},
	}
}

// pathIfExists returns the path if a file exists there, else "".
func pathIfExists(path string) string {
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// serverSlots prepares the folder of packages and returns the pool's configuration for servers. If the bridge is
// missing, only MCP servers are unavailable.
func serverSlots(f serveFlags, py sandboxapi.Python) (pool.Servers, error) {
	s := pool.Servers{
		Slots: f.servers, Memory: f.serverMemory, Watch: watchServer(f), Installing: jailServers(f).InstallFolder,
	}
	var err error
	if f.servers == 0 {
		if f.listen != "" && packages.HasPackages(f.packages) { // a pod whose image has packages of code
			s.Packages, err = packages.OpenStore(f.packages, python.MinorVersion(py.Version))
		}
		return s, err
	}
	switch _, err := os.Stat(f.bridge); {
	case f.bridge == "" || errors.Is(err, fs.ErrNotExist):
		s.Problem = "the program mcp-bridge is missing, so MCP servers cannot be started: build it with make build"
	case err != nil:
		s.Problem = "MCP servers cannot be started: " + err.Error()
	}
	switch {
	case py.Version == "":
		s.PyPIProblem = "packages of PyPI need Python: " + py.Problem
	case pathIfExists(f.uv) == "":
		s.PyPIProblem = "packages of PyPI are installed by uv, which is missing: make uv fetches it"
	}
	s.Packages, err = packages.OpenStore(f.packages, python.MinorVersion(py.Version))
	return s, err
}

// watchServer bounds the bytes that a server writes to its home, and the files that an installation writes.
func watchServer(f serveFlags) func(slot.ID, bool, jail.Process) (sandboxapi.Reason, string) {
	installing := jailServers(f).InstallFolder
	return func(id slot.ID, installs bool, process jail.Process) (sandboxapi.Reason, string) {
		if process.HomeBytes() > jail.HomeSize {
			return sandboxapi.OutputLimit, fmt.Sprintf("The server wrote more than %d MiB to its home.", jail.HomeSize>>20)
		}
		if !installs {
			return "", ""
		}
		// Seal would reject a larger package, but only after it has filled the disk.
		if c := quota.CountTree(installing(id), packages.MaxFiles); c.Bytes > packages.MaxBytes ||
			c.Files > packages.MaxFiles ||
			c.Hidden {
			return sandboxapi.OutputLimit, fmt.Sprintf("The package with its dependencies has more than %d MiB or %d files.",
				packages.MaxBytes>>20, packages.MaxFiles)
		}
		return "", ""
	}
}

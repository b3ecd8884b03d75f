// Package confine is the last step before a program of a slot. It gives this process the namespaces, identity and
// limits of the program, and execs the program. It runs in a separate process ("sandboxd enter"), so that sandboxd
// never changes: no thread of sandboxd calls setns. A failed step ends the process; code never starts with less
// protection.
package confine

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"

	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/seccomp"
)

// NoNetNS replaces the descriptor if the process keeps its network namespace.
const NoNetNS = "-"

// ProcessSpec describes the process and the program that it execs. A zero field changes nothing.
type ProcessSpec struct {
	// NetNS is the descriptor of the network namespace to enter, or -1.
	NetNS int
	// UID and GID are the new user and group; 0 keeps the current one. Groups are the supplementary groups.
	UID, GID int
	Groups   []int
	// MountNS, if not 0, is the descriptor of the mount namespace to enter (see StageBinds).
	MountNS int
	// Filter loads the seccomp filter with FilterOptions.
	Filter        bool
	FilterOptions seccomp.Options
	// Read, if not empty, lists files and directories. If the kernel has Landlock, the program can read and list only
	// these. Missing paths are skipped. Read needs NoNewPrivs.
	Read []string
	// Write, if not empty, lists files and directories as Read does. The program can change only these. If Landlock
	// restricts signals, the program can signal only its own processes. Without Landlock the plan fails, because Write is
	// for a program that runs as sandboxd's user.
	Write []string
	// Resource limits (setrlimit(2)); 0 keeps the current one. Core files are always off.
	Processes, FileSize, OpenFiles uint64
	// Gate, if not 0, is a descriptor: the process reads one byte from it before the exec. Before that, all steps are done
	// except restricting files and loading the filter, because a Go program cannot wait under the filter.
	Gate int
	// NoNewPrivs sets no_new_privs and drops every capability.
	NoNewPrivs bool
	// Keep lists the descriptors that the program inherits besides 0, 1 and 2.
	Keep []int
	// Dir is the working directory.
	Dir string
	// Argv is the program and its arguments, Env its whole environment.
	Argv, Env []string
}

// CommandLine returns the command line of "sandboxd enter" for the plan.
func (p ProcessSpec) CommandLine() []string {
	args := []string{"enter"}
	num := func(name string, v int) {
		if v != 0 {
			args = append(args, "--"+name, strconv.Itoa(v))
		}
	}
	num("uid", p.UID)
	num("gid", p.GID)
	for _, g := range p.Groups {
		num("group", g)
	}
	num("mount-ns", p.MountNS)
	if p.Filter {
		args = append(args, "--filter")
	}
	if p.FilterOptions.Processes {
		args = append(args, "--forks")
	}
	if p.FilterOptions.HostFolder {
		args = append(args, "--host-folder")
	}
	for _, path := range p.Read {
		args = append(args, "--read", path)
	}
	for _, path := range p.Write {
		args = append(args, "--write", path)
	}
	num("gate", p.Gate)
	num("processes", int(p.Processes))
	num("file-size", int(p.FileSize))
	num("open-files", int(p.OpenFiles))
	if p.NoNewPrivs {
		args = append(args, "--no-new-privs")
	}
	for _, fd := range p.Keep {
		num("keep", fd)
	}
	if p.Dir != "" {
		args = append(args, "--dir", p.Dir)
	}
	for _, e := range p.Env {
		args = append(args, "--env", e)
	}
	fd := NoNetNS
	if p.NetNS >= 0 {
		fd = strconv.Itoa(p.NetNS)
	}
	return append(append(args, fd, "--"), p.Argv...)
}

// ParsePlan is the inverse of Args. args are the arguments after "enter".
func ParsePlan(args []string) (ProcessSpec, error) {
	p := ProcessSpec{NetNS: -1}
	fs := flag.NewFlagSet("enter", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.IntVar(&p.UID, "uid", 0, "")
	fs.IntVar(&p.GID, "gid", 0, "")
	ints := func(name string, to *[]int) {
		fs.Func(name, "", func(s string) error {
			n, err := strconv.Atoi(s)
			*to = append(*to, n)
			return err
		})
	}
	ints("group", &p.Groups)
	ints("keep", &p.Keep)
	fs.IntVar(&p.MountNS, "mount-ns", 0, "")
	fs.BoolVar(&p.Filter, "filter", false, "")
	fs.BoolVar(&p.FilterOptions.Processes, "forks", false, "")
	fs.BoolVar(&p.FilterOptions.HostFolder, "host-folder", false, "")
	fs.Func("read", "", func(s string) error { p.Read = append(p.Read, s); return nil })
	fs.Func("write", "", func(s string) error { p.Write = append(p.Write, s); return nil })
	fs.IntVar(&p.Gate, "gate", 0, "")
	fs.Uint64Var(&p.Processes, "processes", 0, "")
	fs.Uint64Var(&p.FileSize, "file-size", 0, "")
	fs.Uint64Var(&p.OpenFiles, "open-files", 0, "")
	fs.BoolVar(&p.NoNewPrivs, "no-new-privs", false, "")
	fs.StringVar(&p.Dir, "dir", "", "")
	fs.Func("env", "", func(s string) error { p.Env = append(p.Env, s); return nil })
	if err := fs.Parse(args); err != nil {
		return p, fmt.Errorf("enter: %w", err)
	}
	rest := fs.Args()
	if len(rest) < 3 || rest[1] != "--" {
		return p, errors.New("enter: want FD -- ARGV, where FD is a descriptor or " + NoNetNS)
	}
	if rest[0] != NoNetNS {
		fd, err := strconv.Atoi(rest[0])
		if err != nil || fd < 3 {
			return p, fmt.Errorf("enter: %q is not the descriptor of a network namespace", rest[0])
		}
		p.NetNS = fd
	}
	p.Argv = rest[2:]
	return p, nil
}

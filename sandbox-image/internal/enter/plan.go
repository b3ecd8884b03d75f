// Package enter is the last step before a program of a slot: it gives this process the namespaces, identity and limits
// of the program, and execs it. It runs as a process of its own ("sandboxd enter"), so that sandboxd itself never
// changes: no thread of it calls setns, and a step that fails ends the process instead of starting code with less
// protection.
package enter

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
)

// NoNetNS is written instead of a descriptor when the process keeps its network namespace.
const NoNetNS = "-"

// Plan says what the process becomes and which program it then execs. A zero field changes nothing.
type Plan struct {
	// NetNS is the descriptor of the network namespace to enter, or -1.
	NetNS int
	// UID and GID to become; 0: stay. Groups are the supplementary groups.
	UID, GID int
	Groups   []int
	// MountNS, when not 0, is the descriptor of the mount namespace to enter (see Stage).
	MountNS int
	// Filter loads the seccomp filter. Forks lets the program start processes under it.
	Filter, Forks bool
	// Read, when not empty, lists files and directories. Where the kernel has Landlock, nothing outside of them can be
	// opened for reading or listed. Missing paths are skipped. It needs NoNewPrivs.
	Read []string
	// Write, when not empty, lists files and directories as Read does. Nothing else can be changed and, where Landlock
	// restricts signals, no process but the program's own can be signalled. Without Landlock the plan fails: Write is for
	// a program that runs as sandboxd's own user.
	Write []string
	// Resource limits (setrlimit(2)); 0: unchanged. Core files are always off.
	Processes, FileSize, OpenFiles uint64
	// Gate, when not 0, is a descriptor to read one byte from before the exec. By then everything is done but
	// restricting reads and loading the filter, under which a Go program could not wait.
	Gate int
	// NoNewPrivs sets no_new_privs, and drops every capability.
	NoNewPrivs bool
	// Keep lists the descriptors that the program inherits besides 0, 1 and 2.
	Keep []int
	// Dir is the working directory.
	Dir string
	// Argv is the program and its arguments; Env its whole environment.
	Argv, Env []string
}

// Args is the command line of "sandboxd enter" for the plan.
func (p Plan) Args() []string {
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
	if p.Forks {
		args = append(args, "--forks")
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

// Parse is the inverse of Args, for the arguments after "enter".
func Parse(args []string) (Plan, error) {
	p := Plan{NetNS: -1}
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
	fs.BoolVar(&p.Forks, "forks", false, "")
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

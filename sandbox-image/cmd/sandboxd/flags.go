package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// The modes of serve.
const (
	embedded  = "embedded"
	container = "container"
)

type serveFlags struct {
	mode, socket, deno, bwrap, ca  string
	runs, skills, tmp, state, code string
	out                            string // of embedded mode
	bridge, packages, programs     string
	typescript, uv, owner          string
	folders                        string // the folder of the host's folders
	listen, identity               string // for mcp-server in another pod
	health, closed, authority      string // of a pod that shares its proxy
	drain                          time.Duration
	slots, warm, servers           int
	memory, serverMemory           int64
	skillsReadonly, canaries       bool
	pythons                        []string // to try, in this order
	warmPython                     int
}

// isProxyShared reports whether this pod shares its proxy with others. Such a pod cannot give its slot a separate user.
func (f serveFlags) isProxyShared() bool { return f.authority != "" }

// parseServe parses the command line. The settings are the defaults of the options.
func parseServe(args []string, s settings.Settings) (serveFlags, error) {
	var f serveFlags
	fs := flag.NewFlagSet("serve", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	for name, to := range map[string]*string{
		"mode": &f.mode, "socket": &f.socket, "deno": &f.deno, "bwrap": &f.bwrap, "typescript": &f.typescript, "ca": &f.ca,
		"runs": &f.runs, "skills": &f.skills, "tmp": &f.tmp, "state": &f.state, "code": &f.code, "out": &f.out,
		"folders": &f.folders, "owner": &f.owner, "listen": &f.listen, "identity": &f.identity, "health": &f.health,
		"closed": &f.closed, "authority": &f.authority, "bridge": &f.bridge, "packages": &f.packages,
		"programs": &f.programs, "uv": &f.uv,
	} {
		fs.StringVar(to, name, "", "")
	}
	fs.Func("python", "", func(path string) error { f.pythons = append(f.pythons, path); return nil })
	fs.IntVar(&f.slots, "slots", s.Slots, "")
	fs.IntVar(&f.warm, "warm", s.Warm, "")
	fs.IntVar(&f.warmPython, "warm-python", s.WarmPython, "")
	fs.IntVar(&f.servers, "servers", s.Servers, "")
	fs.Int64Var(&f.memory, "memory", s.Memory, "")
	fs.Int64Var(&f.serverMemory, "server-memory", s.ServerMemory, "")
	fs.BoolVar(&f.canaries, "canaries", s.Canaries, "")
	fs.BoolVar(&f.skillsReadonly, "skills-readonly", s.SkillsReadonly, "")
	fs.DurationVar(&f.drain, "drain", 0, "")
	if err := fs.Parse(args); err != nil {
		return f, err
	}
	var errs []error
	if fs.NArg() > 0 {
		errs = append(errs, fmt.Errorf("serve takes no argument %q", fs.Arg(0)))
	}
	if f.mode != embedded && f.mode != container {
		errs = append(errs, fmt.Errorf("--mode %q: want embedded or container", f.mode))
	}
	if (f.listen == "") != (f.identity == "") {
		errs = append(errs, errors.New("--listen and --identity: want both or neither"))
	}
	if s := f.isProxyShared(); s != (f.health != "") || s && (f.mode != container || f.listen == "") || !s &&
		f.closed != "" {
		errs = append(errs, errors.New("--health, --authority and --closed: want the first two, perhaps with the third, "+
			"with --listen in a container whose proxy is another pod, and only there"))
	}
	// An invalid address could not be reached and would therefore count as closed.
	if at, err := netip.ParseAddrPort(f.closed); f.closed != "" && (err != nil || !at.Addr().Is4()) {
		errs = append(errs, fmt.Errorf("--closed %q: want an IPv4 address with its port", f.closed))
	}
	if f.slots < 1 || f.slots > slot.Max {
		errs = append(errs, fmt.Errorf("--slots %d: want 1 to %d", f.slots, slot.Max))
	}
	if f.warm < 0 || f.warm > f.slots {
		errs = append(errs, fmt.Errorf("--warm %d: want 0 to the number of slots, %d", f.warm, f.slots))
	}
	if f.warmPython < 0 || f.warmPython > f.slots {
		errs = append(errs, fmt.Errorf("--warm-python %d: want 0 to the number of slots, %d", f.warmPython, f.slots))
	}
	if f.memory < 128<<20 {
		errs = append(errs, fmt.Errorf("--memory %d: want at least %d bytes (128 MiB)", f.memory, 128<<20))
	}
	if f.servers < 0 || f.servers > slot.MaxServers {
		errs = append(errs, fmt.Errorf("--servers %d: want 0 to %d", f.servers, slot.MaxServers))
	}
	if f.serverMemory < 64<<20 {
		errs = append(errs, fmt.Errorf("--server-memory %d: want at least %d bytes (64 MiB)", f.serverMemory, 64<<20))
	}
	for _, p := range []struct {
		name string
		path *string
	}{
		{"socket", &f.socket}, {"deno", &f.deno}, {"ca", &f.ca}, {"runs", &f.runs}, {"skills", &f.skills},
		{"tmp", &f.tmp}, {"state", &f.state},
	} {
		if *p.path == "" {
			errs = append(errs, fmt.Errorf("--%s is missing", p.name))
			continue
		}
		abs, err := filepath.Abs(*p.path)
		errs = append(errs, err)
		*p.path = abs
	}
	f.code = cmp.Or(f.code, filepath.Join(f.state, "code"))
	f.out = cmp.Or(f.out, filepath.Join(f.state, "out"))
	f.packages = cmp.Or(f.packages, filepath.Join(f.state, "packages"))
	for _, path := range []*string{
		&f.code, &f.out, &f.packages, &f.bridge, &f.programs, &f.typescript, &f.uv, &f.folders,
	} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		errs = append(errs, err)
		*path = abs
	}
	return f, errors.Join(errs...)
}

package jail

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/confine"
)

var update = flag.Bool("update", false, "write golden files")

// golden compares an argv, one argument a line; an option's values share its line.
func golden(t *testing.T, name string, argv []string) {
	t.Helper()
	var b strings.Builder
	for i, a := range argv {
		if i > 0 && (strings.HasPrefix(a, "-") || a == "run") {
			b.WriteString("\n")
		} else if i > 0 {
			b.WriteString(" ")
		}
		b.WriteString(strings.Replace(a, installer, "INSTALLER", 1))
	}
	b.WriteString("\n")
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || string(want) != b.String() {
		t.Errorf("%s (%v):\n%s", name, err, b.String())
	}
}

// Promise: least-privilege
func TestArgv(t *testing.T) {
	p := bwrapPlan{
		bwrapBox: bwrapBox{bwrap: "/usr/bin/bwrap", uid: 20003, gid: 20000, infoFD: infoFD, gateFD: gateFD, filterFD: filterFD},
		net:      []string{"*.example.com", "api.example.org"}, tz: "UTC", memory: 1 << 30, code: "slot3-1",
	}
	p.cache = []string{"dep_analysis_cache_v2", "dep_analysis_cache_v2-wal"}
	golden(t, "bwrap", p.commandLine())
	p.net, p.cache, p.private, p.bait = nil, nil, true, "Canary"
	golden(t, "bwrap-closed", p.commandLine())
	p.packages = CodePackages{Set: "npm:@scope/name@1.2.3 npm:x@2.0.0", Registry: "https://packages.example.com/"}.withDir(packagesPath)
	golden(t, "bwrap-packages", p.commandLine())
}

// TestRoot: a sandbox sees only these files of the host. A private one sees no folder that runs share.
// Promise: least-privilege
func TestRoot(t *testing.T) {
	e := &Embedded{cfg: EmbeddedConfig{
		CA: "/ca/ca.pem", Work: "/state/work", Out: "/out", Runs: "/state/runs", Skills: "/state/skills", Tmp: "/state/tmp",
	}}
	deno := []confine.StageEntry{{Kind: confine.ReadOnly, Path: denoPath, Source: "/opt/deno"}}
	show := func(private bool) (lines []string) {
		for _, entry := range e.interpreterRoot(denoPath, deno, stageKind{private: private}, nil) {
			lines = append(lines, fmt.Sprint("- ", entry.Kind, " ", entry.Path, " ", entry.Source))
		}
		return lines
	}
	golden(t, "root", show(false))
	e.cfg.SkillsReadonly = true
	golden(t, "root-readonly", show(false))
	golden(t, "root-private", show(true))
	e.cfg.Servers = Servers{Slots: 1, Packages: "/state/packages"}
	golden(t, "root-packages", show(true))
}

func TestContainerPlan(t *testing.T) {
	c := &Container{cfg: ContainerConfig{
		Slots: 8, Deno: "/usr/local/bin/deno", CA: "/etc/codeforge/ca/ca.pem", Work: "/code",
		Limits: Limits{Memory: 1 << 30, Processes: 256, FileSize: 128 << 20, OpenFiles: 1024}, RestrictWrites: true,
	}}
	plan := c.newPlan(InterpreterSpec{Slot: slot.ID(3), Net: []string{"*"}, TZ: "UTC"})
	golden(t, "container", plan.CommandLine())
	back, err := confine.ParsePlan(plan.CommandLine()[1:])
	if err != nil || strings.Join(back.CommandLine(), " ") != strings.Join(plan.CommandLine(), " ") {
		t.Errorf("%v %v", back.CommandLine(), err)
	}
}

// The compiler sees itself and the slot's code, and none of what runs share.
func TestCompilerPlans(t *testing.T) {
	limits := Limits{Memory: 1 << 30, Processes: 256, FileSize: 128 << 20, OpenFiles: 1024}
	args := []string{"-p", "types/typed.json"}
	e := &Embedded{ownUIDs: true, cfg: EmbeddedConfig{Bwrap: "/usr/bin/bwrap", TypeScript: "/opt/typescript", Limits: limits}}
	golden(t, "compiler-embedded", e.compilerPlan(&bwrapProcess{slot: 3, dir: "/state/work/slot3-1"}, args).CommandLine())
	c := &Container{cfg: ContainerConfig{TypeScript: "/usr/local/lib/typescript", Work: "/code", Limits: limits, RestrictWrites: true}}
	plan := c.compilerPlan(&containerProcess{slot: 3, group: slot.GroupID}, args)
	golden(t, "compiler-container", plan.CommandLine())
	for _, path := range []string{TmpDir, SkillsDir, RunsDir, "/proc", "/etc"} {
		if slices.Contains(plan.Read, path) {
			t.Errorf("the compiler reads %s", path)
		}
	}
}

// A server sees none of the paths of runs, and an installation writes to its own folder alone.
// Promise: server-confinement
func TestServerPlans(t *testing.T) {
	servers := Servers{
		Slots: 8, Bridge: "/usr/local/bin/mcp-bridge", Packages: "/packages", Programs: "/programs", UV: "/usr/local/bin/uv",
		Limits: Limits{Memory: 512 << 20, Processes: 256, Forks: true, FileSize: 128 << 20, OpenFiles: 1024},
	}
	e := &Embedded{ownUIDs: true, cfg: EmbeddedConfig{Bwrap: "/usr/bin/bwrap", CA: "/ca/ca.pem", Servers: servers}}
	c := &Container{cfg: ContainerConfig{
		Slots: 8, Deno: "/usr/local/bin/deno", CA: "/etc/codeforge/ca/ca.pem", Work: "/code", Servers: servers,
		RestrictWrites: true,
	}}
	const pkg, registry = "npm:@scope/name@1.2.3", "https://packages.example.com/"
	const pypi = "pypi:name[extra]@1.2.3 other<2"
	python := []confine.StageEntry{
		{Kind: confine.ReadOnly, Path: pythonPath, Source: "/usr/bin/python3.11"},
		{Kind: confine.ReadOnly, Path: "/usr/lib/python3.11", Source: "/usr/lib/python3.11"},
		{Kind: confine.Hidden, Path: "/usr/lib/python3.11/site-packages"},
		{Kind: confine.ReadOnly, Path: environmentDir, Source: "/home/user/venv/lib"},
		{Kind: confine.Link, Path: SystemCA, Source: caPath},
	}
	for name, s := range map[string]Server{
		"server":         {Slot: 100, TZ: "UTC", Package: pkg, Registry: registry},
		"command":        {Slot: 101, TZ: "UTC"},
		"python":         {Slot: 103, TZ: "UTC", Package: pypi, Registry: registry},
		"python-install": {Slot: 104, TZ: "UTC", Package: pypi, Registry: registry, Install: true},
		"install":        {Slot: 102, TZ: "UTC", Package: pkg, Registry: registry, Install: true, Frozen: true},
	} {
		golden(t, name+"-embedded", e.serverPlan(s, python).CommandLine())
		plan := c.serverPlan(s)
		golden(t, name+"-container", plan.CommandLine())
		back, err := confine.ParsePlan(plan.CommandLine()[1:])
		if err != nil || strings.Join(back.CommandLine(), " ") != strings.Join(plan.CommandLine(), " ") {
			t.Errorf("%v %v", back.CommandLine(), err)
		}
		for _, path := range []string{TmpDir, SkillsDir, RunsDir, CodeDir} {
			if slices.Contains(plan.Read, path) || strings.HasPrefix(plan.Dir, path) {
				t.Errorf("%s reads %s", name, path)
			}
		}
	}
}

// Without hosts there must be no --allow-net at all: without a value it would allow everything.
func TestNoHostsMeansNoPermission(t *testing.T) {
	for _, a := range (denoProcess{dir: "/code", out: OutDir, ca: "/ca.pem", memory: 1 << 30}).args() {
		if strings.HasPrefix(a, "--allow-net") {
			t.Error(a)
		}
	}
}

// TestStartsOnFullDisk: starts that fail because the disk is full, again and again, leave nothing there. It needs root
// for a small file system.
func TestStartsOnFullDisk(t *testing.T) {
	work := t.TempDir()
	if err := syscall.Mount("small", work, "tmpfs", 0, "size=4k"); err != nil {
		testkit.SkipBecause(t, "mounting a small file system: "+err.Error())
	}
	t.Cleanup(func() { _ = syscall.Unmount(work, syscall.MNT_DETACH) })
	e := &Embedded{cfg: EmbeddedConfig{Work: work, Out: t.TempDir()}}
	for range 10 {
		if _, err := e.Start(InterpreterSpec{Canary: strings.Repeat("c", 32)}, Stdio{}); err == nil {
			t.Fatal("there was room")
		}
	}
	if left, err := os.ReadDir(work); err != nil || len(left) > 0 {
		t.Errorf("%d folders are left, %v", len(left), err)
	}
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/bench"
	"github.com/codeforge-mcp/codeforge/e2e/bench/arena"
	"github.com/codeforge-mcp/codeforge/e2e/bench/engine"
	"github.com/codeforge-mcp/codeforge/e2e/bench/runs"
	"github.com/codeforge-mcp/codeforge/e2e/bench/traffic"
	"github.com/codeforge-mcp/codeforge/internal/python"
)

const rounds = 3

// proxyPart measures the proxies, in an arena: this program started again in new namespaces.
func proxyPart(ctx context.Context, o options) (bench.Report, error) {
	for _, tool := range []string{"iptables"} {
		if _, err := exec.LookPath(tool); err != nil {
			return bench.Report{Notes: []string{"the table of the proxy is left out: " + tool + " is not installed"}}, nil
		}
	}
	cfg := traffic.Config{Binary: filepath.Join(o.bin, "egress-proxy"), Iron: o.iron, Rounds: rounds, Unit: 1500 * time.Millisecond, Growth: true}
	if o.quick {
		cfg.Unit, cfg.Growth = 300*time.Millisecond, false
	}
	if o.profiles {
		cfg.Profiles = o.out
		if err := os.MkdirAll(o.out, 0o755); err != nil { //nolint:gosec // results for everybody
			return bench.Report{}, err
		}
	}
	if o.rounds > 0 {
		cfg.Rounds = o.rounds
	}
	return measureInArena(ctx, "traffic", cfg)
}

// measureInArena starts this program again in an arena, and reads its report.
func measureInArena(ctx context.Context, what string, cfg any) (bench.Report, error) {
	arg, err := json.Marshal(cfg)
	if err != nil {
		return bench.Report{}, err
	}
	read, written, err := os.Pipe()
	if err != nil {
		return bench.Report{}, err
	}
	defer read.Close()
	runtime.LockOSThread() // Pdeathsig follows the thread
	defer runtime.UnlockOSThread()
	cmd := arena.Command(what, string(arg))
	cmd.ExtraFiles = []*os.File{written}
	err = cmd.Start()
	_ = written.Close()
	if err != nil {
		return bench.Report{}, fmt.Errorf("making namespaces: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() }) // process 1: its pid namespace ends with it
	defer stop()
	var report bench.Report
	decoded := json.NewDecoder(read).Decode(&report)
	if err := cmd.Wait(); err != nil {
		return report, fmt.Errorf("measuring in namespaces: %w", err)
	}
	return report, decoded
}

// reportFile is where the process in the arena writes its report.
const reportFile = 3

// calls are what is measured of runs in an arena.
var calls = map[string]func(context.Context, runs.Config) (bench.Report, error){
	"call": runs.Call, "call in Python": runs.CallPython, "cost": runs.Cost,
}

// inArena is the first process in the arena.
func inArena(args []string) error {
	if len(args) != 2 {
		return errors.New("arena: want what to measure, and a config")
	}
	measure := func(ctx context.Context) (bench.Report, error) {
		var cfg traffic.Config
		if err := json.Unmarshal([]byte(args[1]), &cfg); err != nil {
			return bench.Report{}, err
		}
		return traffic.Run(ctx, cfg)
	}
	if call, ok := calls[args[0]]; ok {
		measure = func(ctx context.Context) (bench.Report, error) {
			var cfg runs.Config
			if err := json.Unmarshal([]byte(args[1]), &cfg); err != nil {
				return bench.Report{}, err
			}
			return call(ctx, cfg)
		}
	}
	if err := arena.Make(); err != nil {
		return err
	}
	report, err := measure(context.Background())
	if err != nil {
		return err
	}
	return json.NewEncoder(os.NewFile(reportFile, "report")).Encode(report)
}

func runsConfig(o options) runs.Config {
	cfg := runs.Config{Bin: o.bin, Deno: o.deno, Root: o.root, Rounds: rounds, Each: 20, Growth: true}
	if o.quick {
		cfg.Each, cfg.Growth = 6, false
	}
	if o.rounds > 0 {
		cfg.Rounds = o.rounds
	}
	return cfg
}

// runsPart measures execute_code in embedded mode.
func runsPart(ctx context.Context, o options) (bench.Report, error) {
	report, err := runs.Embedded(ctx, runsConfig(o))
	if err != nil {
		return report, err
	}
	pinned, err := runs.Pinned(ctx, runsConfig(o))
	if err != nil {
		pinned.Notes = append(pinned.Notes, "the rows of pinned packages are left out: "+err.Error())
	}
	report.Merge(pinned)
	call, err := measureInArena(ctx, "call", runsConfig(o))
	if err != nil {
		call.Notes = append(call.Notes, "the row of one call is left out: "+err.Error())
	}
	report.Merge(call)
	return report, nil
}

// costPart measures the processor time of runs in embedded mode.
func costPart(ctx context.Context, o options) (bench.Report, error) {
	return measureInArena(ctx, "cost", runsConfig(o))
}

// pythonPart measures execute_code in Python, in embedded mode.
func pythonPart(ctx context.Context, o options) (bench.Report, error) {
	cfg := runsConfig(o)
	found, err := python.FindInterpreter(ctx, python.ListCandidates(os.Getenv("PYTHON_PATH")))
	if err != nil {
		return bench.Report{Notes: []string{"the table of Python is left out: " + err.Error()}}, nil
	}
	cfg.Python = found.Program
	report, err := runs.Python(ctx, cfg)
	if err != nil {
		return report, err
	}
	call, err := measureInArena(ctx, "call in Python", cfg)
	if err != nil {
		call.Notes = append(call.Notes, "the row of one call from Python is left out: "+err.Error())
	}
	report.Merge(call)
	return report, nil
}

// printingPart measures runs that print much, in embedded mode, in Python too if there is one.
func printingPart(ctx context.Context, o options) (bench.Report, error) {
	cfg := runsConfig(o)
	if found, err := python.FindInterpreter(ctx, python.ListCandidates(os.Getenv("PYTHON_PATH"))); err == nil {
		cfg.Python = found.Program
	}
	return runs.Printing(ctx, cfg)
}

// serversPart measures calls of MCP servers in embedded mode.
func serversPart(ctx context.Context, o options) (bench.Report, error) {
	return runs.Servers(ctx, runsConfig(o))
}

// dockerPart measures execute_code in Docker mode.
func dockerPart(ctx context.Context, o options) (bench.Report, error) {
	return runs.Docker(ctx, runsConfig(o))
}

// enginePart measures the scan engine.
func enginePart(ctx context.Context, o options) (bench.Report, error) {
	if o.quick {
		return engine.Run(ctx, o.root, 1, "50ms")
	}
	return engine.Run(ctx, o.root, rounds, "200ms")
}

// Command bench measures CodeForge against its peers on this machine and prints the tables of docs/contribute/performance.md.
//
//	bench [--out DIR] [--bin DIR] [--deno PATH] [--only runs,cost,python,printing,servers,docker,proxy,engine] [--rounds N] [--profiles]
//	bench --redraw [--out DIR]
//
// It writes report.json and charts into the directory of --out. With BENCH_QUICK=1 it takes about three minutes and
// leaves out the growth curves. Its exit code does not depend on the results.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/bench"
	"github.com/codeforge-mcp/codeforge/e2e/bench/arena"
	"github.com/codeforge-mcp/codeforge/e2e/bench/origin"
	"github.com/codeforge-mcp/codeforge/e2e/bench/runs"
)

func main() {
	log.SetFlags(log.Ltime)
	log.SetPrefix("bench: ")
	var err error
	switch {
	case arena.Stage() == "enter":
		err = arena.Enter()
	case arena.Stage() == "arena":
		err = inArena(os.Args[1:])
	default:
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err = run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench: "+err.Error())
		os.Exit(1)
	}
}

// options are the command line.
type options struct {
	out, bin, deno, root string
	iron                 string // iron-proxy's program
	only                 map[string]bool
	quick, profiles      bool
	redraw               bool
	rounds               int
}

func parse(args []string, getenv func(string) string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.root, "root", ".", "`DIR` of the source tree")
	fs.StringVar(&o.out, "out", "bench/out", "`DIR` for report.json and the charts")
	fs.StringVar(&o.bin, "bin", "bin", "`DIR` of CodeForge's programs")
	fs.StringVar(&o.deno, "deno", getenv("DENO_PATH"), "`PATH` of Deno (default: .tools/deno)")
	only := fs.String("only", "runs,cost,python,printing,servers,docker,proxy,engine", "the `PARTS` to measure")
	fs.BoolVar(&o.profiles, "profiles", false, "also write CPU profiles of the proxy to --out")
	fs.BoolVar(&o.redraw, "redraw", false, "measure nothing, draw the charts again from the report.json in --out")
	fs.IntVar(&o.rounds, "rounds", 0, "`N` rounds (default 3)")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if o.deno == "" {
		o.deno = filepath.Join(o.root, ".tools", "deno")
	}
	if o.iron = getenv("IRON_PROXY"); o.iron == "" {
		o.iron = filepath.Join(o.root, ".tools", "iron-proxy")
	}
	o.quick = getenv("BENCH_QUICK") != "" && getenv("BENCH_QUICK") != "0"
	o.only = map[string]bool{}
	for part := range strings.SplitSeq(*only, ",") {
		o.only[part] = true
	}
	for _, path := range []*string{&o.root, &o.out, &o.bin, &o.deno, &o.iron} {
		var err error
		if *path, err = filepath.Abs(*path); err != nil {
			return o, err
		}
	}
	return o, nil
}

// run is the command outside the arena.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	if len(args) == 1 && args[0] == runs.NoopServer {
		return runs.ServeNoop(ctx)
	}
	if len(args) == 3 && args[0] == "origin" {
		return origin.Serve(args[1], args[2], arena.Origin)
	}
	o, err := parse(args, getenv, stderr)
	if err != nil {
		return err
	}
	if o.redraw {
		return redraw(o.out)
	}
	report := bench.Report{Started: time.Now().UTC(), Machine: machine(), Quick: o.quick}
	for _, part := range []struct {
		name string
		run  func(context.Context, options) (bench.Report, error)
	}{{"proxy", proxyPart}, {"runs", runsPart}, {"cost", costPart}, {"python", pythonPart}, {"printing", printingPart}, {"servers", serversPart}, {"docker", dockerPart}, {"engine", enginePart}} {
		if !o.only[part.name] {
			continue
		}
		got, err := part.run(ctx, o)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if err != nil {
			got.Notes = append(got.Notes, part.name+" failed: "+err.Error())
		}
		report.Merge(got)
	}
	report.Sort()
	report.Seconds = time.Since(report.Started).Seconds()
	if err := bench.Print(stdout, report); err != nil {
		return err
	}
	return write(o.out, report, stdout)
}

// write writes the files.
func write(dir string, report bench.Report, stdout io.Writer) error {
	if err := bench.Pictures(dir, report); err != nil {
		return err
	}
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // results for everybody
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "report.json"), append(text, '\n'), 0o644); err != nil { //nolint:gosec // see above
		return err
	}
	fmt.Fprintln(stdout, "written: report.json and pictures in "+dir)
	return nil
}

// redraw draws the charts of an existing report.
func redraw(dir string) error {
	path := filepath.Join(dir, "report.json")
	text, err := os.ReadFile(path) //nolint:gosec // a path of the command line
	if err != nil {
		return err
	}
	var report bench.Report
	if err := json.Unmarshal(text, &report); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return bench.Pictures(dir, report)
}

// machine describes the machine of the measurement.
func machine() map[string]string {
	m := map[string]string{"cpus": fmt.Sprint(runtime.NumCPU()), "arch": runtime.GOARCH, "go": runtime.Version()}
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(data)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m["cpu"] = strings.TrimSpace(value)
				break
			}
		}
	}
	if data, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m["kernel"] = strings.TrimSpace(string(data))
	}
	if data, err := os.ReadFile("/proc/loadavg"); err == nil {
		m["load at start"] = strings.TrimSpace(string(data))
	}
	return m
}

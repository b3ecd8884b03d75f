package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/codeforge/internal/bundle"
	"github.com/codeforge-mcp/codeforge/codeforge/internal/server"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

func runCommand() command {
	return command{
		name: "run", usage: "run FILE.ts [--apis a,b] [--receipt]", summary: "run a script as a model would, through MCP",
		details: `
FILE.ts may be - for standard input. What FILE.ts imports as "./lib.ts" is taken along, if it is a module below the
script's folder or the working directory. The script's output goes to standard output, or to standard error if the
script failed; notes and the receipt go to standard error.

Exit codes: the script's own; 124 it reached its time limit; 125 it could not be run; 130 interrupted;
2 wrong command line.`,
		setup: func(fs *flag.FlagSet) func(context.Context, *Env, []string) error {
			t := targetFlags(fs)
			apis := fs.String("apis", "", "`NAMES` of the APIs the run may use, separated by commas (default: all)")
			receipt := fs.Bool("receipt", false, "print the run's receipt: what the proxy did")
			timeout := fs.Duration("timeout", 0, "time limit, e.g. `30s` (default: TIMEOUT_DEFAULT)")
			asJSON := jsonFlag(fs)
			return func(ctx context.Context, e *Env, args []string) error {
				if len(args) != 1 {
					return usageError("run takes one FILE.ts (or - for standard input), got %d arguments", len(args))
				}
				script, err := readScript(e, args[0])
				if err != nil {
					return &exitError{ExitNotRun, err}
				}
				c, err := t.config(e)
				if err != nil {
					return &exitError{ExitNotRun, err}
				}
				r, err := execute(ctx, e, c, script.Code, list(*apis), *timeout)
				if ctx.Err() != nil {
					return &exitError{ExitInterrupted, errors.New("interrupted; the run was stopped")}
				}
				if err != nil {
					return &exitError{ExitNotRun, err}
				}
				if r.Failed {
					r.Output = script.Originals(r.Output)
				}
				return showResult(e, r, *receipt, *asJSON)
			}
		},
	}
}

func readScript(e *Env, name string) (bundle.Script, error) {
	var in io.Reader = e.Stdin
	if name != "-" {
		f, err := os.Open(name) //nolint:gosec // the file the user names
		if err != nil {
			return bundle.Script{}, fmt.Errorf("reading the script: %w", err)
		}
		defer f.Close()
		in = f
	}
	code, err := io.ReadAll(io.LimitReader(in, runapi.MaxCode+1))
	if err != nil {
		return bundle.Script{}, fmt.Errorf("reading the script: %w", err)
	}
	if len(code) > runapi.MaxCode {
		return bundle.Script{}, fmt.Errorf("the script is over %d bytes", runapi.MaxCode)
	}
	if name == "-" {
		return bundle.Script{Code: string(code)}, nil
	}
	return bundle.Read(name, string(code))
}

// list splits a comma-separated flag.
func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

func execute(
	ctx context.Context, e *Env, c server.Config, code string, apis []string, timeout time.Duration,
) (server.Result, error) {
	p := startProgress(e, "running")
	defer p.stop()
	s, err := server.Connect(ctx, c, server.Options{Progress: p.say})
	if err != nil {
		return server.Result{}, err
	}
	defer s.Close()
	if s.Place.State == nil {
		p.say("running at " + s.Place.Name())
	}
	r, err := s.Execute(ctx, code, apis, timeout.Seconds())
	return r, err
}

// showResult prints a result and returns the script's exit code as an error.
func showResult(e *Env, r server.Result, receipt, asJSON bool) error {
	if asJSON {
		if err := printJSON(e.Stdout, r); err != nil {
			return err
		}
		return silentUnlessZero(exitCode(r))
	}
	out := e.Stdout
	if r.Failed {
		out = e.Stderr
	}
	text := r.Output
	if r.Failed && text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if _, err := io.WriteString(out, text); err != nil {
		return err
	}
	for _, n := range r.Notes {
		fmt.Fprintf(e.Stderr, "note: %s\n", strings.ReplaceAll(n, "\n", "\n      "))
	}
	if receipt && r.Receipt != nil {
		rest := *r.Receipt
		rest.Hints = slices.DeleteFunc(slices.Clone(rest.Hints), func(h controlapi.Hint) bool {
			return slices.Contains(r.Notes, h.Voice().Person)
		})
		printReceipt(newPainter(e, e.Stderr), e.Stderr, rest)
	}
	return silentUnlessZero(exitCode(r))
}

func silentUnlessZero(code int) error {
	if code == 0 {
		return nil
	}
	return silent(code)
}

// exitCode is the exit code of codeforge run.
func exitCode(r server.Result) int {
	switch {
	case !r.Failed:
		return 0
	case r.Exit == nil:
		return ExitNotRun
	case r.Exit.Reason == runapi.Timeout:
		return ExitTimeout
	case r.Exit.Code == 0:
		return ExitFailed
	}
	return r.Exit.Code
}

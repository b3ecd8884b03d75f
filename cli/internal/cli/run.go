package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

func runCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "run FILE [ARG...]", Short: "run a script as a model would, through MCP",
		Args: cobra.ArbitraryArgs,
	}
	t := targetFlags(c.Flags())
	code := c.Flags().StringP("eval", "e", "", "run `CODE` instead of a file")
	apis := c.Flags().String("apis", "", "`NAMES` of the APIs the run may use, separated by commas (default: all)")
	dryRun := c.Flags().Bool("dry-run", false, "send only reads, and make a plan of the writes: see codeforge plan")
	out := c.Flags().String("out", "", "save the files that the script writes to /out in the folder `DIR`")
	files := c.Flags().StringArray("file", nil, "let the script read `FILE` as /files/NAME (repeatable)")
	receipt := c.Flags().Bool("receipt", false, "print the run's receipt: its exchanges")
	named := c.Flags().String("language", "",
		"language `L` of the script, typescript or python (default: by its name)")
	timeout := c.Flags().Duration("timeout", 0, "time limit, e.g. `30s` or 2m (default: TIMEOUT_DEFAULT)")
	asJSON := jsonFlag(c.Flags())
	c.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		written := strings.ToLower(*named)
		if written != "" && !slices.Contains(languages, written) {
			return usageError("--language %q%s", written, suggestName(written, "", languages))
		}
		if *timeout < 0 || *timeout == 0 && c.Flags().Changed("timeout") {
			return usageError("--timeout %s: want a time like 30s or 2m", *timeout)
		}
		language := sandboxapi.Language(written)
		script, hasStdin := *code, true
		if script == "" {
			if len(args) == 0 {
				return usageError("run takes one FILE.ts or FILE.py (or - for standard input), or -e CODE")
			}
			if language == "" && strings.HasSuffix(args[0], ".py") {
				language = sandboxapi.LanguagePython
			}
			var err error
			if script, err = readScript(e, args[0]); err != nil {
				return &exitError{ExitNotRun, err}
			}
			hasStdin, args = args[0] != "-", args[1:]
		}
		input, err := readInput(e, *files, hasStdin && mayReadStdin(script))
		if err != nil {
			return &exitError{ExitNotRun, err}
		}
		if language.IsPython() && len(args) > 0 {
			return usageError("run takes arguments only for scripts in TypeScript, got %d for a script in Python", len(args))
		}
		c, err := t.newConfig(e)
		if err != nil {
			return &exitError{ExitNotRun, err}
		}
		r, err := executeRun(ctx, e, c, mcpclient.Run{
			Code: withArguments(script, args), Language: language, APIs: splitList(*apis),
			Timeout: timeout.Seconds(), DryRun: *dryRun, Input: input,
		}, *out)
		// A run that ended before Ctrl-C keeps its own exit code.
		if ctx.Err() != nil && (r.Exit == nil || r.Exit.Reason == sandboxapi.Cancelled) {
			return &exitError{ExitInterrupted, errors.New("interrupted; the run was stopped")}
		}
		if err != nil {
			return &exitError{ExitNotRun, err}
		}
		return showResult(e, r, *receipt, *asJSON)
	}
	return c
}

// languages are the values of --language.
var languages = []string{string(sandboxapi.LanguageTypeScript), string(sandboxapi.LanguagePython)}

// withArguments puts the arguments of a script before its code, on the first line, so that line numbers stay. A model's
// code has no arguments, so code without arguments stays unchanged.
func withArguments(code string, args []string) string {
	if len(args) == 0 {
		return code
	}
	if rest, found := strings.CutPrefix(code, "#!"); found {
		code = "//" + rest // a hashbang is valid only at the very start
	}
	text, _ := json.Marshal(args) // strings always marshal
	return "Object.defineProperty(Deno, \"args\", { value: Object.freeze(" + string(text) + ") }); " + code
}

func readScript(e *Env, name string) (string, error) {
	var in io.Reader = e.Stdin
	if name != "-" {
		f, err := os.Open(name) //nolint:gosec // the file the user names
		if err != nil {
			return "", fmt.Errorf("reading the script: %w", err)
		}
		defer f.Close()
		in = f
	}
	// One byte more than allowed shows that the script is too long.
	code, err := io.ReadAll(io.LimitReader(in, sandboxapi.MaxCode+1))
	if err != nil {
		return "", fmt.Errorf("reading the script: %w", err)
	}
	if len(code) > sandboxapi.MaxCode {
		return "", fmt.Errorf("the script is over %d bytes", sandboxapi.MaxCode)
	}
	return string(code), nil
}

// mayReadStdin reports whether a script may read standard input. Other scripts must not wait for its end.
func mayReadStdin(code string) bool {
	return strings.Contains(code, "stdin") || strings.Contains(code, "input(")
}

// readInput reads files and, if it is not a terminal, standard input. Without any, it returns nil.
func readInput(e *Env, paths []string, stdin bool) (*sandboxapi.Input, error) {
	in := &sandboxapi.Input{}
	for _, path := range paths {
		name := filepath.Base(path)
		if _, twice := in.Files[name]; twice {
			return nil, fmt.Errorf("--file: two files have the name %s", name)
		}
		f, err := os.Open(path) //nolint:gosec // the file the user names
		if err != nil {
			return nil, fmt.Errorf("--file: %w", err)
		}
		data, err := readBounded(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("--file %s: %w", path, err)
		}
		if in.Files == nil {
			in.Files = map[string][]byte{}
		}
		in.Files[name] = data
	}
	if stdin && !term.IsTerminal(int(e.Stdin.Fd())) {
		var err error
		if in.Stdin, err = readBounded(e.Stdin); err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
	}
	if len(in.Files) == 0 && len(in.Stdin) == 0 {
		return nil, nil
	}
	if err := in.Validate(); err != nil {
		return nil, fmt.Errorf("--file: %w", err)
	}
	return in, nil
}

// readBounded reads at most sandboxapi.MaxInput bytes; more are an error.
func readBounded(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, sandboxapi.MaxInput+1))
	if err == nil && len(data) > sandboxapi.MaxInput {
		err = fmt.Errorf("more than %d MiB; codeforge folder add gives code a folder", sandboxapi.MaxInput>>20)
	}
	return data, err
}

// splitList splits a comma-separated flag.
func splitList(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

// executeRun runs a script. It saves the run's files in a folder, unless the folder's name is empty.
func executeRun(
	ctx context.Context, e *Env, c mcpclient.Config, run mcpclient.Run, out string,
) (mcpclient.Result, error) {
	p := startProgress(e, "running")
	defer p.stop()
	s, err := mcpclient.Connect(ctx, c, mcpclient.Options{Progress: func(message string) {
		p.setMessage(message)
		if message == approvalapi.Waiting {
			p.printLine(approvalText(e))
		}
	}})
	if err != nil {
		return mcpclient.Result{}, err
	}
	defer s.Close()
	if s.Place.State == nil {
		p.setMessage("running at " + s.Place.Name())
	}
	r, err := s.RunCode(ctx, run)
	if err == nil && out != "" {
		err = saveRunFiles(ctx, e, s, r, out)
	}
	return r, err
}

// approvalText explains how a person decides about a held request.
func approvalText(e *Env) string {
	place := "In another terminal"
	if e.isInContainer() {
		place = "On the host"
	}
	return "A request waits for your approval. " + place + ", codeforge held shows it, and codeforge approve asks you " +
		"about it."
}

// showResult prints a result and returns the script's exit code as an error.
func showResult(e *Env, r mcpclient.Result, receipt, asJSON bool) error {
	if asJSON {
		return cmp.Or(printJSON(e.Stdout, r), silentError(exitCode(r)))
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
	fmt.Fprint(e.Stderr, r.Stderr)
	for _, n := range r.Notes {
		fmt.Fprintf(e.Stderr, "note: %s\n", strings.ReplaceAll(n, "\n", "\n      "))
	}
	if receipt && r.Receipt != nil {
		rest := *r.Receipt
		rest.Hints = slices.DeleteFunc(slices.Clone(rest.Hints), func(h proxyapi.Hint) bool {
			// The notes have been printed above.
			return slices.Contains(r.Notes, h.VoiceText().Person)
		})
		printReceipt(newPainter(e, e.Stderr), e.Stderr, rest)
	}
	return silentError(exitCode(r))
}

// exitCode returns the exit code of codeforge run.
func exitCode(r mcpclient.Result) int {
	switch {
	case !r.Failed:
		return 0
	case r.Exit == nil:
		return ExitNotRun
	case r.Exit.Reason == sandboxapi.Timeout:
		return ExitTimeout
	case r.Exit.Code == 0:
		return ExitFailed
	}
	return r.Exit.Code
}

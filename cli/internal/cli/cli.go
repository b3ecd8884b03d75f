// Package cli is the command line: one table of commands, one file per command.
//
// Exit codes: 0 done, 1 failed or something is wrong, 2 wrong command line. codeforge run exits with the script's code,
// or 125 when the script could not be run.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/settings"
)

// The exit codes.
const (
	ExitFailed = 1
	ExitUsage  = 2
	// ExitTimeout is for codeforge run: the script reached its time limit.
	ExitTimeout = 124
	// ExitNotRun is for codeforge run: the script could not be run.
	ExitNotRun = 125
	// ExitInterrupted is for codeforge run: Ctrl-C.
	ExitInterrupted = 130
)

// Env is the process environment of the command line.
type Env struct {
	// Program is the name the user called, Args what followed.
	Program string
	Args    []string
	// Environ is the environment as NAME=value.
	Environ []string
	Stdin   *os.File
	Stdout  *terminal.Stream
	Stderr  *terminal.Stream

	home string // see setHome; empty: the working directory
}

// Getenv is the value of a variable of Environ, or empty.
func (e *Env) Getenv(name string) string {
	for i := len(e.Environ) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(e.Environ[i], name+"="); ok {
			return v
		}
	}
	return ""
}

// program is how the user can call this program.
func (e *Env) program() string {
	if strings.ContainsRune(e.Program, '/') && !filepath.IsAbs(e.Program) {
		return e.Program
	}
	return "codeforge"
}

// command is one row of the table.
type command struct {
	name, usage, summary string
	// details follows the summary in the command's help. A command with verbs lists them there: see verbs.
	details string
	// setup declares the flags and returns the action.
	setup  func(*flag.FlagSet) action
	hidden bool
}

// action runs a command with the arguments that are not flags.
type action func(ctx context.Context, e *Env, args []string) error

// commands is the table, in the order of the help.
func commands() []command {
	return []command{
		initCommand(), apiCommand(), mcpCommand(), checkCommand(), upCommand(), downCommand(), statusCommand(),
		connectCommand(), loginCommand(), logoutCommand(), credentialsCommand(), secretsCommand(),
		consoleCommand(), heldCommand(), approveCommand(), refuseCommand(), plansCommand(), planCommand(),
		alarmsCommand(), unfreezeCommand(), runCommand(), stdioCommand(), runsCommand(),
		logsCommand(), receiptCommand(), auditCommand(),
		skillsCommand(), stateCommand(), manifestCommand(), doctorCommand(), versionCommand(), completionCommand(), manCommand(),
		completeCommand(),
		superviseCommand(), probeCommand(), relayCommand(),
	}
}

// exitError carries an exit code. Without err it prints nothing: the cause has been printed already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageError is a wrong command line.
func usageError(format string, args ...any) error {
	return &exitError{ExitUsage, fmt.Errorf(format, args...)}
}

// silent exits with a code and prints nothing. 0 is no error.
func silent(code int) error {
	if code == 0 {
		return nil
	}
	return &exitError{code: code}
}

// Run runs the command line and returns the exit code.
func Run(ctx context.Context, e *Env) int {
	err := dispatch(ctx, e)
	if err == nil {
		return 0
	}
	code := ExitFailed
	var exit *exitError
	if errors.As(err, &exit) {
		code = exit.code
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(e.Stderr, "codeforge: "+text)
	}
	return code
}

func dispatch(ctx context.Context, e *Env) error {
	if len(e.Args) == 0 {
		printHelp(e.Stderr)
		return silent(ExitUsage)
	}
	name, args := e.Args[0], e.Args[1:]
	switch name {
	case "help", "-h", "--help":
		if len(args) == 0 {
			printHelp(e.Stdout)
			return nil
		}
		name, args = args[0], append(args[1:min(2, len(args))], "--help")
	case "--version", "-v":
		name = "version"
	}
	for _, c := range commands() {
		if c.name == name {
			return c.run(ctx, e, args)
		}
	}
	return unknownCommand(name)
}

// run parses flags, which may come before and after other arguments.
func (c command) run(ctx context.Context, e *Env, args []string) error {
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	do := c.setup(fs)
	usage, words := c.usage, 1
	if len(args) > 0 {
		if v := c.verb(args[0]); v != nil {
			usage, words = v.usage, 2
		}
	}
	args, fields := takeFields(args, alone(usage, words))
	var rest []string
	for {
		err := fs.Parse(args)
		if errors.Is(err, flag.ErrHelp) {
			c.printHelp(e.Stdout, fs, strings.Join(rest[:min(1, len(rest))], ""))
			return nil
		}
		if err != nil {
			return c.flagError(fs, err)
		}
		left := fs.Args()
		if parsed := len(args) - len(left); parsed > 0 && args[parsed-1] == "--" {
			rest = append(rest, left...)
			break
		}
		if len(left) == 0 {
			break
		}
		rest, args = append(rest, left[0]), left[1:]
	}
	if names := c.verbNames(); len(rest) > 0 && !c.hidden {
		switch {
		case len(names) > 0 && c.verb(rest[0]) == nil:
			return usageError("%s: unknown verb %q%s", c.name, rest[0], didYouMean(rest[0], "", names))
		case len(names) == 0 && alone(c.usage, 1):
			return usageError("%s takes no argument, got %q", c.name, rest[0])
		}
	}
	if err := e.setHome(); err != nil {
		return err
	}
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for _, name := range []string{"apis", "state"} {
		if f := fs.Lookup(name); f != nil && !given[name] && f.DefValue != "" {
			_ = f.Value.Set(e.inHome(f.DefValue)) // a string
		}
	}
	if len(fields) > 0 {
		return onlyFields(e, fields, func(e *Env) error { return do(ctx, e, rest) })
	}
	return do(ctx, e, rest)
}

// variables are .env and the environment, which wins. The contents of a file that NAME_FILE names are in NAME if the
// file could be read, because the daemons of embedded mode cannot read the user's files; if not, settings.Parse says
// why.
type variables struct {
	environ []string
	values  map[string]string
}

// dotenvFile is the file of settings, see Env.inHome.
const dotenvFile = ".env"

// readVariables reads the environment and .env, which need not exist.
func readVariables(e *Env) (variables, error) {
	file, err := settings.ReadFile(e.inHome(dotenvFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return variables{}, fmt.Errorf("reading %s: %w", dotenvFile, err)
	}
	v := variables{values: map[string]string{}}
	for name, value := range file {
		if namesFile(name) && value != "" && !filepath.IsAbs(value) {
			value = e.inHome(value)
		}
		v.values[name] = value
	}
	for _, kv := range e.Environ {
		if name, value, ok := strings.Cut(kv, "="); ok {
			v.values[name] = value
		}
	}
	for _, name := range settings.InFile() {
		if value, err := settings.Lookup(v.getenv, name); err == nil && value != "" && v.values[name] == "" {
			v.values[name] = value
			delete(v.values, name+"_FILE")
		}
	}
	for name, value := range v.values {
		v.environ = append(v.environ, name+"="+value)
	}
	return v, nil
}

// namesFile reports whether a setting is a path, which .env may write as it is seen from its own folder.
func namesFile(name string) bool {
	return strings.HasSuffix(name, "_FILE") ||
		slices.Contains([]string{"SANDBOX_PROGRAMS", "DENO_PATH", "PYTHON_PATH"}, name)
}

func (v variables) getenv(name string) string { return v.values[name] }

const stateUsage = "state `DIR` of this CodeForge"

// stateFlag declares --state.
func stateFlag(fs *flag.FlagSet) *string { return fs.String("state", statedir.Default, stateUsage) }

func apisFlag(fs *flag.FlagSet) *string {
	return fs.String("apis", "apis", "`DIR` of the APIs")
}

func jsonFlag(fs *flag.FlagSet) *bool { return fs.Bool("json", false, "print JSON") }

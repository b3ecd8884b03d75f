// Package cli is the command line: a tree of commands for cobra, one file per command.
//
// Exit codes: 0 done, 1 failed or something is wrong, 2 wrong command line. codeforge run exits with the script's code,
// or with 125 if the script could not be run.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/settings"
)

// Exit codes.
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
	// Program is the name under which the user called this program, Args its arguments.
	Program string
	Args    []string
	// Environ is the environment as NAME=value.
	Environ []string
	Stdin   *os.File
	Stdout  *terminal.Stream
	Stderr  *terminal.Stream

	home    string // see setHome; empty: the working directory
	started bool   // a command has begun, so the command line is valid
}

// Getenv returns the value of a variable in Environ, or "".
func (e *Env) Getenv(name string) string {
	// The last of several entries wins, as in os/exec.
	for i := len(e.Environ) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(e.Environ[i], name+"="); ok {
			return v
		}
	}
	return ""
}

// programName returns a name under which the user can call this program. The npm package starts it under the command
// that the user called.
func (e *Env) programName() string {
	if strings.HasPrefix(e.Program, "npx ") || strings.ContainsRune(e.Program, '/') && !filepath.IsAbs(e.Program) {
		return e.Program
	}
	return "codeforge"
}

// exitError carries an exit code. If err is nil, it prints nothing, because the cause is already printed.
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

// usageError returns an error for a wrong command line.
func usageError(format string, args ...any) error {
	return &exitError{ExitUsage, fmt.Errorf(format, args...)}
}

// silentError returns an error that exits with a code and prints nothing. For code 0 it returns nil.
func silentError(code int) error {
	if code == 0 {
		return nil
	}
	return &exitError{code: code}
}

// Run runs the command line and returns the exit code.
func Run(ctx context.Context, e *Env) int {
	err := dispatchArgs(ctx, e)
	if err == nil { // most prints ignore their error
		err = e.Stdout.Err()
	}
	if err == nil {
		return 0
	}
	code := ExitFailed
	if exit, ok := errors.AsType[*exitError](err); ok {
		code = exit.code
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(e.Stderr, "codeforge: "+text)
	}
	return code
}

func dispatchArgs(ctx context.Context, e *Env) error {
	root := newRoot(e)
	args, err := commandLine(root, e.Args)
	if err == nil {
		root.SetArgs(args)
		err = root.ExecuteContext(ctx)
	}
	if err != nil && !e.started { // cobra has rejected the command line
		return usageError("%w", err)
	}
	return err
}

// newRoot builds the tree of commands.
func newRoot(e *Env) *cobra.Command {
	cobra.EnableCommandSorting = false
	root := &cobra.Command{
		Use:           "codeforge",
		Short:         "run a model's code behind a proxy that holds the credentials",
		SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(c *cobra.Command, _ []string) error {
			c.SetOut(e.Stderr)
			return errors.Join(c.Help(), silentError(ExitUsage))
		},
	}
	for _, g := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Start and stop", []*cobra.Command{
			initCommand(e), upCommand(e), downCommand(e), statusCommand(e), doctorCommand(e), tryCommand(e), stateCommand(e),
		}},
		{"APIs", []*cobra.Command{
			setupCommand(e), apiCommand(e), mcpCommand(e), packageCommand(e), folderCommand(e), checkCommand(e),
		}},
		{"Credentials that change", []*cobra.Command{
			loginCommand(e), logoutCommand(e), credentialsCommand(e), secretsCommand(e),
		}},
		{"Requests that wait for you", []*cobra.Command{
			heldCommand(e), approveCommand(e), refuseCommand(e), plansCommand(e), planCommand(e),
		}},
		{"Requests that were stopped", []*cobra.Command{alarmsCommand(e), unfreezeCommand(e)}},
		{"Clients and models", []*cobra.Command{
			connectCommand(e), clientsCommand(e), stdioCommand(e), skillsCommand(e),
		}},
		{"Run and look", []*cobra.Command{
			consoleCommand(e), runCommand(e), runsCommand(e), logsCommand(e), receiptCommand(e), auditCommand(e),
		}},
		{"The command line itself", []*cobra.Command{versionCommand(e), completionCommand(e), manCommand(e)}},
	} {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.title
		}
		root.AddCommand(g.commands...)
	}
	setHelpTexts(root, readHelpTexts())
	root.AddCommand(innerCommands(e)...)
	root.SetOut(e.Stdout)
	root.SetErr(e.Stderr)
	root.SetHelpFunc(printHelp)
	root.SetFlagErrorFunc(flagError)
	prepareCommand(e, root)
	return root
}

// prepareCommand wraps c and the commands below it. Each finds its home folder before it runs, and by default takes no
// argument.
func prepareCommand(e *Env, c *cobra.Command) {
	if check := c.Args; check == nil {
		c.Args = refuseArguments
	} else {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return fmt.Errorf("%w; want %s", err, c.UseLine())
			}
			return nil
		}
	}
	if c.Name() == "rm" {
		c.SuggestFor = []string{"remove", "delete"}
	}
	if run := c.RunE; run != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			e.started = true
			if err := e.setHome(); err != nil {
				return err
			}
			if err := e.requireAPIFolder(c, args); err != nil {
				return err
			}
			if err := e.setFolders(c); err != nil {
				return err
			}
			return run(c, args)
		}
	}
	for _, sub := range c.Commands() {
		prepareCommand(e, sub)
	}
}

// setFolders sets --state and --apis if they are not on the command line. A path that the user typed stays relative to
// the current folder.
func (e *Env) setFolders(c *cobra.Command) error {
	isUnset := func(f *pflag.Flag) bool { return f != nil && !f.Changed && f.DefValue != "" }
	if f := c.Flags().Lookup("state"); isUnset(f) {
		_ = f.Value.Set(e.inHome(f.DefValue)) // a string
	}
	f := c.Flags().Lookup("apis")
	if !isUnset(f) {
		return nil
	}
	dir, err := e.findAPIs()
	// These two report the mistake in .env with all others. Another command could act on the wrong folder.
	if err != nil && !slices.Contains([]string{"check", "doctor"}, commandPath(c)) {
		return err
	}
	_ = f.Value.Set(dir) // a string
	return nil
}

// groupCommand returns a command that only has subcommands, such as api.
func groupCommand(name, short string) *cobra.Command {
	return &cobra.Command{
		Use: name + " COMMAND", Short: short,
		RunE: func(c *cobra.Command, _ []string) error {
			return usageError("%s: %s?", name, joinWithOr(commandNames(c)))
		},
	}
}

// refuseArguments rejects arguments, which may be misspelt commands.
func refuseArguments(c *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case !c.HasSubCommands():
		return fmt.Errorf("%s takes no argument, got %q", commandPath(c), args[0])
	}
	c.SuggestionsMinimumDistance = 2
	mean := ""
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		mean = " did you mean " + joinWithOr(near) + "?"
	}
	return fmt.Errorf("unknown command %q;%s %s --help lists the commands",
		strings.TrimSpace(commandPath(c)+" "+args[0]), mean, c.CommandPath())
}

// commandPath returns the names of a command without the program's name, such as "api list".
func commandPath(c *cobra.Command) string {
	return strings.TrimPrefix(strings.TrimPrefix(c.CommandPath(), "codeforge"), " ")
}

// commandLine returns the command line for cobra: the command's names, its flags, its arguments. It handles help and
// --version. It rejects a single dash before a long flag, because cobra would read several short flags.
func commandLine(root *cobra.Command, args []string) ([]string, error) {
	switch {
	case len(args) == 0 || strings.HasPrefix(args[0], cobra.ShellCompRequestCmd):
		return args, nil
	case args[0] == "help":
		args = append(args[1:len(args):len(args)], "--help")
	case args[0] == "--version" || args[0] == "-v":
		args = []string{"version"}
	}
	c, rest, err := root.Find(args)
	if err != nil {
		return nil, err
	}
	if c.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return nil, refuseArguments(c, rest[:1])
	}
	c.InitDefaultHelpFlag()
	for _, arg := range rest {
		if arg == "--" {
			break
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		if len(name) > 1 && arg[0] == '-' && c.Flag(name) != nil {
			return nil, fmt.Errorf("%s: %s needs two dashes: --%s", commandPath(c), arg, name)
		}
	}
	return append(strings.Fields(commandPath(c)), rest...), nil
}

// envVariables holds .env and the environment, which takes precedence. If NAME_FILE names a readable file, NAME holds
// its content, because the daemons of embedded mode cannot read the user's files. If the file is unreadable,
// settings.Parse reports the reason.
type envVariables struct {
	environ []string
	values  map[string]string
}

// dotenvFile is the file of settings, see Env.inHome.
const dotenvFile = ".env"

// readVariables reads the environment and .env, which may be missing.
func readVariables(e *Env) (envVariables, error) {
	file, err := settings.ReadFile(e.inHome(dotenvFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return envVariables{}, fmt.Errorf("reading %s: %w", dotenvFile, err)
	}
	v := envVariables{values: map[string]string{}}
	for name, value := range file {
		// A relative path in .env means a path from the folder of .env, not from the working directory.
		if isPathSetting(name) && value != "" && !filepath.IsAbs(value) {
			value = e.inHome(value)
		}
		v.values[name] = value
	}
	for _, kv := range e.Environ {
		// The environment takes precedence over .env.
		if name, value, ok := strings.Cut(kv, "="); ok {
			v.values[name] = value
		}
	}
	for _, name := range settings.InFile() {
		if value, err := settings.LookupSetting(v.getenv, name); err == nil && value != "" && v.values[name] == "" {
			v.values[name] = value
			// Both forms of a setting at once would be an error of settings.Parse.
			delete(v.values, name+"_FILE")
		}
	}
	for name, value := range v.values {
		v.environ = append(v.environ, name+"="+value)
	}
	return v, nil
}

// isPathSetting reports whether a setting is a path, which .env may write relative to its folder.
func isPathSetting(name string) bool {
	return strings.HasSuffix(name, "_FILE") ||
		slices.Contains([]string{"SANDBOX_PROGRAMS", "DENO_PATH", "PYTHON_PATH"}, name)
}

func (v envVariables) getenv(name string) string { return v.values[name] }

const stateUsage = "state `DIR` of this CodeForge"

func stateFlag(fs *pflag.FlagSet) *string { return fs.String("state", statedir.Default, stateUsage) }

func apisFlag(fs *pflag.FlagSet) *string { return fs.String("apis", "apis", "`DIR` of the APIs") }

func jsonFlag(fs *pflag.FlagSet) *bool { return fs.Bool("json", false, "print JSON") }

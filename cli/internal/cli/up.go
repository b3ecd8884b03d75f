package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/cli/internal/credentialfeeder"
	"github.com/codeforge-mcp/codeforge/cli/internal/docker"
	"github.com/codeforge-mcp/codeforge/cli/internal/embedded"
	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/internal/stdiorelay"
	"github.com/codeforge-mcp/codeforge/internal/version"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

type upOptions struct {
	apis, state, bin, deno string
	port, slots            int
	detach, json           bool
	reportFD               int
}

func upCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "up", Short: "start CodeForge on this machine, without Docker",
	}
	var o upOptions
	flags := c.Flags()
	apis, state := apisFlag(flags), stateFlag(flags)
	flags.BoolVar(&o.json, "json", false, "print JSON")
	flags.StringVar(&o.bin, "bin", "", "`DIR` of the other binaries (default: the directory of codeforge)")
	flags.StringVar(&o.deno, "deno", "",
		"`PATH` of Deno (default: DENO_PATH, then .tools/deno next to the binaries' directory)")
	flags.IntVar(&o.port, "port", -1, "port `N` of the MCP endpoint, 0 for any free one (default: MCP_PORT, then 8080)")
	flags.Lookup("port").DefValue = "0" // help does not show it
	flags.IntVar(&o.slots, "slots", 0, "at most `N` runs at the same time (default: SANDBOX_SLOTS, then 8)")
	flags.BoolVar(&o.detach, "detach", false, "run in the background")
	flags.IntVar(&o.reportFD, "report-fd", 0, "the descriptor on which --detach waits for the outcome")
	_ = flags.MarkHidden("report-fd") // the flag exists
	c.RunE = func(c *cobra.Command, _ []string) error {
		if e.isInContainer() {
			return errContainer
		}
		if !flags.Changed("apis") && !flags.Changed("state") {
			err := e.createDefaultHome()
			if err = errors.Join(err, e.setFolders(c)); err != nil {
				return err
			}
		}
		o.apis, o.state = *apis, *state
		if o.detach {
			return o.runDetached(c.Context(), e)
		}
		return o.runForeground(c.Context(), e)
	}
	return c
}

// newConfig combines the flags and the settings.
func (o upOptions) newConfig(e *Env) (embedded.Config, error) {
	w, err := readVariables(e)
	if err != nil {
		return embedded.Config{}, err
	}
	set, err := settings.Parse(w.getenv)
	if err != nil {
		return embedded.Config{}, fmt.Errorf("settings (.env and the environment):\n%w", err)
	}
	c := embedded.Config{
		APIs: o.apis, Bin: o.bin, Settings: set, Port: o.port, Slots: cmp.Or(o.slots, set.Slots), Environ: w.environ,
		Quiet: o.reportFD > 0, Restart: o.reportFD > 0, Stderr: e.Stderr.File(),
		Deno: cmp.Or(o.deno, w.getenv("DENO_PATH")), Python: w.getenv("PYTHON_PATH"),
	}
	if c.Port < 0 {
		c.Port = set.MCPPort
	}
	if c.Port > 65535 {
		return c, usageError("--port %d: want a number from 0 to 65535", c.Port)
	}
	if c.Slots < 1 || c.Slots > 100 {
		return c, usageError("--slots %d: want a number from 1 to 100", c.Slots)
	}
	return c, nil
}

func (o upOptions) runForeground(ctx context.Context, e *Env) error {
	report := func(r startOutcome) error { return printOutcome(e, r, o.json) }
	if o.reportFD > 0 {
		pipe := os.NewFile(uintptr(o.reportFD), "report")
		report = func(r startOutcome) error {
			err := json.NewEncoder(pipe).Encode(r)
			// The parent waits for the end of the report.
			_ = pipe.Close()
			return err
		}
	}
	c, err := o.newConfig(e)
	if err == nil {
		c.State, err = statedir.CreateDir(o.state)
	}
	if err == nil {
		feeding, stop := context.WithCancel(ctx)
		defer stop()
		err = embedded.Run(ctx, c, func(r embedded.Ready) error {
			go o.feedCredentials(feeding, e, c.State) // not earlier: another CodeForge may run here, with its own programs
			return report(startOutcome{Ready: &r})
		})
	}
	if running, ok := errors.AsType[*embedded.RunningError](err); ok {
		return report(startOutcome{Running: &running.Up})
	}
	if err != nil && o.reportFD > 0 {
		_ = report(startOutcome{Error: err.Error()})
	}
	return err
}

// feedCredentials runs the programs of credentials with "command" until ctx ends. It runs outside the sandbox's
// namespaces, because the programs need the user's key chain.
func (o upOptions) feedCredentials(ctx context.Context, e *Env, state statedir.Dir) {
	vars, err := readVariables(e)
	if err != nil {
		return // up ends with this error too
	}
	f := credentialfeeder.New(e.Environ)
	proxy := mcpclient.CredentialsOver(mcpclient.DialCredentials(state))
	f.KeepSupplying(ctx, proxy, credentialfeeder.Source{APIs: o.apis, Getenv: vars.getenv},
		func(failed credentialfeeder.Outcome) {
			fmt.Fprintf(e.Stderr, "codeforge: %s: %s\n", safetext.OneLine(failed.Name), safetext.OneLine(failed.Err.Error()))
		})
}

// startOutcome is the result of a start. Exactly one field is set.
type startOutcome struct {
	Ready   *embedded.Ready   `json:"ready,omitempty"`
	Running *statedir.UpState `json:"running,omitempty"`
	Error   string            `json:"error,omitempty"`
}

// runDetached runs up in a process in a separate session, and waits for the outcome.
func (o upOptions) runDetached(ctx context.Context, e *Env) error {
	// Check the settings here, where the user sees the error.
	if _, err := o.newConfig(e); err != nil {
		return err
	}
	dir, err := statedir.CreateDir(o.state)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(dir.Join("log", "supervisor.log"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	defer log.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	args := []string{
		"up", "--report-fd", "3", "--state", dir.Path(), "--apis", o.apis, "--bin", o.bin, "--deno", o.deno,
		"--port", strconv.Itoa(o.port), "--slots", strconv.Itoa(o.slots),
	}
	cmd := exec.Command(self, args...) //nolint:gosec,noctx // this program, which outlives this process
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = e.Environ, log, log, []*os.File{write}
	cmd.SysProcAttr = startOwnSession()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting in the background: %w", err)
	}
	// Only the child may hold the write end: its death must end the read below.
	_ = write.Close()
	p := startProgress(e, "starting")
	var r startOutcome
	got := make(chan error, 1)
	go func() { got <- json.NewDecoder(read).Decode(&r) }()
	select {
	case err = <-got:
		p.stop()
	case <-ctx.Done():
		p.stop()
		// Ctrl-C does not reach the child, which has a separate session.
		_ = cmd.Process.Signal(os.Interrupt)
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("the background process ended without reporting a result; see %s", log.Name())
	}
	if r.Error != "" {
		return errors.New(r.Error)
	}
	return printOutcome(e, r, o.json)
}

// printOutcome prints how to connect.
func printOutcome(e *Env, r startOutcome, asJSON bool) error {
	if asJSON {
		return printJSON(e.Stdout, r)
	}
	if r.Running != nil {
		fmt.Fprintf(e.Stdout, "CodeForge is already running (process %d, since %s).\n",
			r.Running.PID, r.Running.Started.Format("2006-01-02 15:04:05 MST"))
		if r.Running.Version != version.Version {
			fmt.Fprintf(e.Stdout, "It has version %s, and this command %s. To switch: codeforge down, then codeforge up.\n",
				safetext.OneLine(r.Running.Version), version.Version)
		}
		printConnect(e, accessOf(*r.Running))
		return nil
	}
	printReady(e, *r.Ready)
	return nil
}

// innerCommand returns a command for CodeForge's own use, such as the inner process of up or doctor.
func innerCommand(name string, inner func(context.Context) error) *cobra.Command {
	return &cobra.Command{
		Use: name, Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error { return inner(c.Context()) },
	}
}

func innerCommands(e *Env) []*cobra.Command {
	return []*cobra.Command{
		innerCommand(embedded.SuperviseCommand, func(ctx context.Context) error {
			if embedded.Supervise(ctx, e.Environ, e.Stderr) != nil {
				return silentError(ExitFailed) // the outer process reports the error
			}
			return nil
		}),
		innerCommand(embedded.ProbeCommand, embedded.RunProbe),
		// For the host's codeforge, in mcp-server's container.
		innerCommand(docker.RelayCommand, func(ctx context.Context) error {
			return stdiorelay.RelayStdio(ctx, operatorapi.ContainerSocket, e.Stdin, e.Stdout)
		}),
	}
}

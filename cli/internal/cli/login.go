package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/cli/internal/login"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
)

const (
	// loginTime limits how long a login waits for the user. The proxy waits equally long.
	loginTime = 10 * time.Minute
	// pastePort is the port in the redirect's address for --paste. No process needs to listen there.
	pastePort = 8765
)

// errLoginTime means that the user did not finish the login in time.
var errLoginTime = fmt.Errorf("the login was not finished within %s; run it again", loginTime)

func loginCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "login NAME", Short: "log in for a credential with oauth2, in a browser",
		Args: cobra.ExactArgs(1),
	}
	o := loginOptions{target: targetFlags(c.Flags())}
	o.addFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error { return o.runLogin(c.Context(), e, args[0]) }
	return c
}

type loginOptions struct {
	target               serverTarget
	device, paste, quiet bool
	json                 bool
}

// addFlags declares the flags that choose the way to log in.
func (o *loginOptions) addFlags(c *cobra.Command) {
	c.Flags().BoolVar(&o.device, "device", false, "show a code to enter on any device")
	c.Flags().BoolVar(&o.paste, "paste", false, "show an address to open anywhere; paste the last address back")
	c.Flags().BoolVar(&o.quiet, "no-browser", false, "print the address, and open no browser")
	c.MarkFlagsMutuallyExclusive("device", "paste")
}

func (o loginOptions) runLogin(ctx context.Context, e *Env, name string) error {
	client, list, err := readCredentials(ctx, e, o.target)
	if err != nil {
		return err
	}
	c, err := loginOf(list, name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, loginTime, errLoginTime)
	defer cancel()
	switch {
	case o.device:
		err = loginByDevice(ctx, e, client, name)
	case !c.Browser:
		err = errNoBrowserWay
	case o.paste:
		err = loginByPaste(ctx, e, client, c)
	default:
		err = o.loginByBrowser(ctx, e, client, c)
	}
	if err != nil {
		return err
	}
	return printValue(e, o.json, map[string]any{"name": name, "logged_in": true}, true, func() {
		fmt.Fprintf(e.Stdout, "%s is logged in.\n", safetext.OneLine(name))
	})
}

// loginOf finds a credential that a user can log in for.
func loginOf(list []credentialapi.Credential, name string) (credentialapi.Credential, error) {
	var names []string
	for _, c := range list {
		if c.Logins {
			names = append(names, c.Name)
			if c.Name == name {
				return c, nil
			}
		}
	}
	if len(names) == 0 {
		return credentialapi.Credential{},
			errors.New(`no credential of apis/ needs a login: want one with "oauth2" and a user`)
	}
	return credentialapi.Credential{}, fmt.Errorf("no credential %q needs a login%s", name, suggestName(name, "", names))
}

func (o loginOptions) loginByBrowser(
	ctx context.Context, e *Env, client credentialapi.Client, c credentialapi.Credential,
) error {
	// The port must be open before the proxy puts it into the address of the login.
	l, err := login.ListenLoopback(ctx, c.RedirectHost, c.RedirectPort)
	if err != nil {
		return fmt.Errorf("%w; close what uses it, or log in with --paste", err)
	}
	defer l.Close()
	started, err := client.BeginLogin(ctx, credentialapi.Login{Name: c.Name, Way: credentialapi.WayBrowser,
		Port: l.Port()})
	if err != nil {
		return err
	}
	if o.quiet || !openBrowser(ctx, e, started.URL) {
		fmt.Fprintf(e.Stderr, "Open this address in a browser on this machine:\n\n  %s\n\n", safetext.OneLine(started.URL))
	} else {
		fmt.Fprintf(e.Stderr, "A browser opens. If it does not, open this address:\n\n  %s\n\n",
			safetext.OneLine(started.URL))
	}
	fmt.Fprintf(e.Stderr, "Waiting at %s. Ctrl-C gives up.\n", safetext.OneLine(started.Redirect))
	return l.WaitForRedirect(ctx, started, client.FinishLogin)
}

func loginByPaste(ctx context.Context, e *Env, client credentialapi.Client, c credentialapi.Credential) error {
	port := cmp.Or(c.RedirectPort, pastePort)
	started, err := client.BeginLogin(ctx, credentialapi.Login{Name: c.Name, Way: credentialapi.WayBrowser, Port: port})
	if err != nil {
		return err
	}
	fmt.Fprintf(e.Stderr, "Open this address in a browser, anywhere:\n\n  %s\n\nLog in. The browser then ends at an "+
		"address that begins with %s and shows an error: that is expected.\n", safetext.OneLine(started.URL),
		safetext.OneLine(started.Redirect))
	p := newPrompter(e)
	for {
		// Hidden input: the code in the address must not stay in the terminal's history.
		text, err := p.askSecret(ctx, "Paste that address (not shown): ")
		if err != nil {
			return err
		}
		redirect, err := login.ParsePasted(started, text.Reveal())
		if err == nil {
			return client.FinishLogin(ctx, redirect)
		}
		if !p.terminal {
			return err
		}
		fmt.Fprintf(e.Stderr, "%s. Try again, or leave with Ctrl-C.\n", safetext.OneLine(err.Error()))
	}
}

func loginByDevice(ctx context.Context, e *Env, client credentialapi.Client, name string) error {
	started, err := client.BeginLogin(ctx, credentialapi.Login{Name: name, Way: credentialapi.WayDevice})
	if err != nil {
		return err
	}
	fmt.Fprintf(e.Stderr, "Open %s on any device, and enter the code %s\nWaiting. Ctrl-C gives up.\n",
		safetext.OneLine(started.URL), safetext.OneLine(started.Code))
	// The provider sets the interval (RFC 8628, section 3.5).
	wait := time.NewTimer(time.Duration(max(started.Interval, 1)) * time.Second)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-wait.C:
		}
		progress, err := client.PollLogin(ctx, started.ID)
		if err != nil || progress.Done {
			return err
		}
		wait.Reset(time.Duration(max(progress.Interval, 1)) * time.Second)
	}
}

// openBrowser opens an https address or a file in the user's browser. Every user of the machine can read the address in
// the process list. It reports whether a browser was started.
func openBrowser(ctx context.Context, e *Env, address string) bool {
	var cmd *exec.Cmd
	switch {
	case runtime.GOOS == "darwin":
		cmd = exec.CommandContext(context.WithoutCancel(ctx), "open", address)
	case runtime.GOOS == "windows": // cmd.exe would interpret the address as a command
		cmd = exec.CommandContext(context.WithoutCancel(ctx), "rundll32", "url.dll,FileProtocolHandler", address)
	case e.Getenv("DISPLAY") != "" || e.Getenv("WAYLAND_DISPLAY") != "":
		cmd = exec.CommandContext(context.WithoutCancel(ctx), "xdg-open", address)
	default:
		return false
	}
	if cmd.Start() != nil {
		return false
	}
	go func() { _ = cmd.Wait() }()
	return true
}

package cli

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/codeforge-mcp/codeforge/cli/internal/apidir"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
)

// setActive switches an API on or off.
func (o *apiOptions) setActive(ctx context.Context, e *Env, name string, on bool) error {
	if err := apidir.SetActive(o.apis, name, on); err != nil {
		return err
	}
	state := map[bool]string{true: "on", false: "off: its hosts are closed"}[on]
	// The file is written, but only the running CodeForge opens or closes hosts.
	effect := o.waitForLoad(ctx, e, name, on)
	if effect == notLoaded {
		state = map[bool]string{true: "on", false: "off"}[on] + " in config.json, but the running CodeForge has not loaded " +
			"that yet; codeforge check and codeforge status show why"
	}
	result := map[string]any{"name": name, "active": on, "loaded": effect == loaded}
	return printValue(e, o.json, result, true, func() {
		fmt.Fprintf(e.Stdout, "%s is %s.\n", safetext.OneLine(name), state)
	})
}

// removeAPI removes an API after a confirmation.
func (o *apiOptions) removeAPI(ctx context.Context, e *Env, name string) error {
	files, err := apidir.ListFiles(o.apis, name)
	if err != nil {
		return err
	}
	folder := safetext.OneLine(filepath.Join(o.apis, name))
	if !o.yes {
		question := fmt.Sprintf("Remove %s in %s?", safetext.OneLine(strings.Join(files, ", ")), folder)
		if err := confirmRemoval(ctx, e, question); err != nil {
			return err
		}
	}
	if err := apidir.RemoveAPI(o.apis, name); err != nil {
		return err
	}
	if o.waitForLoad(ctx, e, name, false) == notLoaded {
		fmt.Fprintf(e.Stderr, "warning: the running CodeForge still has %s; codeforge status shows why\n",
			safetext.OneLine(name))
	}
	return printValue(e, o.json, map[string]any{"name": name, "removed": files}, true, func() {
		fmt.Fprintf(e.Stdout, "Removed %s from %s. Revoke its credentials at the provider, unless another program "+
			"uses them.\n", safetext.OneLine(strings.Join(files, ", ")), folder)
	})
}

// editConfig opens config.json in the user's editor, and checks the file afterwards.
func (o *apiOptions) editConfig(ctx context.Context, e *Env, name string) error {
	file, err := apidir.ConfigPath(o.apis, name)
	if err != nil {
		return err
	}
	words := strings.Fields(cmp.Or(e.Getenv("VISUAL"), e.Getenv("EDITOR")))
	if len(words) == 0 {
		words = []string{"vi"}
	}
	cmd := exec.CommandContext(ctx, words[0], append(words[1:], file)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = e.Stdin, e.Stdout, e.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the editor %s ($VISUAL, $EDITOR): %w", safetext.OneLine(words[0]), err)
	}
	return o.checkAPI(ctx, e, name)
}

// testAll tests one API or, without a name, all active APIs.
func (o *apiOptions) testAll(ctx context.Context, e *Env, name string) error {
	if name != "" {
		return o.testAPI(ctx, e, name)
	}
	_, cat := inspectConfig(e, o.apis)
	var failed error
	tried := 0
	for _, a := range cat.APIs() {
		// An MCP server without hosts has no address to request.
		if !a.Active || a.Internal || a.Server != nil && len(a.Hosts) == 0 {
			continue
		}
		tried++
		if !o.json {
			fmt.Fprintf(e.Stdout, "%s\n", safetext.OneLine(a.Name))
		}
		if err := o.testAPI(ctx, e, a.Name); err != nil {
			failed = silentError(ExitFailed)
			if text := err.Error(); text != "" {
				fmt.Fprintf(e.Stdout, "failed: %s\n", safetext.OneLine(text))
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if tried == 0 {
		return fmt.Errorf("there is no active API in %s; codeforge api add NAME adds one", safetext.OneLine(o.apis))
	}
	return failed
}

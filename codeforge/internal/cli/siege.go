package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/codeforge/internal/attack"
	"github.com/codeforge-mcp/codeforge/codeforge/internal/server"
	"github.com/codeforge-mcp/codeforge/codeforge/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/internal/visible"
)

// besiege mounts the attacks of doctor --attack and prints their table.
func besiege(ctx context.Context, e *Env, t target, apis string, asJSON bool) error {
	c, err := t.config(e)
	if err != nil {
		return err
	}
	s, err := server.Connect(ctx, c, server.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	w, err := readWorld(e)
	if err != nil {
		return err
	}
	set, err := settings.Parse(w.getenv)
	if err != nil {
		return err
	}
	to := attack.Target{Session: s, URL: c.Fallback, Token: c.Token, Host: anyHost(w.getenv, apis), Open: set.YOLO, Memory: set.Memory}
	if c.URL != "" {
		to.URL = c.URL
	} else if up, err := c.State.Running(); err == nil {
		to.URL = up.Endpoint()
	}
	paint := newPainter(e, e.Stdout)
	all, open := []attack.Outcome{}, 0
	attack.Run(ctx, to, func(o attack.Outcome) {
		all = append(all, o)
		colour, verdict := terminal.Green, "held"
		if !o.Held {
			open++
			colour, verdict = terminal.Red, "NOT HELD"
		}
		if !asJSON {
			fmt.Fprintf(e.Stdout, "%s %-46s expected %-26s seen %s\n", paint(colour, fmt.Sprintf("%-8s", verdict)), o.Name, o.Expected, visible.Line(o.Seen))
		}
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if asJSON {
		if err := printJSON(e.Stdout, map[string]any{"ok": open == 0, "attacks": all}); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(e.Stdout, "%d attacks, %d not held.\n", len(all), open)
	}
	if open > 0 {
		return silent(ExitFailed)
	}
	return nil
}

// anyHost is a host of an active API, or empty.
func anyHost(getenv func(string) string, apis string) string {
	cat, _ := catalog.Load(apis, catalog.Options{Getenv: getenv}) // what does not load is doctor's business
	for _, a := range cat.APIs() {
		for _, h := range a.Hosts {
			if a.Active && !strings.Contains(h.String(), "*") {
				return h.String()
			}
		}
	}
	return ""
}

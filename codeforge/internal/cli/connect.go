package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/codeforge-mcp/codeforge/codeforge/internal/embedded"
	"github.com/codeforge-mcp/codeforge/codeforge/internal/statedir"
	"github.com/codeforge-mcp/codeforge/internal/visible"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// tokenPlaceholder marks where the user's own token goes, which is never printed.
const tokenPlaceholder = "<MCP_AUTH_TOKEN>" //nolint:gosec // the name of a setting

// claudeCode is the command that adds the server to Claude Code.
func claudeCode(u statedir.Up) string {
	line := "claude mcp add --transport http codeforge " + u.Endpoint()
	if u.Token {
		line += ` --header "Authorization: Bearer ` + tokenPlaceholder + `"`
	}
	return line
}

// claudeDesktop is the entry of claude_desktop_config.json.
func claudeDesktop(u statedir.Up) string {
	type entry struct {
		Command string   `json:"command"`
		Args    []string `json:"args"`
	}
	e := entry{"npx", []string{"-y", "mcp-remote", u.Endpoint()}}
	if u.Token {
		e.Args = append(e.Args, "--header", "Authorization: Bearer "+tokenPlaceholder)
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(map[string]map[string]entry{"mcpServers": {"codeforge": e}}) // cannot fail: strings only
	return strings.TrimSpace(b.String())
}

// printConnect prints how clients connect to the server.
func printConnect(e *Env, u statedir.Up) {
	w, run := e.Stdout, e.program()+" run FILE.ts"
	if usual, err := statedir.Find(statedir.Default); err == nil && u.State != "" && usual.Path() != u.State {
		run += " --state " + visible.Line(u.State)
	}
	fmt.Fprintf(w, "\n  MCP endpoint    %s\n", u.Endpoint())
	fmt.Fprintf(w, "  Claude Code     %s\n", claudeCode(u))
	fmt.Fprintf(w, "  Claude Desktop  %s\n", claudeDesktop(u))
	if self, err := os.Executable(); err == nil && u.State != "" {
		fmt.Fprintf(w, "  without Node    %s stdio --state %s   (for clients that start a program)\n",
			visible.Line(self), visible.Line(u.State))
	}
	fmt.Fprintf(w, "  try it          %s   (or - to read the script from stdin)\n", run)
}

// printReady prints that everything is ready, how to connect, and what is in the catalog.
func printReady(e *Env, r embedded.Ready) {
	fmt.Fprintf(e.Stdout, "CodeForge %s is ready (embedded, Deno %s, %d slots).\n", r.Up.Version, r.Deno, r.Up.Slots)
	printConnect(e, r.Up)
	fmt.Fprintln(e.Stdout)
	printCatalog(e.Stdout, r.Catalog, r.Up.APIs)
	for _, w := range r.Warnings {
		fmt.Fprintf(e.Stdout, "  warning: %s\n", w)
	}
}

// printCatalog lists the active APIs and the problems of the others.
func printCatalog(w io.Writer, c controlapi.Catalog, dir string) {
	switch {
	case len(c.APIs) == 0:
		fmt.Fprintf(w, "  no active APIs in %s; codeforge api add NAME adds one\n", visible.Line(dir))
	default:
		fmt.Fprintf(w, "  active APIs in %s:\n", visible.Line(dir))
	}
	for _, a := range c.APIs {
		var names []string
		for _, t := range a.Credentials {
			names = append(names, t.Name)
		}
		line := fmt.Sprintf("    %-14s %s", visible.Line(a.Name), visible.Line(strings.Join(a.Domains, ", ")))
		if len(names) > 0 {
			line += "  " + strings.Join(names, ", ")
		}
		if a.Stale {
			line += "  (stale: the current config.json does not load)"
		}
		fmt.Fprintln(w, line)
	}
	if c.YOLO {
		fmt.Fprintln(w, "  YOLO_MODE is on: code can reach hosts outside every API too, without credentials")
	}
	for _, p := range c.Problems {
		word := "problem"
		if p.Warning {
			word = "warning"
		}
		fmt.Fprintf(w, "  %s: %s\n", word, visible.Line(p.Text))
	}
}

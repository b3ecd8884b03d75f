package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

type statusOutput struct {
	Running bool   `json:"running"`
	Dir     string `json:"state"`
	// URL is the endpoint of a server that no supervisor on Dir started: in Docker, or another user's.
	URL string `json:"url,omitempty"`
	// Container is mcp-server's container in Docker, and About its description of itself.
	Container string             `json:"container,omitempty"`
	About     *operatorapi.About `json:"about,omitempty"`
	Up        *statedir.UpState  `json:"up,omitempty"`
	Catalog   *proxyapi.Catalog  `json:"catalog,omitempty"`
	// Frozen are the sessions that an alarm has frozen.
	Frozen []string `json:"frozen,omitempty"`
	// Servers are the MCP servers among the APIs.
	Servers []mcpserver.Status `json:"servers,omitempty"`
	// Tenants are the clients of MCP_TOKENS_FILE.
	Tenants *operatorapi.Tenants `json:"tenants,omitempty"`
	// Database is the Postgres that several CodeForges share.
	Database *operatorapi.Database `json:"database,omitempty"`
	Problem  string                `json:"problem,omitempty"`
}

func statusCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use: "status", Short: "show whether CodeForge is running, and how to connect",
	}
	t, asJSON := targetFlags(c.Flags()), jsonFlag(c.Flags())
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := t.newConfig(e)
		if err != nil {
			return err
		}
		s := readState(cmd.Context(), e, c)
		return printValue(e, *asJSON, s, s.Running && s.Problem == "", func() { printState(e, s) })
	}
	return c
}

// readState asks the running CodeForge for its state.
func readState(ctx context.Context, e *Env, c mcpclient.Config) statusOutput {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	s := statusOutput{Dir: c.State.Path()}
	op, place, local, err := mcpclient.ConnectOperator(ctx, c)
	switch {
	case err != nil:
		s.Problem = err.Error()
		return s
	case place.State == nil:
		if err := mcpclient.CheckReady(ctx, c, place); err != nil {
			s.Problem = err.Error()
			return s
		}
		s.Running, s.URL, s.Container = true, place.URL, place.Container
		if local {
			s.askOperator(ctx, e, op)
		}
		s.askServers(ctx, c, place)
		return s
	}
	up, err := c.State.ReadUp()
	if err != nil {
		s.Problem = err.Error()
		return s
	}
	s.Running, s.Up = true, &up
	s.askCatalog(ctx, op)
	s.askServers(ctx, c, place)
	if err := mcpclient.CheckReady(ctx, c, place); err != nil && s.Problem == "" {
		s.Problem = err.Error()
	}
	return s
}

// askOperator asks mcp-server in Docker.
func (s *statusOutput) askOperator(ctx context.Context, e *Env, op operatorapi.Client) {
	about, err := op.About(ctx)
	if err != nil {
		s.Problem = err.Error()
		return
	}
	// Inside the container its name is known only from the environment.
	if s.Container == "" {
		s.Container = e.Getenv("CODEFORGE_CONTAINER_NAME")
	}
	s.URL = fmt.Sprintf("http://127.0.0.1:%d/mcp", about.Port)
	s.About = &about
	s.askCatalog(ctx, op)
}

func (s *statusOutput) askCatalog(ctx context.Context, op operatorapi.Client) {
	cat, err := op.Catalog(ctx)
	if err != nil {
		s.Problem = err.Error()
		return
	}
	s.Frozen, _ = op.FrozenSessions(ctx) // an older CodeForge has no alarms
	if list, err := op.Tenants(ctx); err == nil && (len(list.Tenants) > 0 || list.Problem != "") {
		s.Tenants = &list
	}
	if d, err := op.Database(ctx); err == nil && d.Used {
		s.Database = &d
	}
	s.Catalog = &cat
}

// askServers asks mcp-server for the MCP servers. It keeps an earlier problem.
func (s *statusOutput) askServers(ctx context.Context, c mcpclient.Config, place mcpclient.Place) {
	list, err := mcpclient.ListServers(ctx, c, place)
	if err != nil && s.Problem == "" {
		s.Problem = err.Error()
	}
	s.Servers = list
}

func printState(e *Env, s statusOutput) {
	if !s.Running {
		fmt.Fprintf(e.Stdout, "%s.\n", strings.TrimSuffix(s.Problem, "."))
		return
	}
	apis := "apis"
	switch {
	case s.Up != nil:
		fmt.Fprintf(e.Stdout, "CodeForge %s is running (process %d, %d slots, since %s).\n",
			s.Up.Version, s.Up.PID, s.Up.Slots, s.Up.Started.Format("2006-01-02 15:04:05 MST"))
		if again := s.Up.Again; again != nil {
			fmt.Fprintf(e.Stdout, "It was started again, because %s.\n", safetext.OneLine(again.String()))
		}
		printConnect(e, accessOf(*s.Up))
		fmt.Fprintln(e.Stdout)
		apis = s.Up.APIs
	case s.About != nil:
		fmt.Fprintf(e.Stdout, "CodeForge %s is running in Docker (%d slots, since %s).\n",
			safetext.OneLine(s.About.Version), s.About.Slots, s.About.Started.Local().Format("2006-01-02 15:04:05 MST"))
		printConnect(e, endpointAccess{url: s.URL, token: s.About.Token, container: s.Container})
		fmt.Fprintln(e.Stdout)
	default:
		fmt.Fprintf(e.Stdout, "CodeForge answers at %s (started elsewhere).\n", s.URL)
	}
	if s.Catalog != nil {
		printCatalog(e, *s.Catalog, apis)
	}
	printServers(e.Stdout, s.Servers)
	printTenants(e.Stdout, s.Tenants)
	printDatabase(e.Stdout, s.Database)
	if len(s.Frozen) > 0 {
		fmt.Fprintf(e.Stdout, "  frozen by an alarm: %s (codeforge alarms)\n", safetext.OneLine(strings.Join(s.Frozen, ", ")))
	}
	if s.Problem != "" {
		fmt.Fprintf(e.Stdout, "  problem: %s\n", safetext.OneLine(s.Problem))
	}
}

// printTenants prints a line for each tenant: its APIs and its activity.
func printTenants(w io.Writer, list *operatorapi.Tenants) {
	if list == nil {
		return
	}
	fmt.Fprintln(w, "  tenants (codeforge connect --tenant NAME):")
	for _, t := range list.Tenants {
		apis := "all APIs"
		if t.APIs != nil {
			apis = strings.Join(t.APIs, ", ")
		}
		fmt.Fprintf(w, "    %-14s %s; %s, %s, %d waiting\n", safetext.OneLine(t.Name), safetext.OneLine(apis),
			countNoun(t.Sessions, "session"), countNoun(t.Runs, "run"), t.Waiting)
	}
	if list.Problem != "" {
		fmt.Fprintf(w, "  problem: MCP_TOKENS_FILE has mistakes, so its last version without mistakes is in force: %s\n",
			safetext.OneLine(list.Problem))
	}
}

// printDatabase prints a line about Postgres: the number of waiting changes, and its problem.
func printDatabase(w io.Writer, d *operatorapi.Database) {
	if d == nil {
		return
	}
	line := "  runs and skills are in Postgres"
	if d.Waiting > 0 {
		line += ", " + countNoun(int(d.Waiting), "change") + " waiting to be stored there"
	}
	if d.Problem != "" {
		line += "; problem: " + safetext.OneLine(d.Problem)
	}
	fmt.Fprintln(w, line)
}

// printServers prints a line for each MCP server: its state, its number of tools, and its last failure.
func printServers(w io.Writer, list []mcpserver.Status) {
	if len(list) > 0 {
		fmt.Fprintln(w, "  MCP servers:")
	}
	for _, s := range list {
		line := fmt.Sprintf("    %-14s %s", safetext.OneLine(s.Name), safetext.OneLine(string(s.State)))
		if s.Tools != nil {
			line += ", " + countNoun(*s.Tools, "tool")
		}
		if s.Calls > 0 {
			line += ", " + countNoun(s.Calls, "call") + " in flight"
		}
		if s.Problem != "" {
			line += "; last failure: " + safetext.OneLine(s.Problem)
		}
		fmt.Fprintln(w, line)
	}
}

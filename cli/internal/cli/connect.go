package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/codeforge-mcp/codeforge/cli/internal/clients"
	"github.com/codeforge-mcp/codeforge/cli/internal/docker"
	"github.com/codeforge-mcp/codeforge/cli/internal/embedded"
	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// endpointAccess is the address of the running CodeForge.
type endpointAccess struct {
	// url is the MCP endpoint. token means that it requires a token.
	url   string
	token bool
	// state is the state directory in embedded mode, container mcp-server's container in Docker. Both are empty for a
	// CodeForge that was started elsewhere.
	state, container string
	// tenant is the tenant whose clients connect. Empty: the operator.
	tenant string
}

func accessOf(u statedir.UpState) endpointAccess {
	return endpointAccess{url: u.Endpoint(), token: u.Token, state: u.State}
}

func (a endpointAccess) clientAccess(e *Env) clients.Access {
	out := clients.Access{URL: a.url, Token: a.token, Tenant: a.tenant}
	if a.tenant != "" { // a user who can start the program is the operator
		return out
	}
	switch self, err := os.Executable(); {
	case a.container != "" && (e.isInContainer() || err != nil):
		out.Command = []string{"docker", "exec", "-i", a.container, "codeforge", "stdio"}
	case a.container != "": // this command reconnects after a restart of the container, which ends every docker exec
		out.Command = []string{self, "stdio", "--url", docker.Scheme + a.container}
		out.Env = dockerVariables(e)
	case a.state != "" && err == nil:
		out.Command = []string{self, "stdio", "--state", a.state}
	}
	return out
}

// dockerVariables returns the variables with which the command line finds docker and its engine.
func dockerVariables(e *Env) map[string]string {
	out := map[string]string{}
	for _, name := range []string{
		"PATH", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY",
	} {
		if value := e.Getenv(name); value != "" {
			out[name] = value
		}
	}
	return out
}

// printConnect prints how clients connect to the server.
func printConnect(e *Env, a endpointAccess) {
	w, to := e.Stdout, a.clientAccess(e)
	fmt.Fprintf(w, "\n  MCP endpoint    %s\n", a.url)
	fmt.Fprintf(w, "  Claude Code     %s\n", clients.ClaudeCode(to))
	for _, name := range []string{"claude-desktop", "cursor", "vscode"} {
		if c, ok := clients.FindClient(name); ok {
			fmt.Fprintf(w, "  %-15s %s\n", c.Title, c.OneLineConfig(to))
		}
	}
	if len(to.Command) > 0 {
		words := convert.Each(to.Command, quoteWord)
		fmt.Fprintf(w, "  without Node    %s   (for clients that start a program)\n", strings.Join(words, " "))
	}
	if a.tenant != "" {
		fmt.Fprintf(w, "  %s is one of its tokens; where MCP_TOKENS_FILE has its SHA-256, only the client has the token.\n",
			to.Placeholder())
		return
	}
	if a.token {
		fmt.Fprintf(w, "  %s is the value of that setting (.env); the line without Node "+
			"needs no token.\n", clients.Placeholder)
	}
	fmt.Fprintf(w, "  try it          %s\n", tryIt(e, a))
}

// tryIt returns a command that runs a script.
func tryIt(e *Env, a endpointAccess) string {
	if a.container != "" && e.isInContainer() {
		return "echo 'console.log(6 * 7)' | docker exec -i " + safetext.OneLine(a.container) + " codeforge run -"
	}
	run := e.programName() + " run FILE.ts"
	// Without --state, run would look in the usual directory.
	if usual, err := statedir.FindDir(e.inHome(statedir.Default)); err == nil && a.state != "" && usual.Path() != a.state {
		run += " --state " + quoteWord(a.state)
	}
	return run + "   (or - to read the script from stdin)"
}

// printReady prints that CodeForge is ready, how to connect, and the catalog.
func printReady(e *Env, r embedded.Ready) {
	fmt.Fprintf(e.Stdout, "CodeForge %s is ready (embedded, Deno %s, %d slots).\n", r.Up.Version, r.Deno, r.Up.Slots)
	printConnect(e, accessOf(r.Up))
	fmt.Fprintln(e.Stdout)
	printCatalog(e, r.Catalog, r.Up.APIs)
	for _, w := range r.Warnings {
		fmt.Fprintf(e.Stdout, "  warning: %s\n", w)
	}
}

// printCatalog lists the active APIs and the problems of the others.
func printCatalog(e *Env, c proxyapi.Catalog, dir string) {
	w := e.Stdout
	switch {
	case len(c.APIs) == 0:
		fmt.Fprintf(w, "  no active APIs in %s; %s try shows a first one, %[2]s api add NAME adds one\n",
			safetext.OneLine(dir), e.programName())
	default:
		fmt.Fprintf(w, "  active APIs in %s:\n", safetext.OneLine(dir))
	}
	for _, a := range c.APIs {
		names := convert.Each(a.Credentials, func(t proxyapi.Token) string { return t.Name })
		line := fmt.Sprintf("    %-14s %s", safetext.OneLine(a.Name), safetext.OneLine(strings.Join(a.Domains, ", ")))
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
		fmt.Fprintf(w, "  %s: %s\n", word, safetext.OneLine(p.Text))
	}
}

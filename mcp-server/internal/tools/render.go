package tools

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/catalog/hostname"
	"github.com/codeforge-mcp/codeforge/internal/typo"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/excerpt"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

// maxHints is how many hints a result shows.
const maxHints = 5

// rendering is the input of render.
type rendering struct {
	outcome        execution.Outcome
	err            error // the run has no exit
	stdout, stderr *excerpt.Buffer
	limit          int
	changes        []skill.Change
	catalog        controlapi.Catalog
	apis           []string
}

// render makes the result of a run: on success stdout, exactly as printed; on failure stderr, then stdout. There is a
// second block only if the model must know something else.
func render(r rendering) *mcp.CallToolResult {
	var notes []string
	failed := r.err != nil || r.outcome.Exit.Reason != runapi.Exited || r.outcome.Exit.Code != 0
	if r.err != nil {
		notes = append(notes, explain(r.err, r.outcome))
	} else if r.outcome.Exit.Detail != "" {
		notes = append(notes, r.outcome.Exit.Detail)
	}
	if r.outcome.Lost {
		notes = append(notes, "The proxy stopped before the run's receipt: "+
			"requests may have failed, and it is not known which were sent.")
	}
	shown, cut := "", 0
	if failed {
		shown, cut = failedOutput(r)
	} else {
		shown, cut = r.stdout.Text(r.limit)
	}
	if shown == "" && len(notes) == 0 {
		notes = append(notes, silent(r.outcome.Exit, failed))
	}
	if cut > 0 {
		notes = append(notes, cutNote(r, cut))
	}
	if n := r.outcome.Exit.InvalidUTF8; n > 0 {
		notes = append(notes, fmt.Sprintf("%d bytes of the output were not valid UTF-8 and are shown as U+FFFD. "+
			"Print binary data as base64.", n))
	}
	notes = append(notes, r.hints()...)
	if note := changeNote(r.changes); note != "" {
		notes = append(notes, note)
	}
	res := text(shown)
	if failed && shown == "" && len(notes) > 0 {
		res, notes = text(notes[0]), notes[1:]
	}
	if len(notes) > 0 {
		res.Content = append(res.Content, &mcp.TextContent{Text: strings.Join(notes, "\n")})
	}
	res.IsError = failed
	if r.outcome.Receipt.Run != "" || r.outcome.Exit.Reason != "" {
		if r.outcome.Receipt.Run == "" {
			r.outcome.Receipt.Run = r.outcome.Run
		}
		res.Meta = mcp.Meta{receiptKey: r.outcome.Receipt}
		if r.outcome.Exit.Reason != "" {
			res.Meta[exitKey] = r.outcome.Exit
		}
	}
	return res
}

// failedOutput returns stderr, then stdout, both cut if they do not fit.
func failedOutput(r rendering) (string, int) {
	errs := min(r.stderr.Len(), max(r.limit/2, r.limit-r.stdout.Len()))
	stderr, cutErr := r.stderr.Text(errs)
	stdout, cutOut := r.stdout.Text(r.limit - errs)
	if stderr != "" && stdout != "" && !strings.HasSuffix(stderr, "\n") {
		stderr += "\n"
	}
	return stderr + stdout, cutErr + cutOut
}

// silent explains why there is nothing to show.
func silent(e runapi.Exit, failed bool) string {
	if failed {
		return fmt.Sprintf("The code ended with exit code %d and printed nothing.", e.Code)
	}
	return "The code ran and printed nothing. Print what you need with console.log."
}

// cutNote says how much was left out, and where the whole output is.
func cutNote(r rendering, cut int) string {
	n := fmt.Sprintf("Output was cut: %d of %d characters were left out.", cut, r.stdout.Len()+r.stderr.Len())
	if file := r.outcome.Exit.StdoutFile; file != "" {
		n += fmt.Sprintf(" The whole stdout is in %s: read parts of it with Deno.readTextFile in a later run.", file)
	}
	return n + " Print less: filter, count, or select fields in code."
}

// changeNote names the skills that changed during the run.
func changeNote(changes []skill.Change) string {
	if len(changes) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("Skills changed during this run: ")
	for i, c := range changes {
		if i == 20 {
			fmt.Fprintf(&b, " and %d more", len(changes)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s (%s)", c.Name, c.What)
	}
	return b.String() + "."
}

// hints returns sentences for the model, each once, at most maxHints: the proxy's, then those for what Deno refused.
func (r rendering) hints() []string {
	var out []string
	add := func(s string) {
		if s != "" && !contains(out, s) {
			out = append(out, s)
		}
	}
	for _, h := range r.outcome.Receipt.Hints {
		add(h.Text)
	}
	stdout, _ := r.stdout.Text(r.limit)
	stderr, _ := r.stderr.Text(r.limit)
	for _, h := range denoHints(stderr+"\n"+stdout, r.catalog) {
		add(h)
	}
	if len(out) > maxHints {
		n := len(out) - maxHints
		out = append(out[:maxHints], fmt.Sprintf("%d more hints are left out.", n))
	}
	return out
}

// What Deno prints when it refuses something itself.
var (
	netRefusal   = regexp.MustCompile(`Requires net access to "([^"\s]{1,300})"`)
	fileRefusal  = regexp.MustCompile(`Requires (?:read|write) access to `)
	otherRefusal = regexp.MustCompile(`Requires (?:env|run|ffi|sys|import) access`)
	mcpRefusal   = regexp.MustCompile(`ReferenceError: (?:mcp|McpError) is not defined|` +
		`Relative import path "mcp" not prefixed`)
	importRefusal = regexp.MustCompile(`(?i)a remote specifier was requested|(npm|jsr): specifier was requested|` +
		`--no-remote|--no-npm|import access to "`)
)

// suggest names the known host that a misspelt one resembles most, or returns an empty string.
func suggest(host string, cat controlapi.Catalog) string {
	var known []string
	domain := map[string]string{}
	for _, a := range cat.APIs {
		for _, d := range a.Domains {
			name, _, _ := strings.Cut(d, ":")
			known, domain[name] = append(known, name), d
		}
	}
	if near := typo.Nearest(host, 3, known); near != "" {
		return " Did you mean " + domain[near] + "?"
	}
	return ""
}

// elsewhere says at which ports the catalog has a host that it does not have at this one; empty if it has it nowhere.
func elsewhere(host hostname.Host, port string, cat controlapi.Catalog) string {
	var at []string
	for _, a := range cat.APIs {
		for _, d := range a.Domains {
			p, err := hostname.ParsePattern(d)
			if err == nil && (p.Name() == host.Name() || p.Name() == host.Wildcard().Name()) && !slices.Contains(at, d) {
				at = append(at, d)
			}
		}
	}
	if len(at) == 0 {
		return ""
	}
	if n, err := strconv.ParseUint(port, 10, 16); err == nil {
		host = host.At(uint16(n))
	}
	return fmt.Sprintf("%s is not open at this port. The catalog has %s; the user can add another port to the domains of "+
		"an API in apis/.", host, strings.Join(at[:min(len(at), 4)], ", "))
}

// noServers is why code has no mcp.
func noServers(cat controlapi.Catalog) string {
	if !hasServers(cat) {
		return "No MCP server is configured, so there is no mcp. The user can add one as apis/<name>/config.json."
	}
	return "mcp is a global, without an import, of runs whose apis include an MCP server: those with \"mcp\" in list_apis."
}

// serverWants matches what a server from npm says of a host that it may not reach, as its error reaches code.
var serverWants = regexp.MustCompile(`McpError: ([\w-]{1,64})\.[^\n]*?Requires net access to "([^"\s]{1,300})"`)

// ofServers takes the words of servers out of what was printed, which would otherwise read as Deno's about the code
// itself, and returns hints for them.
func ofServers(printed string, cat controlapi.Catalog) (rest string, hints []string) {
	for _, m := range serverWants.FindAllStringSubmatch(printed, maxHints) {
		host, port, _ := strings.Cut(m[2], ":")
		name, err := hostname.Parse(host)
		if n, bad := strconv.ParseUint(port, 10, 16); bad == nil {
			name = name.At(uint16(n))
		}
		if err != nil || !hasServer(cat, m[1]) {
			continue
		}
		hints = append(hints, fmt.Sprintf("The server %s wants to reach %s, which is not in its domains. "+
			"The user can add it in apis/%s/config.json.", m[1], name, m[1]))
	}
	lines := slices.DeleteFunc(strings.Split(printed, "\n"), func(l string) bool {
		return strings.Contains(l, "McpError: ")
	})
	return strings.Join(lines, "\n"), hints
}

// denoHints returns hints for what Deno refused before it reached the proxy. Code can print anything, so a host counts
// only if it is a valid host name.
func denoHints(printed string, cat controlapi.Catalog) []string {
	printed, out := ofServers(printed, cat)
	seen := map[string]bool{}
	for _, m := range netRefusal.FindAllStringSubmatch(printed, 50) {
		name := m[1]
		if seen[name] || len(out) > maxHints {
			continue
		}
		seen[name] = true
		name, port, _ := strings.Cut(name, ":")
		host, err := hostname.Parse(name)
		if err != nil {
			out = append(out, "The sandbox reaches hosts by name only, and only those of configured APIs.")
			continue
		}
		if at := elsewhere(host, port, cat); at != "" {
			if !seen[at] {
				seen[at] = true
				out = append(out, at)
			}
			continue
		}
		out = append(out, fmt.Sprintf("%s belongs to no configured API, so code cannot reach it.%s "+
			"list_apis shows the hosts that are open; the user can add it to the domains of an API in apis/.",
			host, suggest(host.String(), cat)))
	}
	if importRefusal.MatchString(printed) {
		out = append(out, "Imports from npm:, jsr: and URLs are off. "+
			"Use what Deno has built in, fetch, and modules in /skills.")
	}
	if mcpRefusal.MatchString(printed) {
		out = append(out, noServers(cat))
	}
	if fileRefusal.MatchString(printed) {
		out = append(out, "Code may read /tmp, /skills and /runs, and write /tmp and /skills.")
	}
	if otherRefusal.MatchString(printed) {
		out = append(out, "Environment variables, processes and native code are not available to code.")
	}
	return out
}

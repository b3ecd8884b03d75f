package cli

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/typo"
)

// group is a heading of the help with its commands.
type group struct {
	title    string
	commands []string
}

// groups are the headings, in the order of the help. Every command that is not hidden is in one.
func groups() []group {
	return []group{
		{"Start and stop", []string{"init", "up", "down", "status", "doctor", "state"}},
		{"APIs", []string{"api", "mcp", "check"}},
		{"Credentials that change", []string{"login", "logout", "credentials", "secrets"}},
		{"Requests that wait for you", []string{"held", "approve", "refuse", "plans", "plan"}},
		{"Requests that were stopped", []string{"alarms", "unfreeze"}},
		{"Clients and models", []string{"connect", "stdio", "manifest", "skills"}},
		{"Run and look", []string{"console", "run", "runs", "logs", "receipt", "audit"}},
		{"The command line itself", []string{"version", "completion", "man"}},
	}
}

// examples are what the help of a command shows, by the name of the command, and of its verb if it has verbs.
func examples() map[string][]string {
	return map[string][]string{
		"init":  {"codeforge init", "CODEFORGE_HOME=/srv/cf codeforge init"},
		"api":   {"codeforge api add stripe", "codeforge api list"},
		"state": {"codeforge state move postgres", "codeforge state move sqlite"},
		"api add": {
			"codeforge api add stripe",
			"codeforge api add maps --domain maps.example.com --token MAPS_KEY --in query:key <key.txt",
			"codeforge api add shop --openapi https://shop.example.com/openapi.json --read-only",
		},
		"api list":    {"codeforge api list", "codeforge api list --json name,domains"},
		"api check":   {"codeforge api check stripe", "codeforge api check stripe --json"},
		"api test":    {"codeforge api test stripe", "codeforge api test stripe --path /v1/balance"},
		"api rm":      {"codeforge api rm stripe", "codeforge api rm --help"},
		"api enable":  {"codeforge api enable stripe", "codeforge api enable stripe --json"},
		"api disable": {"codeforge api disable stripe", "codeforge api disable stripe --json"},
		"api edit":    {"codeforge api edit stripe", "EDITOR=nano codeforge api edit stripe"},
		"api update":  {"codeforge api update stripe", "codeforge api update stripe --json"},
		"api propose": {"codeforge api propose stripe", "codeforge api propose stripe --since 30d --json rules"},
		"api explain": {"codeforge api explain stripe POST /v1/refunds", "codeforge api explain notion CALL API-post-page",
			"codeforge api explain stripe GET / --json why"},
		"api search": {"codeforge api search refund a charge", "codeforge api search --api stripe refund"},
		"audit":      {"codeforge audit verify", "codeforge audit show --since 1h"},
		"audit verify": {
			"codeforge audit verify",
			"codeforge audit verify --checkpoint '18231 mX3AvQ2mJd7JqZ3l9sE1nY0pTfK5uR8wBhCqXoGzLkM='",
		},
		"audit show":   {"codeforge audit show --run rmzxw6", "codeforge audit show --since 2026-11-22"},
		"audit export": {"codeforge audit export >ledger.ndjson", "codeforge audit export --otlp --since 24h"},
		"console":      {"codeforge console", "codeforge console --print"},
		"held":         {"codeforge held", "codeforge held --json id,method,url"},
		"approve":      {"codeforge approve --watch", "codeforge approve mzxw6ytb"},
		"plans":        {"codeforge plans", "codeforge plans --json id,state,writes"},
		"plan":         {"codeforge plan show mzxw6ytb", "codeforge plan approve mzxw6ytb --steps 1-3,5"},
		"plan show":    {"codeforge plan show mzxw6ytb", "codeforge plan show mzxw6ytb --json steps"},
		"plan approve": {"codeforge plan approve mzxw6ytb", "codeforge plan approve mzxw6ytb --steps 1-3,5"},
		"plan refuse":  {"codeforge plan refuse mzxw6ytb", "codeforge plan refuse mzxw6ytb --json state"},
		"alarms":       {"codeforge alarms", "codeforge alarms --watch --notify notify-send"},
		"unfreeze":     {"codeforge unfreeze", "codeforge unfreeze 3f9a1c0b7d2e"},
		"refuse":       {"codeforge refuse mzxw6ytb", "codeforge refuse mzxw6ytb nb2w45df"},
		"mcp":          {"codeforge mcp add notion -- npx -y @notionhq/notion-mcp-server", "codeforge mcp list"},
		"mcp add": {
			"codeforge mcp add notion -- npx -y @notionhq/notion-mcp-server",
			"codeforge mcp add linear --url https://mcp.linear.app/mcp --header 'Authorization: Bearer ${LINEAR_KEY}'",
			"codeforge mcp add linear --oauth --url https://mcp.linear.app/mcp",
			"codeforge mcp add acme --env ACME_API_KEY --domain api.acme.com -- npx -y acme-mcp@1.2.3 --read-only",
		},
		"mcp import":    {"codeforge mcp import .mcp.json", "codeforge mcp import claude-desktop --write --clients"},
		"mcp login":     {"codeforge mcp login linear", "codeforge mcp login linear --device"},
		"mcp list":      {"codeforge mcp list", "codeforge mcp list --json name,state,tools"},
		"mcp tools":     {"codeforge mcp tools notion", "codeforge mcp tools notion --json=name"},
		"mcp call":      {`codeforge mcp call everything echo '{"message": "hi"}'`, "codeforge mcp call notion API-get-self"},
		"mcp test":      {"codeforge mcp test notion", `codeforge mcp test acme --tool search --arguments '{"q": "x"}'`},
		"mcp approve":   {"codeforge mcp approve notion", "codeforge mcp approve notion --json"},
		"mcp restart":   {"codeforge mcp restart notion", "codeforge mcp restart notion --json"},
		"mcp logs":      {"codeforge mcp logs notion", "codeforge mcp logs notion --json"},
		"mcp enable":    {"codeforge mcp enable notion", "codeforge mcp enable notion --json"},
		"mcp disable":   {"codeforge mcp disable notion", "codeforge mcp disable notion --json"},
		"mcp rm":        {"codeforge mcp rm notion", "codeforge mcp rm notion --yes"},
		"check":         {"codeforge check", "codeforge check --json ok"},
		"login":         {"codeforge login GMAIL_TOKEN", "codeforge login GMAIL_TOKEN --device"},
		"logout":        {"codeforge logout GMAIL_TOKEN", "codeforge logout LINEAR_TOKEN"},
		"credentials":   {"codeforge credentials", "codeforge credentials --json name,state"},
		"secrets":       {"codeforge secrets", "codeforge secrets --watch"},
		"up":            {"codeforge up --detach", "MCP_PORT=8090 codeforge up"},
		"down":          {"codeforge down", "codeforge down --purge"},
		"status":        {"codeforge status", "codeforge status --json running,problem"},
		"connect":       {"codeforge connect", "codeforge connect cursor --write"},
		"run":           {"codeforge run repos.ts --receipt", "codeforge run -e 'console.log(Deno.args[0])' -- hello"},
		"stdio":         {"codeforge stdio", "docker exec -i codeforge-mcp-server-1 codeforge stdio"},
		"runs":          {"codeforge runs --since 2h --status failed", "codeforge runs --grep invoices --json run,title"},
		"runs show":     {"codeforge runs show rv4zisnvj5vxy", "codeforge runs show rv4 --json"},
		"runs rm":       {"codeforge runs rm rv4zisnvj5vxy", "codeforge runs rm --all --yes"},
		"logs":          {"codeforge logs --follow", "codeforge logs -n 20 --since 1h"},
		"receipt":       {"codeforge receipt", "codeforge receipt rv4zisnvj5vxy --json count"},
		"skills":        {"codeforge skills list", "codeforge skills show github-report"},
		"skills list":   {"codeforge skills list", "codeforge skills list --json name"},
		"skills show":   {"codeforge skills show github-report", "codeforge skills show github-report >report.ts"},
		"skills rm":     {"codeforge skills rm github-report", "codeforge skills rm old older --yes"},
		"skills export": {"codeforge skills export backup", "codeforge skills export backup --force"},
		"manifest":      {"codeforge manifest", "codeforge manifest --full"},
		"doctor":        {"codeforge doctor", "codeforge doctor --attack"},
		"version":       {"codeforge version", "codeforge version --json"},
		"completion":    {"source <(codeforge completion bash)", "codeforge completion fish >completions/codeforge.fish"},
		"man":           {"codeforge man | man -l -", "codeforge man run >codeforge-run.1"},
	}
}

// verb is a command of a command, such as add of api.
type verb struct {
	name string
	// usage is "api add NAME", text what it does.
	usage, text string
}

// verbs are those that the details list, one a line: two spaces, the command, the verb, its arguments; then, behind two
// spaces or more, what it does. Further lines are indented more.
func (c command) verbs() []verb {
	var out []verb
	for line := range strings.Lines(c.details) {
		line = strings.TrimRight(line, "\n")
		rest, starts := strings.CutPrefix(line, "  "+c.name+" ")
		switch {
		case starts && !strings.HasPrefix(rest, " "):
			usage, text, _ := strings.Cut(rest, "  ")
			name, _, _ := strings.Cut(usage, " ")
			out = append(out, verb{name, c.name + " " + usage, strings.TrimSpace(text)})
		case strings.HasPrefix(line, "      ") && len(out) > 0:
			out[len(out)-1].text += " " + strings.TrimSpace(line)
		}
	}
	return out
}

// verbNames are the names of the verbs.
func (c command) verbNames() []string {
	var out []string
	for _, v := range c.verbs() {
		out = append(out, v.name)
	}
	return out
}

// verb is the verb with a name, or nil.
func (c command) verb(name string) *verb {
	for _, v := range c.verbs() {
		if v.name == name {
			return &v
		}
	}
	return nil
}

// alone reports whether a usage has no arguments but flags.
func alone(usage string, words int) bool {
	depth, n := 0, 0
	for _, word := range strings.Fields(usage) {
		optional := depth > 0 || strings.HasPrefix(word, "[-")
		depth += strings.Count(word, "[") - strings.Count(word, "]")
		if !optional {
			n++
		}
	}
	return n <= words
}

// slips is how many slips a misspelt name may have.
func slips(name string) int { return max(1, len(name)/3) }

// didYouMean is "; did you mean X?", or "; want " and all candidates if none is like the name. mark stands before X.
func didYouMean(name, mark string, candidates []string) string {
	if near := typo.Nearest(name, slips(name), candidates); near != "" {
		return "; did you mean " + mark + near + "?"
	}
	return "; want " + either(candidates)
}

// hint is "; did you mean X? " and the rest, or "; " and the rest.
func hint(name, mark string, candidates []string, rest string) string {
	if near := typo.Nearest(name, slips(name), candidates); near != "" {
		return "; did you mean " + mark + near + "? " + rest
	}
	return "; " + rest
}

// unknownCommand is the error for a command that there is not.
func unknownCommand(name string) error {
	return usageError("unknown command %q%s", name,
		hint(name, "", commandNames(), "codeforge help lists the commands"))
}

// flagError explains what flag.FlagSet says of a wrong flag.
func (c command) flagError(fs *flag.FlagSet, err error) error {
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		name = strings.TrimLeft(name, "-")
		var names []string
		fs.VisitAll(func(f *flag.Flag) {
			if !internalFlag(f) && len(f.Name) > 1 {
				names = append(names, f.Name)
			}
		})
		usage := "codeforge " + c.name + " --help shows the usage"
		if c.name == "run" {
			usage += ", and arguments of the script go behind --"
		}
		return usageError("%s: unknown flag --%s%s", c.name, name, hint(name, "--", names, usage))
	}
	return usageError("%s: %s; codeforge %s --help shows the usage", c.name, text, c.name)
}

// internalFlag reports whether a flag is for CodeForge itself.
func internalFlag(f *flag.Flag) bool { return strings.HasPrefix(f.Usage, "internal") }

// flagVerbs are the verbs that a flag is for: those in front of its usage, as in "add, edit: the host". None: all.
func (c command) flagVerbs(f *flag.Flag) (verbs []string, usage string) {
	head, rest, found := strings.Cut(f.Usage, ": ")
	if !found {
		return nil, f.Usage
	}
	for _, name := range strings.Split(head, ", ") {
		if c.verb(name) == nil {
			return nil, f.Usage
		}
		verbs = append(verbs, name)
	}
	return verbs, rest
}

// printHelp lists the commands.
func printHelp(w io.Writer) {
	fmt.Fprint(w, "codeforge runs a model's code in a sandbox "+
		"whose only way out is a proxy that holds the credentials.\n")
	all := map[string]command{}
	for _, c := range commands() {
		all[c.name] = c
	}
	for _, g := range groups() {
		fmt.Fprintf(w, "\n%s\n", g.title)
		for _, name := range g.commands {
			fmt.Fprintf(w, "  codeforge %-44s %s\n", all[name].usage, all[name].summary)
		}
	}
	fmt.Fprint(w, "\nExit codes: 0 done, 1 failed or something is wrong, 2 wrong command line.\n"+
		"codeforge COMMAND --help shows more.\n\n"+
		"Commands use apis/, .env and .codeforge of the folder that CODEFORGE_HOME names, else of the nearest folder from\n"+
		"here upwards that has them. In Docker they find the stack of that folder; docker exec leads to it.\n")
}

// printHelp prints the help of the command, or of one of its verbs.
func (c command) printHelp(w io.Writer, fs *flag.FlagSet, name string) {
	v := c.verb(name)
	if v == nil {
		fmt.Fprintf(w, "codeforge %s\n%s\n", c.usage, sentence(c.summary))
		if c.details != "" {
			fmt.Fprintf(w, "\n%s\n", strings.Trim(c.details, "\n"))
		}
		printExamples(w, c.name)
	} else {
		fmt.Fprintf(w, "codeforge %s\n\n", v.usage)
		for _, line := range wrap(sentence(v.text), helpWidth) {
			fmt.Fprintln(w, line)
		}
		printExamples(w, c.name+" "+v.name)
	}
	first := true
	for _, f := range c.flags(fs, name) {
		if first {
			fmt.Fprintln(w)
			first = false
		}
		fmt.Fprintf(w, "  %-18s %s\n", f.name, f.usage)
	}
}

// helpWidth is how wide text is wrapped.
const helpWidth = 118

// flagHelp is a flag as the help shows it.
type flagHelp struct{ name, usage string }

// flags are those of the command, or those that its verb takes.
func (c command) flags(fs *flag.FlagSet, verb string) []flagHelp {
	var out []flagHelp
	fs.VisitAll(func(f *flag.Flag) {
		verbs, text := c.flagVerbs(f)
		if internalFlag(f) || verb != "" && c.verb(verb) != nil && verbs != nil && !slices.Contains(verbs, verb) {
			return
		}
		if verb != "" && c.verb(verb) != nil {
			f = &flag.Flag{Name: f.Name, Usage: text, Value: f.Value, DefValue: f.DefValue}
		}
		kind, usage := flag.UnquoteUsage(f)
		name := strings.TrimSpace("--" + f.Name + " " + kind)
		if len(f.Name) == 1 {
			name = name[1:]
		}
		if f.Name == "json" {
			name = "--json FIELDS"
			usage += "; with FIELDS, separated by commas, only those (--json=FIELDS where there are other arguments)"
		}
		switch f.DefValue {
		case "", "-1", "false", "0", "0s":
		default:
			usage += " (default " + f.DefValue + ")"
		}
		out = append(out, flagHelp{name, usage})
	})
	return out
}

func printExamples(w io.Writer, name string) {
	if list := examples()[name]; len(list) > 0 {
		fmt.Fprintf(w, "\nExamples:\n")
		for _, line := range list {
			fmt.Fprintf(w, "  %s\n", line)
		}
	}
}

func sentence(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + strings.TrimSuffix(s[1:], ".") + "."
}

// wrap breaks text into lines.
func wrap(text string, width int) []string {
	var out []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			out = append(out, line)
			line = ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(out, line)
}

// verbAction is what a verb does, and how many arguments it takes.
type verbAction struct {
	name        string
	least, most int
	do          func(args []string) error
}

// runVerb runs the verb that the arguments begin with.
func (c command) runVerb(actions []verbAction, args []string) error {
	if len(args) == 0 {
		return usageError("%s: %s?", c.name, either(c.verbNames()))
	}
	i := slices.IndexFunc(actions, func(v verbAction) bool { return v.name == args[0] })
	if i < 0 {
		return usageError("%s %q: want %s", c.name, args[0], either(c.verbNames()))
	}
	v, args := actions[i], args[1:]
	if len(args) < v.least || len(args) > v.most {
		return usageError("%s %s: found %s; want codeforge %s", c.name, v.name, count(len(args), "argument"),
			c.verb(v.name).usage)
	}
	return v.do(args)
}

package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/version"
)

func manCommand() command {
	return command{
		name: "man", usage: "man [COMMAND]", summary: "print a manual page, of codeforge or of one command",
		details: "The page is for man and groff, made from what --help prints.\n\n" +
			"Exit codes: 0 printed; 2 wrong command line.",
		setup: func(*flag.FlagSet) action {
			return func(_ context.Context, e *Env, args []string) error {
				if len(args) == 0 {
					printManual(e.Stdout)
					return nil
				}
				for _, c := range commands() {
					if c.name == args[0] && !c.hidden && len(args) == 1 {
						c.printManual(e.Stdout)
						return nil
					}
				}
				return unknownCommand(strings.Join(args, " "))
			}
		},
	}
}

// roff writes a manual page.
type roff struct{ w io.Writer }

// text escapes a line: no backslash, and no dot or quote in front, is roff's. Hyphens stay hyphens that can be copied.
func (roff) text(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}

func (r roff) head(name, summary string) {
	title := strings.ToUpper(strings.ReplaceAll(name, " ", "-"))
	fmt.Fprintf(r.w, ".TH \"%s\" 1 \"\" \"CodeForge %s\" \"CodeForge\"\n", r.text(title), r.text(version.Version))
	fmt.Fprintf(r.w, ".SH NAME\n%s \\- %s\n", r.text(strings.ReplaceAll(name, " ", "-")), r.text(summary))
}

func (r roff) section(title string) { fmt.Fprintf(r.w, ".SH %s\n", strings.ToUpper(title)) }

// item is a term with its description.
func (r roff) item(term, text string) {
	fmt.Fprintf(r.w, ".TP\n.B \"%s\"\n%s\n", strings.ReplaceAll(r.text(term), `"`, `\(dq`), r.text(text))
}

// asIs is text whose lines are kept.
func (r roff) asIs(text string) {
	fmt.Fprintln(r.w, ".nf")
	for line := range strings.Lines(strings.Trim(text, "\n")) {
		fmt.Fprintln(r.w, r.text(strings.TrimRight(line, "\n")))
	}
	fmt.Fprintln(r.w, ".fi")
}

// printManual is codeforge(1).
func printManual(w io.Writer) {
	r := roff{w}
	r.head("codeforge", "runs a model's code in a sandbox whose only way out is a proxy that holds the credentials")
	r.section("synopsis")
	fmt.Fprintln(w, ".B codeforge\n.I COMMAND\n[ARG...]")
	all := map[string]command{}
	for _, c := range commands() {
		all[c.name] = c
	}
	for _, g := range groups() {
		r.section(g.title)
		for _, name := range g.commands {
			r.item("codeforge "+all[name].usage, sentence(all[name].summary))
		}
	}
	r.section("environment")
	r.item(homeVariable, "The folder with apis/, .env and .codeforge. Default: the nearest one from here upwards.")
	r.item("CODEFORGE_URL", "The MCP endpoint, or docker://CONTAINER of mcp-server, for commands that talk to CodeForge.")
	r.section("exit status")
	fmt.Fprintln(w, "0 done, 1 failed or something is wrong, 2 wrong command line.")
}

// printManual is the page of one command.
func (c command) printManual(w io.Writer) {
	r := roff{w}
	r.head("codeforge "+c.name, c.summary)
	r.section("synopsis")
	fmt.Fprintf(w, ".B \"%s\"\n", r.text("codeforge "+c.usage))
	r.section("description")
	fmt.Fprintln(w, r.text(sentence(c.summary)))
	if c.details != "" {
		r.asIs("\n" + c.details)
	}
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	c.setup(fs)
	if list := c.flags(fs, ""); len(list) > 0 {
		r.section("options")
		for _, f := range list {
			r.item(f.name, f.usage)
		}
	}
	if list := examples()[c.name]; len(list) > 0 {
		r.section("examples")
		r.asIs(strings.Join(list, "\n"))
	}
}

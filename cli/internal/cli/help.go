package cli

import (
	_ "embed" // help.txt
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/typo"
	"github.com/codeforge-mcp/codeforge/internal/version"
)

// helpWidth is the largest number of columns of help.
const helpWidth = 80

//go:embed help.txt
var helpFile string

// readHelpTexts returns the sections of help.txt, by the names of their commands. A section begins with a line of
// "=== " and the names, and has the text and the examples of the command's --help.
func readHelpTexts() map[string]string {
	texts := map[string]string{}
	for section := range strings.SplitSeq(strings.TrimPrefix(helpFile, "=== "), "\n=== ") {
		names, text, _ := strings.Cut(section, "\n")
		texts[names] = text
	}
	return texts
}

// setHelpTexts gives c and the commands below it their texts.
func setHelpTexts(c *cobra.Command, texts map[string]string) {
	text, examples, _ := strings.Cut(texts[c.CommandPath()], "\nExamples:\n")
	c.Long, c.Example = strings.Trim(text, "\n"), strings.Trim(examples, "\n")
	for _, sub := range c.Commands() {
		setHelpTexts(sub, texts)
	}
}

// commandNames returns the names of the commands of c that help shows.
func commandNames(c *cobra.Command) []string {
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return names
}

func printHelp(c *cobra.Command, _ []string) {
	w := c.OutOrStdout()
	fmt.Fprintf(w, "%s\n", endSentence(c.Short))
	if c.Long != "" {
		fmt.Fprintf(w, "\n%s\n", strings.Trim(c.Long, "\n"))
	}
	fmt.Fprintf(w, "\nUsage:\n  %s\n", c.UseLine())
	groups := c.Groups()
	if len(groups) == 0 && c.HasAvailableSubCommands() {
		groups = []*cobra.Group{{Title: "Commands:"}}
	}
	for _, g := range groups {
		fmt.Fprintf(w, "\n%s\n", g.Title)
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() && sub.GroupID == g.ID {
				fmt.Fprintf(w, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
	if c.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", c.Example)
	}
	if c.HasAvailableFlags() {
		fmt.Fprintf(w, "\nFlags:\n%s", c.Flags().FlagUsagesWrapped(helpWidth))
	}
}

// maxSlips returns the number of typing errors that a misspelt name may have.
func maxSlips(name string) int { return max(1, len(name)/3) }

// suggestName returns "; did you mean X?", with mark before X. If no candidate is similar, it returns "; want " and all
// candidates.
func suggestName(name, mark string, candidates []string) string {
	if near := typo.NearestOf(name, maxSlips(name), candidates); near != "" {
		return "; did you mean " + mark + near + "?"
	}
	return "; want " + joinWithOr(candidates)
}

// nearestHint returns "; did you mean X? " and the rest, or "; " and the rest.
func nearestHint(name, mark string, candidates []string, rest string) string {
	if near := typo.NearestOf(name, maxSlips(name), candidates); near != "" {
		return "; did you mean " + mark + near + "? " + rest
	}
	return "; " + rest
}

func flagError(c *cobra.Command, err error) error {
	usage := c.CommandPath() + " --help shows the usage"
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return fmt.Errorf("%s: %w; %s", commandPath(c), err, usage)
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if c.Name() == "run" {
		usage += ", and arguments of the script go behind --"
	}
	name := unknown.GetSpecifiedName()
	return fmt.Errorf("%s: unknown flag --%s%s", commandPath(c), name, nearestHint(name, "--", names, usage))
}

func endSentence(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + strings.TrimSuffix(s[1:], ".") + "."
}

func manCommand(*Env) *cobra.Command {
	return &cobra.Command{
		Use: "man [COMMAND...]", Short: "print a manual page, of codeforge or of one command",
		Args: cobra.ArbitraryArgs,
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			of, _, _ := c.Root().Find(args) // an argument that is no command has nothing after it
			return commandNames(of), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			of, rest, err := c.Root().Find(args)
			if err == nil && len(rest) > 0 {
				err = refuseArguments(of, rest)
			}
			if err != nil {
				return usageError("%w", err)
			}
			return printManual(c.OutOrStdout(), of)
		},
	}
}

// printManual prints the help of a command as a manual page. cobra's own generator would delay each start by a
// millisecond, because it compiles the patterns of a Markdown parser.
func printManual(w io.Writer, c *cobra.Command) error {
	var help strings.Builder
	c.SetOut(&help)
	if err := c.Help(); err != nil {
		return err
	}
	// To roff, a backslash, and a dot or quote at the start of a line, are commands. A plain hyphen would become a dash.
	text := strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'").Replace(help.String())
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	_, err := fmt.Fprintf(w, ".TH \"%s\" \"1\" \"\" \"CodeForge %s\" \"CodeForge\"\n.SH NAME\n%s \\- %s\n"+
		".SH DESCRIPTION\n.nf\n%s.fi\n", strings.ToUpper(name), version.Version, name, c.Short, text)
	return err
}

// completionShells maps the shells to their generators of completion scripts.
func completionShells() map[string]func(*cobra.Command, io.Writer) error {
	return map[string]func(*cobra.Command, io.Writer) error{
		"bash":       func(c *cobra.Command, w io.Writer) error { return c.GenBashCompletionV2(w, true) },
		"zsh":        (*cobra.Command).GenZshCompletion,
		"fish":       func(c *cobra.Command, w io.Writer) error { return c.GenFishCompletion(w, true) },
		"powershell": (*cobra.Command).GenPowerShellCompletionWithDesc,
	}
}

func completionCommand(*Env) *cobra.Command {
	names := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use: "completion SHELL", Short: "print a script that completes commands in a shell",
		Args: cobra.ExactArgs(1), ValidArgs: names,
		RunE: func(c *cobra.Command, args []string) error {
			generate := completionShells()[args[0]]
			if generate == nil {
				return usageError("unknown shell %q%s", args[0], suggestName(args[0], "", names))
			}
			return generate(c.Root(), c.OutOrStdout())
		},
	}
}

// completeNames completes the name of an API in apis/. Shells insert completions without quoting. So it leaves out
// folders whose name is not valid for an API, for example in another person's project.
func completeNames(e *Env) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		// Only the first argument is a name.
		if len(args) > 0 || e.setHome() != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		dir, err := e.findAPIs()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		found, _ := filepath.Glob(filepath.Join(dir, "*", "config.json")) // at worst, it completes no name
		var names []string
		for _, path := range found {
			if name := filepath.Base(filepath.Dir(path)); catalog.CheckName(name) == nil {
				names = append(names, name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/cli/internal/clients"
)

// completeName is the hidden command that the shells call: complete -- WORD..., the last one being typed.
const completeName = "complete"

// shells are the scripts that make a shell call it.
func shells() map[string]string {
	return map[string]string{
		"bash": `_codeforge() {
	local IFS=$'\n'
	COMPREPLY=($(codeforge complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
	[ ${#COMPREPLY[@]} -gt 0 ] || compopt -o default
}
complete -F _codeforge codeforge
`,
		"zsh": `#compdef codeforge
_codeforge() {
	local -a found
	found=("${(@f)$(codeforge complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	if [[ -n $found[1] ]]; then compadd -Q -- $found; else _files; fi
}
if [ "$funcstack[1]" = _codeforge ]; then _codeforge "$@"; else compdef _codeforge codeforge; fi
`,
		"fish": `function __codeforge_complete
	set -l found (codeforge complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)
	if test (count $found) -gt 0
		printf '%s\n' $found
	else
		__fish_complete_path (commandline -ct)
	end
end
complete -c codeforge -e
complete -c codeforge -f -a '(__codeforge_complete)'
`,
		"powershell": `Register-ArgumentCompleter -Native -CommandName codeforge -ScriptBlock {
	param($word, $line, $at)
	$words = @($line.CommandElements | Select-Object -Skip 1 | Where-Object { $_.Extent.EndOffset -lt $at } |
		ForEach-Object { $_.ToString() })
	codeforge complete '--' @words "$word" 2>$null | ForEach-Object {
		[System.Management.Automation.CompletionResult]::new($_, $_, 'ParameterValue', $_) }
}
`,
	}
}

func completionCommand() command {
	names := []string{"bash", "zsh", "fish", "powershell"}
	return command{
		name: "completion", usage: "completion SHELL", summary: "print a script that completes commands in a shell",
		details: "SHELL is " + either(names) + ". It completes commands, flags, and the names of APIs and clients.\n\n" +
			"Exit codes: 0 printed; 2 wrong command line.",
		setup: func(*flag.FlagSet) action {
			return func(_ context.Context, e *Env, args []string) error {
				if len(args) != 1 {
					return usageError("completion takes one shell: %s", either(names))
				}
				script, known := shells()[args[0]]
				if !known {
					return usageError("unknown shell %q%s", args[0], didYouMean(args[0], "", names))
				}
				_, err := io.WriteString(e.Stdout, script)
				return err
			}
		},
	}
}

func completeCommand() command {
	return command{
		name: completeName, usage: completeName, summary: "internal", hidden: true,
		setup: func(*flag.FlagSet) action {
			return func(_ context.Context, e *Env, args []string) error {
				for _, word := range complete(e, args) {
					fmt.Fprintln(e.Stdout, word)
				}
				return nil
			}
		},
	}
}

// complete lists what the last word may become. None: the shell offers files.
func complete(e *Env, words []string) []string {
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	var found []string
	for _, word := range candidates(e, words[:len(words)-1], strings.HasPrefix(last, "-")) {
		if strings.HasPrefix(word, last) {
			found = append(found, word)
		}
	}
	slices.Sort(found)
	return found
}

// candidates are the words that may follow.
func candidates(e *Env, before []string, flags bool) []string {
	if len(before) == 0 {
		return commandNames()
	}
	if before[0] == "help" {
		before = before[1:]
		if len(before) == 0 {
			return commandNames()
		}
	}
	i := slices.IndexFunc(commands(), func(c command) bool { return c.name == before[0] && !c.hidden })
	if i < 0 {
		return nil
	}
	c := commands()[i]
	given, rest := "", before[1:]
	if len(rest) > 0 && c.verb(rest[0]) != nil {
		given, rest = rest[0], rest[1:]
	}
	if flags {
		return c.flagNames(given)
	}
	named := slices.ContainsFunc(rest, func(word string) bool { return !strings.HasPrefix(word, "-") })
	switch {
	case named: // or the value of a flag: no command takes two names of a kind that is known here
		return nil
	case len(c.verbs()) > 0 && given == "":
		return c.verbNames()
	case c.name == "connect":
		return clients.Names()
	case c.name == "completion":
		return []string{"bash", "zsh", "fish", "powershell"}
	case c.name == "man":
		return commandNames()
	case c.name == "mcp" && given == "import":
		return nil // files
	case (c.name == "api" || c.name == "mcp") && strings.Contains(c.verb(given).usage, "NAME") && given != "add":
		return apiNames(e)
	}
	return nil
}

// commandNames are the names of all commands that help shows.
func commandNames() []string {
	var out []string
	for _, c := range commands() {
		if !c.hidden {
			out = append(out, c.name)
		}
	}
	return out
}

// flagNames are the flags of a command, or of one of its verbs.
func (c command) flagNames(verb string) []string {
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	c.setup(fs)
	out := []string{"--help"}
	for _, f := range c.flags(fs, verb) {
		name, _, _ := strings.Cut(f.name, " ")
		out = append(out, name)
	}
	return out
}

// apiNames are the folders in apis/ that hold an API. Shells put what they are told into the command line as it is, so
// a folder whose name is no API's, in somebody else's project, is left out.
func apiNames(e *Env) []string {
	if e.setHome() != nil {
		return nil
	}
	found, _ := filepath.Glob(filepath.Join(e.inHome("apis"), "*", "config.json")) // the pattern is valid
	var out []string
	for _, path := range found {
		if name := filepath.Base(filepath.Dir(path)); catalog.CheckName(name) == nil {
			out = append(out, name)
		}
	}
	return out
}

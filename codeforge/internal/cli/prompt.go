package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/term"

	"github.com/codeforge-mcp/codeforge/catalog/secret"
	"github.com/codeforge-mcp/codeforge/internal/visible"
)

// prompter prompts on a terminal, and otherwise reads lines from standard input.
type prompter struct {
	e        *Env
	terminal bool
	lines    *bufio.Reader
}

func newPrompter(e *Env) prompter {
	return prompter{e: e, terminal: term.IsTerminal(int(e.Stdin.Fd())), lines: bufio.NewReader(e.Stdin)}
}

// line prompts for one line until check accepts it; without a terminal the flag is required.
func (p prompter) line(question, flagName string, check func(string) (string, error)) (string, error) {
	if !p.terminal {
		return "", usageError("%s is missing, and standard input is not a terminal to prompt on", flagName)
	}
	for {
		fmt.Fprint(p.e.Stderr, question)
		line, err := p.lines.ReadString('\n')
		if err != nil {
			return "", fmt.Errorf("reading the answer: %w", err)
		}
		answer, err := check(strings.TrimSpace(line))
		if err == nil {
			return answer, nil
		}
		fmt.Fprintf(p.e.Stderr, "%s. Try again, or leave with Ctrl-C.\n", visible.Line(err.Error()))
	}
}

// secret reads a credential without showing it.
func (p prompter) secret(question string) (secret.Value, error) {
	if !p.terminal {
		line, err := p.lines.ReadString('\n')
		if err != nil && (!errors.Is(err, io.EOF) || line == "") {
			return secret.Value{}, errors.New("reading the credential: standard input has no more lines")
		}
		return secret.New(strings.TrimSpace(line)), nil
	}
	for {
		fmt.Fprint(p.e.Stderr, question)
		data, err := term.ReadPassword(int(p.e.Stdin.Fd()))
		fmt.Fprintln(p.e.Stderr)
		if err != nil {
			return secret.Value{}, fmt.Errorf("reading the credential: %w", err)
		}
		const shortest = 8 // catalog refuses shorter ones, and what else was typed would be lost
		if text := strings.TrimSpace(string(data)); len(text) >= shortest {
			return secret.New(text), nil
		}
		fmt.Fprintf(p.e.Stderr, "A credential has at least %d characters. Try again, or leave with Ctrl-C.\n", shortest)
	}
}

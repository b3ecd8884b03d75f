package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/internal/secret"
)

// linePrompter prompts on a terminal, and otherwise reads lines from standard input.
type linePrompter struct {
	e        *Env
	terminal bool
	lines    *bufio.Reader
}

func newPrompter(e *Env) linePrompter {
	return linePrompter{e: e, terminal: term.IsTerminal(int(e.Stdin.Fd())), lines: bufio.NewReader(e.Stdin)}
}

// askLine prompts for one line until check accepts it. Without a terminal it returns an error that asks for the flag.
func (p linePrompter) askLine(ctx context.Context, question, flagName string,
	check func(string) (string, error),
) (string, error) {
	if !p.terminal {
		return "", usageError("%s is missing, and standard input is not a terminal to prompt on", flagName)
	}
	for {
		fmt.Fprint(p.e.Stderr, question)
		line, err := readTyped(ctx, p.e, func() (string, error) { return p.lines.ReadString('\n') })
		if err != nil {
			return "", err
		}
		answer, err := check(strings.TrimSpace(line))
		if err == nil {
			return answer, nil
		}
		fmt.Fprintf(p.e.Stderr, "%s Try again, or leave with Ctrl-C.\n", safetext.OneLine(endWithStop(err.Error())))
	}
}

// askSecret reads a credential without showing it.
func (p linePrompter) askSecret(ctx context.Context, question string) (secret.Value, error) {
	if !p.terminal {
		line, err := p.lines.ReadString('\n')
		if err != nil && (!errors.Is(err, io.EOF) || line == "") {
			return secret.Value{}, errors.New("reading the credential: standard input has no more lines")
		}
		return secret.New(strings.TrimSpace(line)), nil
	}
	for {
		fmt.Fprint(p.e.Stderr, question)
		data, err := readTyped(ctx, p.e, func() ([]byte, error) { return term.ReadPassword(int(p.e.Stdin.Fd())) })
		if err != nil {
			return secret.Value{}, err
		}
		fmt.Fprintln(p.e.Stderr)
		const shortest = 8 // catalog rejects shorter ones, and all other answers would be lost
		if text := strings.TrimSpace(string(data)); len(text) >= shortest {
			return secret.New(text), nil
		}
		fmt.Fprintf(p.e.Stderr, "A credential has at least %d characters. Try again, or leave with Ctrl-C.\n", shortest)
	}
}

// readTyped waits for the user's input. Ctrl-C ends the wait and restores the terminal. read may have switched the echo
// off, and it goes on reading until the process ends.
func readTyped[T any](ctx context.Context, e *Env, read func() (T, error)) (T, error) {
	type answer struct {
		text T
		err  error
	}
	fd := int(e.Stdin.Fd())
	before, stateErr := term.GetState(fd)
	// A read from a terminal cannot be cancelled: after an interrupt, its answer needs room here.
	answers := make(chan answer, 1)
	go func() {
		text, err := read()
		answers <- answer{text, err}
	}()
	var none T
	select {
	case <-ctx.Done():
		for range 20 { // read may switch the echo off only now
			if stateErr == nil {
				_ = term.Restore(fd, before)
			}
			time.Sleep(time.Millisecond)
		}
		fmt.Fprintln(e.Stderr)
		return none, silentError(ExitInterrupted)
	case a := <-answers:
		if a.err == nil {
			return a.text, nil
		}
		fmt.Fprintln(e.Stderr)
		if errors.Is(a.err, io.EOF) {
			return none, errors.New("standard input ended without an answer: no change was made")
		}
		return none, fmt.Errorf("reading the answer: %w", a.err)
	}
}

// endWithStop ends a text with a full stop, unless it ends with a question mark.
func endWithStop(text string) string {
	if strings.HasSuffix(text, "?") {
		return text
	}
	return text + "."
}

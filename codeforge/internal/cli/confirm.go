package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/term"
)

// confirm asks before something is removed.
func confirm(ctx context.Context, e *Env, question string) error {
	if !term.IsTerminal(int(e.Stdin.Fd())) {
		return errors.New("nothing was removed: pass --yes to remove without confirmation")
	}
	return ask(ctx, e, question, "nothing was removed")
}

// ask returns nil only after a yes, else an error that says refused.
func ask(ctx context.Context, e *Env, question, refused string) error {
	fmt.Fprint(e.Stderr, question+" [y/N] ")
	line, err := typed(ctx, e, func() (string, error) {
		line, err := bufio.NewReader(e.Stdin).ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = nil // no answer is no
		}
		return line, err
	})
	if err != nil {
		return err
	}
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return errors.New(refused)
	}
	return nil
}

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

// confirmRemoval asks before a removal.
func confirmRemoval(ctx context.Context, e *Env, question string) error {
	return requireAgreement(ctx, e, false, question, "not removed", "--yes to remove without confirmation")
}

// requireWrite returns nil if the shown file may be written.
func requireWrite(ctx context.Context, e *Env, write bool) error {
	return requireAgreement(ctx, e, write, "Write it?", "not written", "--write to write it")
}

// requireAgreement returns nil if the user agrees, by a flag or by a yes on a terminal. Otherwise its error says what
// was not done.
func requireAgreement(ctx context.Context, e *Env, flag bool, question, refused, pass string) error {
	switch {
	case flag:
		return nil
	// A script must agree explicitly: its input is not an answer.
	case !term.IsTerminal(int(e.Stdin.Fd())):
		return errors.New(refused + ": pass " + pass)
	}
	return askYes(ctx, e, question, refused)
}

// askYes returns nil only after a yes, otherwise an error with the text refused.
func askYes(ctx context.Context, e *Env, question, refused string) error {
	fmt.Fprint(e.Stderr, question+" [y/N] ")
	line, err := readTyped(ctx, e, func() (string, error) {
		line, err := bufio.NewReader(e.Stdin).ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = nil // no answer means no
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

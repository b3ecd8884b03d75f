package cli

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/term"
)

// confirm asks before something is removed.
func confirm(e *Env, question string) error {
	if !term.IsTerminal(int(e.Stdin.Fd())) {
		return errors.New("nothing was removed: pass --yes to remove without confirmation")
	}
	return ask(e, question, "nothing was removed")
}

// ask returns nil only after a yes, else an error that says refused.
func ask(e *Env, question, refused string) error {
	fmt.Fprint(e.Stderr, question+" [y/N] ")
	line, _ := bufio.NewReader(e.Stdin).ReadString('\n') // no answer is no
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return errors.New(refused)
	}
	return nil
}

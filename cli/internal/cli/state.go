package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
)

func stateCommand(e *Env) *cobra.Command {
	c := groupCommand("state", "copy runs, skills and alarms between files and Postgres")
	move := &cobra.Command{
		Use: "move postgres|sqlite", Short: "copy the state into Postgres or into files",
		ValidArgs: []string{"postgres", "sqlite"},
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
	}
	state := stateFlag(move.Flags())
	move.RunE = func(c *cobra.Command, args []string) error {
		if e.isInContainer() {
			return errContainer
		}
		return moveState(c.Context(), e, *state, c.Flags().Changed("state"), args[0])
	}
	c.AddCommand(move)
	return c
}

// moveState runs mcp-server, the only program that opens databases.
func moveState(ctx context.Context, e *Env, path string, isChosen bool, to string) error {
	dir, err := findState(e, path, isChosen)
	if err != nil {
		return err
	}
	if !dir.Exists() {
		return fmt.Errorf("there is no state directory %s", dir.Path())
	}
	if _, err := os.Stat(dir.Join("lock")); to == "postgres" && err != nil { // each CodeForge that ran here made one
		return fmt.Errorf("no CodeForge has run in %s", dir.Path())
	}
	w, err := readVariables(e)
	if err != nil {
		return err
	}
	url := w.getenv("DATABASE_URL")
	if url == "" {
		return errors.New("DATABASE_URL is set neither in .env nor in the environment")
	}
	lock, err := dir.Lock() // a CodeForge that started meanwhile would add runs that are not copied
	if errors.Is(err, statedir.ErrLocked) {
		pid, _ := dir.FindHolder()
		return fmt.Errorf("CodeForge runs here (process %d): stop it with codeforge down", pid)
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program := filepath.Join(filepath.Dir(self), "mcp-server")
	cmd := exec.CommandContext(ctx, program, "move", //nolint:gosec // beside this one
		"--history", dir.Join("history"), "--skills", dir.Join("skills"), "--tenants", dir.Join("tenants"),
		"--pins", dir.Join("pins"), to)
	// The URL may have a password, and other users can read command lines.
	cmd.Env = []string{"DATABASE_URL=" + url, "DATABASE_CA_FILE=" + w.getenv("DATABASE_CA_FILE")}
	cmd.Stdout, cmd.Stderr = e.Stdout, e.Stderr
	if err := cmd.Run(); err != nil {
		return &exitError{code: 1} // mcp-server has printed the cause
	}
	return nil
}

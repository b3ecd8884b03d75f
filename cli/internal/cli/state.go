package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

func stateCommand() command {
	return command{
		name: "state", usage: "state move postgres|sqlite",
		summary: "copy runs, skills and alarms between files and Postgres",
		details: `
  state move postgres   copies the state directory into the Postgres of DATABASE_URL
  state move sqlite     copies the Postgres of DATABASE_URL into the state directory

Stop CodeForge first. The target must have no runs. The source stays as it is. In Docker:
docker compose run --rm --no-deps mcp-server move postgres

Exit codes: 0 done; 1 not everything was copied; 2 wrong command line.`,
		setup: func(fs *flag.FlagSet) action {
			state := stateFlag(fs)
			return func(ctx context.Context, e *Env, args []string) error {
				if len(args) != 2 || args[0] != "move" || args[1] != "postgres" && args[1] != "sqlite" {
					return usageError("state: want state move postgres or state move sqlite")
				}
				if e.inContainer() {
					return errContainer
				}
				return moveState(ctx, e, *state, target{flags: fs}.given("state"), args[1])
			}
		},
	}
}

// moveState runs mcp-server, which alone opens databases.
func moveState(ctx context.Context, e *Env, path string, isChosen bool, to string) error {
	dir, err := findState(e, path, isChosen)
	if err != nil {
		return err
	}
	if !dir.Exists() {
		return fmt.Errorf("there is no state directory %s", dir.Path())
	}
	if pid, isRunning := dir.Holder(); isRunning {
		return fmt.Errorf("CodeForge runs here (process %d): stop it with codeforge down", pid)
	}
	w, err := readVariables(e)
	if err != nil {
		return err
	}
	url := w.getenv("DATABASE_URL")
	if url == "" {
		return errors.New("DATABASE_URL is set neither in .env nor in the environment")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program := filepath.Join(filepath.Dir(self), "mcp-server")
	cmd := exec.CommandContext(ctx, program, "move", //nolint:gosec // beside this one
		"--history", dir.Join("history"), "--skills", dir.Join("skills"), "--tenants", dir.Join("tenants"),
		"--pins", dir.Join("pins"), to)
	cmd.Env = []string{"DATABASE_URL=" + url, "DATABASE_CA_FILE=" + w.getenv("DATABASE_CA_FILE")}
	cmd.Stdout, cmd.Stderr = e.Stdout, e.Stderr
	if err := cmd.Run(); err != nil {
		return &exitError{code: 1} // mcp-server has printed why
	}
	return nil
}

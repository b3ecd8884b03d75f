package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// errOff means that no history is kept.
var errOff = errors.New("runs are not kept: HISTORY=off in .env or the environment")

// runHistory is the history of runs: of the running CodeForge, or of a state directory without one.
type runHistory struct {
	operatorapi.Client
	name string
	// stopped means that no CodeForge runs.
	stopped bool
	stop    func() // ends the program that reads the files of a stopped CodeForge, or nil
}

// Close ends the access to the history.
func (r runHistory) Close() error {
	if r.stop != nil {
		r.stop()
	}
	return nil
}

// openRecord finds the history. The caller must close it.
func (t serverTarget) openRecord(ctx context.Context, e *Env) (runHistory, error) {
	c, err := t.newConfig(e)
	if err != nil {
		return runHistory{}, err
	}
	op, place, local, err := mcpclient.ConnectOperator(ctx, c)
	switch {
	case err == nil && local:
		return runHistory{Client: op, name: place.Name()}, nil
	case c.URL != "" && err == nil:
		return runHistory{}, fmt.Errorf("%s does not show stored runs; want docker://CONTAINER, or no URL for "+
			"the CodeForge of this folder", c.URL)
	case c.URL != "":
		return runHistory{}, err
	case !c.State.Exists() && err != nil:
		return runHistory{}, err
	case !c.State.Exists():
		return runHistory{}, fmt.Errorf("there is no state directory %s, and no stack of this folder runs in Docker: start "+
			"CodeForge with codeforge up or docker compose up -d, or go to its folder", c.State.Path())
	}
	if _, err := os.Stat(c.State.Join("history", "runs.db")); err != nil {
		return runHistory{}, fmt.Errorf("no run is recorded in %s yet", c.State.Path())
	}
	self, err := os.Executable()
	if err != nil {
		return runHistory{}, err
	}
	op, stop, err := mcpclient.OpenHistory(c.State, filepath.Dir(self))
	return runHistory{Client: op, name: c.State.Path(), stopped: true, stop: stop}, err
}

// findRun returns the history of a run, or of the last run if id is empty.
func (r runHistory) findRun(ctx context.Context, id string) (operatorapi.Detail, error) {
	d, err := r.Run(ctx, id)
	switch {
	case !errors.Is(err, operatorapi.ErrNotFound):
	case id == "":
		err = errors.New("no run is recorded in " + r.name + " yet")
	default:
		err = fmt.Errorf("no run %q is recorded in %s; codeforge runs lists the recorded ones", id, r.name)
	}
	return d, err
}

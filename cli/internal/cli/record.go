package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// errOff means that no history is kept.
var errOff = errors.New("runs are not kept: HISTORY=off in .env or the environment")

// findRun returns the history of a run, or of the last run if id is empty.
func findRun(ctx context.Context, op operatorapi.Client, id string) (operatorapi.Detail, error) {
	d, err := op.Run(ctx, id)
	switch {
	case !errors.Is(err, operatorapi.ErrNotFound):
	case id == "":
		err = errors.New("no run is recorded yet")
	default:
		err = fmt.Errorf("no run %q is recorded; codeforge runs lists the recorded ones", id)
	}
	return d, err
}

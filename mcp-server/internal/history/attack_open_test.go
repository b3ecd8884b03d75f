package history

import (
	"context"
	"fmt"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/historyapi"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// TestAttackSums fails: one object adds any number of rows to the sums, which nothing removes before they are 90 days old,
// so that a gigabyte of them makes tidyRuns remove every run for as long.
func TestAttackSums(t *testing.T) {
	b, _ := objects(t)
	one := sharing(t, b, nil)
	list := make([]historyapi.Exchange, 1000)
	for i := range list {
		list[i].Exchange = exchange("rsums", i, "GET", fmt.Sprint("api", i), fmt.Sprintf("host-%d.example", i))
		for n := range 8 {
			list[i].Swapped = append(list[i].Swapped, controlapi.Swap{Name: fmt.Sprintf("NAME_%d_%d", i, n), In: "x"})
		}
	}
	data := goodRun(t, "rsums", nil, nil, "exchanges", list)
	plant(t, b, runsFolder, newKey("rsums"), data)
	testkit.WaitFor(t, func() bool { return shared(t, one).Skipped == 1 || has(t, one, "rsums") })
	var n int
	testkit.Must(t, one.ask(t.Context(), func(ctx context.Context, tx *transaction) error {
		return tx.QueryRowContext(ctx, `SELECT count(*) FROM hour`).Scan(&n)
	}))
	if n > 500 {
		t.Errorf("an object of %d bytes makes %d rows of sums", len(data), n)
	}
}

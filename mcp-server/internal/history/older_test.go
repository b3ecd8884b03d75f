package history

import (
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// TestOlder: a file that commit 1076a279 wrote keeps its runs, their tenants, sums and alerts. It can be read before
// CodeForge has started once more, too.
func TestOlder(t *testing.T) {
	dir := t.TempDir()
	old, err := database.OpenFile(dir, database.Migrations[:2])
	testkit.Must(t, err)
	now := time.Now().UTC()
	number := now.Add(-time.Hour).UnixMicro() &^ 1
	for _, q := range []string{
		`INSERT INTO run (number, id, state, denied, client, session, data) VALUES ($1, 'r1', 'ok', 0, 'c', 's',
			json_object('number', $1, 'run', 'r1', 'state', 'ok', 'tenant', 'ann', 'client', 'c'))`,
		`INSERT INTO shared VALUES ($1, 'key', 0)`,
		`INSERT INTO hour VALUES ($1 / 900000000 * 900000000, 'traffic', 'stripe', 'api.stripe.com', 3, 1, 0, 10, 20)`,
		`INSERT INTO alert (number, data) VALUES ($1, json_object('number', $1, 'kind', 'alarm', 'title', 'T', 'run', 'r1'))`,
		`INSERT INTO words (rowid, text) VALUES ($1, 'quaggaroot')`,
	} {
		_, err := old.Exec(q, number)
		testkit.Must(t, err)
	}
	testkit.Must(t, old.Close())
	look := func(s *Store) {
		t.Helper()
		for _, f := range []operatorapi.RunFilter{{Tenant: "ann"}, {Grep: "quagga"}} {
			if page, err := s.ListRuns(t.Context(), f, ""); err != nil || len(page.Runs) != 1 {
				t.Errorf("%+v: %+v %v", f, page, err)
			}
		}
		if l, err := s.SumTraffic(t.Context(), now.Add(-2*time.Hour), now); err != nil || len(l.Traffic) != 1 {
			t.Errorf("%+v %v", l, err)
		}
		if list, err := s.ListAlerts(t.Context(), true); err != nil || len(list) != 1 || list[0].Title != "T" {
			t.Errorf("%+v %v", list, err)
		}
	}
	look(open(t, dir, nil))
}

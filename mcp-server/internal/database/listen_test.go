package database_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
)

// TestListen: many who listen, such as tenants, need one connection. All are notified at once, also after Postgres was
// away, and the connection ends with the last of them.
// Promise: shared-runs
func TestListen(t *testing.T) {
	p := testkit.NewPostgres(t)
	db, err := database.OpenPostgres(secret.New(p.URL()))
	testkit.Must(t, err)
	defer db.Close()
	testkit.Must(t, db.Migrate(t.Context(), database.Migrations))
	connections := func() string {
		return p.Query("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'codeforge' AND query LIKE 'LISTEN%%'")
	}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	counts := make([]atomic.Int64, 20)
	for i := range counts {
		all.Go(func() { db.Listen(ctx, make(database.WakeSignal, 1), func() { counts[i].Add(1) }) })
	}
	for range 2 {
		testkit.WaitFor(t, func() bool { return connections() == "1" })
		began := time.Now()
		for range 10 {
			before := make([]int64, len(counts))
			for i := range counts {
				before[i] = counts[i].Load()
			}
			_, err := db.ExecContext(t.Context(), database.Notify)
			testkit.Must(t, err)
			for i := range counts {
				testkit.WaitFor(t, func() bool { return counts[i].Load() > before[i] })
			}
		}
		if took := time.Since(began); took > 10*time.Second { // polls alone take 20 s
			t.Errorf("all were notified only after %v", took)
		}
		p.Stop()
		p.Start()
	}
	stop()
	all.Wait()
	testkit.WaitFor(t, func() bool { return connections() == "0" })
}

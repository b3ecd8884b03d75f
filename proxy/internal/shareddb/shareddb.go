// Package shareddb opens the Postgres in which several proxies keep held requests and the use of limits.
//
// Threat: a compromised mcp-server approves a request, or resets a limit, in the database. Contract: the tables are in
// a schema and under roles that mcp-server's role can neither read nor write. A transaction ends within useTime, so
// a database that hangs cannot block requests for longer. The rows contain token names, never credentials.
package shareddb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/database"
	"github.com/codeforge-mcp/codeforge/internal/settings"
)

const (
	// useTime bounds a transaction, with the wait for a connection and for locks. hangTime is the time after which
	// Postgres ends a transaction of a proxy that hangs.
	useTime  = 3 * time.Second
	hangTime = 2 * time.Second
	// maxOfRun bounds the transactions of one run at once. With two, one can begin while the other commits.
	maxOfRun = 2
	// checkTime bounds the check at the start.
	checkTime = 5 * time.Second
)

// Notify is the statement that wakes all proxies when its transaction commits.
const Notify = `SELECT pg_notify('` + database.ProxySchema + `', '')`

// migrations are the schema: see database.Migration. A row of limit_use has the use of a limit as JSON of package
// budget. A row of held is a request that waits for a person: see package approval. Rows end at until.
var migrations = []database.Migration{{Postgres: `
CREATE TABLE limit_use (key TEXT PRIMARY KEY, used TEXT NOT NULL, until TIMESTAMPTZ NOT NULL);
CREATE TABLE held (id TEXT PRIMARY KEY, tenant TEXT NOT NULL, run TEXT NOT NULL, generation TEXT NOT NULL,
	sum BYTEA NOT NULL, state TEXT NOT NULL, scope TEXT NOT NULL, of_run BOOLEAN NOT NULL, size BIGINT NOT NULL,
	request TEXT NOT NULL, seen TIMESTAMPTZ NOT NULL, until TIMESTAMPTZ NOT NULL);
CREATE INDEX held_sum ON held (sum);
`}}

// OpenDatabase opens the database of PROXY_DATABASE_URL, or returns nil if the setting is empty. It fails if the URL
// has a mistake, the database refuses the role, or the tables are missing or old. If the database does not answer,
// OpenDatabase succeeds: the proxy refuses requests until the database answers.
func OpenDatabase(ctx context.Context, s settings.Settings) (*database.DB, error) {
	if s.ProxyDatabase.IsEmpty() {
		return nil, nil //nolint:nilnil // one proxy needs no database
	}
	if FindPassword(s) == "" {
		return nil, errors.New("PROXY_DATABASE_URL: found no password; want one, from which the proxies derive a shared key")
	}
	db, err := database.OpenPostgres(s.ProxyDatabase, database.ProxySchema, hangTime)
	if err != nil {
		return nil, fmt.Errorf("PROXY_DATABASE_URL: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	current, err := db.IsCurrent(ctx, migrations)
	switch {
	case err == nil && !current:
		err = errors.New("its tables are older than this proxy")
	case err == nil, !database.IsMistake(err):
		return db, nil
	}
	_ = db.Close()
	return nil, fmt.Errorf("PROXY_DATABASE_URL: %w; see docs/guides/several-proxies.md for the roles and "+
		"egress-proxy migrate", database.HideAddress(err))
}

// FindPassword returns the password in PROXY_DATABASE_URL, or "". All proxies share this password, and mcp-server does
// not know it.
func FindPassword(s settings.Settings) string {
	u, err := url.Parse(s.ProxyDatabase.Reveal())
	if err != nil {
		return ""
	}
	password, _ := u.User.Password()
	return password
}

// MigrateTables creates the tables, or brings them up to date. The role of PROXY_DATABASE_URL must own the schema.
func MigrateTables(ctx context.Context, getenv func(string) string) error {
	s, err := settings.Parse(getenv)
	if err != nil {
		return err
	}
	if s.ProxyDatabase.IsEmpty() {
		return errors.New("PROXY_DATABASE_URL is not set")
	}
	db, err := database.OpenPostgres(s.ProxyDatabase, database.ProxySchema, time.Minute)
	if err != nil {
		return fmt.Errorf("PROXY_DATABASE_URL: %w", err)
	}
	defer db.Close()
	return database.HideAddress(db.Migrate(ctx, migrations))
}

// TransactInTime runs a transaction that ends within useTime. It hides the address of the database in errors.
func TransactInTime(ctx context.Context, db *database.DB, do func(ctx context.Context, tx *sql.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, useTime)
	defer cancel()
	return database.HideAddress(db.Transact(ctx, func(tx *sql.Tx) error { return do(ctx, tx) }))
}

// Run identifies the run, or the lease of an MCP server, that causes a transaction.
type Run struct {
	ID         string
	Generation uint64
}

// Turns bounds the transactions of one kind at once, so that a flood leaves connections for the other kinds. Each run
// has at most maxOfRun transactions at once, so a flood by one run delays another run by these transactions only. Turns
// is safe for concurrent use. Make one with NewTurns.
type Turns struct {
	all chan struct{} // has one element for each transaction

	mu   sync.Mutex
	runs map[Run]*runTurn // the runs whose transactions run or wait
}

// runTurn has the turns of one run.
type runTurn struct {
	taken chan struct{} // has one element for each transaction
	users int           // the transactions that run or wait
}

// NewTurns returns Turns for at most n transactions at once.
func NewTurns(n int) *Turns {
	return &Turns{all: make(chan struct{}, n), runs: map[Run]*runTurn{}}
}

// TransactInTurn waits for a turn and then calls TransactInTime. Both end within useTime together. The transactions of
// one run begin in the order in which they come.
func (t *Turns) TransactInTurn(
	ctx context.Context, db *database.DB, by Run, do func(ctx context.Context, tx *sql.Tx) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, useTime)
	defer cancel()
	own := t.joinRun(by)
	defer t.leaveRun(by)
	for _, turn := range []chan struct{}{own, t.all} {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return TransactInTime(ctx, db, do)
}

// joinRun returns the turns of a run. The caller must call leaveRun after its use.
func (t *Turns) joinRun(by Run) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.runs[by]
	if r == nil {
		r = &runTurn{taken: make(chan struct{}, maxOfRun)}
		t.runs[by] = r
	}
	r.users++
	//defence:database-turns instead make(chan struct{}, 1)
	return r.taken
}

func (t *Turns) leaveRun(by Run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.runs[by].users--; t.runs[by].users == 0 {
		delete(t.runs, by)
	}
}

// CountTaken returns the number of running transactions.
func (t *Turns) CountTaken() int { return len(t.all) }

// DropExpired removes the expired rows. It skips locked rows, so it cannot end in a deadlock.
func DropExpired(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, `WITH gone AS (DELETE FROM limit_use WHERE key IN
			(SELECT key FROM limit_use WHERE until < now() FOR UPDATE SKIP LOCKED))
		DELETE FROM held WHERE id IN (SELECT id FROM held WHERE until < now() FOR UPDATE SKIP LOCKED)`)
	return err
}

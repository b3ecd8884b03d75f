package shareddb

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/database"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// readRolesSQL returns the SQL of the guide, for the database of the test.
func readRolesSQL(t *testing.T) []byte {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(testkit.RootDir(t), "docs/guides/several-proxies.md"))
	testkit.Must(t, err)
	_, rest, _ := strings.Cut(string(page), "```sql\n")
	text, _, _ := strings.Cut(rest, "```")
	return []byte(strings.ReplaceAll(text, "DATABASE codeforge ", "DATABASE postgres "))
}

// TestRoles: the roles of the guide. The owner makes the tables, the proxy changes their rows and cannot change the
// tables, and mcp-server can neither read nor write them. mcp-server still works.
// Promise: several-proxies
func TestRoles(t *testing.T) {
	p := testkit.NewPostgres(t)
	p.RunProgram(readRolesSQL(t), "psql", "-d", "postgres", "-v", "ON_ERROR_STOP=1")
	owner := p.URLOf("codeforge_owner", "put_a_password_here")
	proxy := p.URLOf("codeforge_proxy", "put_another_here")
	server := p.URLOf("codeforge_server", "put_a_third_here")
	open := func(url string) settings.Settings { return settings.Settings{ProxyDatabase: secret.New(url)} }
	set := open(proxy)
	if _, err := OpenDatabase(t.Context(), set); err == nil {
		t.Error("it opens a database without tables")
	}
	migrate := func(url string) error {
		return MigrateTables(t.Context(), func(name string) string {
			return map[string]string{"PROXY_DATABASE_URL": url}[name]
		})
	}
	for _, url := range []string{proxy, server} {
		if err := migrate(url); err == nil {
			t.Error("another role makes tables")
		}
	}
	testkit.Must(t, migrate(owner))
	testkit.Must(t, migrate(owner))
	db, err := OpenDatabase(t.Context(), set)
	testkit.Must(t, err)
	defer db.Close()
	for _, query := range []string{
		`INSERT INTO limit_use VALUES ('a/calls', '{}', now())`, `UPDATE limit_use SET used = ''`, `DELETE FROM held`,
		`LOCK TABLE held IN SHARE ROW EXCLUSIVE MODE`, Notify,
	} {
		if _, err := db.ExecContext(t.Context(), query); err != nil && !strings.Contains(err.Error(), "transaction blocks") {
			t.Errorf("%s: %v", query, err)
		}
	}
	for _, query := range []string{`DROP TABLE held`, `ALTER TABLE held ADD COLUMN x TEXT`, `TRUNCATE held`, `CREATE TABLE x (y TEXT)`} {
		if _, err := db.ExecContext(t.Context(), query); err == nil {
			t.Errorf("the proxy's role may %s", query)
		}
	}
	other, err := database.OpenPostgres(secret.New(server), "codeforge", time.Minute)
	testkit.Must(t, err)
	defer other.Close()
	// A role that can use the schema, or become one that can, is refused as mcp-server's, also if it gets the right later.
	for grant, want := range map[string]error{
		"": nil,
		"GRANT USAGE ON SCHEMA codeforge_proxy TO codeforge_server":                        database.ErrProxyRole,
		"GRANT codeforge_proxy TO codeforge_server":                                        database.ErrProxyRole,
		"ALTER ROLE codeforge_server NOINHERIT; GRANT codeforge_proxy TO codeforge_server": database.ErrProxyRole,
		"GRANT pg_read_all_data TO codeforge_server":                                       database.ErrProxyRole,
		// Such a role can grant itself each of the roles before Postgres 16.
		"ALTER ROLE codeforge_server CREATEROLE": database.ErrProxyRole,
		// These roles reach the rows outside of tables.
		"ALTER ROLE codeforge_server REPLICATION":                 database.ErrProxyRole,
		"GRANT pg_read_server_files TO codeforge_server":          database.ErrProxyRole,
		"GRANT pg_write_server_files TO codeforge_server":         database.ErrProxyRole,
		"GRANT pg_execute_server_program TO codeforge_server":     database.ErrProxyRole,
		"ALTER ROLE codeforge_server CREATEDB":                    nil,
		"GRANT pg_monitor, pg_signal_backend TO codeforge_server": nil,
	} {
		p.RunProgram([]byte(grant), "psql", "-d", "postgres")
		later, err := database.OpenPostgres(secret.New(server), "codeforge", time.Minute)
		testkit.Must(t, err)
		if err := later.PingContext(t.Context()); !errors.Is(err, want) {
			t.Errorf("%s: %v", grant, err)
		}
		testkit.Must(t, later.Close())
		p.RunProgram([]byte("REVOKE codeforge_proxy FROM codeforge_server; REVOKE USAGE ON SCHEMA codeforge_proxy FROM codeforge_server; "+
			"REVOKE pg_read_all_data, pg_read_server_files, pg_write_server_files, pg_execute_server_program, pg_monitor, pg_signal_backend FROM codeforge_server; "+
			"ALTER ROLE codeforge_server INHERIT NOCREATEROLE NOREPLICATION NOCREATEDB"), "psql", "-d", "postgres")
	}
	testkit.Must(t, other.Migrate(t.Context(), []database.Migration{{Postgres: `CREATE TABLE run (id TEXT)`}}))
	for _, query := range []string{
		`SELECT * FROM codeforge_proxy.held`, `SELECT count(*) FROM codeforge_proxy.limit_use`,
		`UPDATE codeforge_proxy.held SET state = 'approved'`, `DELETE FROM codeforge_proxy.limit_use`,
		`INSERT INTO codeforge_proxy.limit_use VALUES ('a', '{}', now())`, `TRUNCATE codeforge_proxy.held`,
		`CREATE TABLE codeforge_proxy.x (y TEXT)`,
		`DROP SCHEMA codeforge_proxy CASCADE`, `ALTER TABLE codeforge_proxy.held OWNER TO codeforge_server`,
		`SET ROLE codeforge_proxy`, `GRANT USAGE ON SCHEMA codeforge_proxy TO codeforge_server`,
	} {
		_, err := other.ExecContext(t.Context(), query)
		if err == nil || !strings.Contains(err.Error(), "denied") && !strings.Contains(err.Error(), "must be owner") {
			t.Errorf("mcp-server's role: %s: %v", query, err)
		}
	}
	set = open(server)
	if _, err := OpenDatabase(t.Context(), set); err == nil {
		t.Error("a proxy opens the database as mcp-server")
	}
}

// TestOpenAway: a proxy starts without Postgres, but not with a mistake in the address.
// Promise: several-proxies
func TestOpenAway(t *testing.T) {
	p := testkit.NewPostgres(t)
	if db, err := OpenDatabase(t.Context(), settings.Settings{}); db != nil || err != nil {
		t.Errorf("without a setting: %v, %v", db, err)
	}
	_, err := OpenDatabase(t.Context(), settings.Settings{ProxyDatabase: secret.New(p.URLOf("codeforge", "wrong"))})
	if err == nil || strings.Contains(err.Error(), p.Address) || strings.Contains(err.Error(), "wrong\"") {
		t.Errorf("a wrong password: %v", err)
	}
	// Without a password, the proxies would have no key in common, and late approvals would match at one proxy only.
	if _, err := OpenDatabase(t.Context(), settings.Settings{ProxyDatabase: secret.New(strings.Replace(p.URL(), ":"+p.Password, "", 1))}); err == nil || !strings.Contains(err.Error(), "found no password") {
		t.Errorf("no password: %v", err)
	}
	p.Stop()
	began := time.Now()
	db, err := OpenDatabase(t.Context(), settings.Settings{ProxyDatabase: secret.New(p.URL())})
	if err != nil || time.Since(began) > testkit.Patience {
		t.Errorf("%v after %s", err, time.Since(began))
	}
	testkit.Must(t, db.Close())
}

// countBeforeHonest floods a database with the transactions of one run, each of 20 ms, two at a time at most. It
// returns how many of them end before the transaction of another run, which comes last.
func countBeforeHonest(t *testing.T) (before int64) {
	t.Helper()
	p := testkit.NewPostgres(t)
	db, err := database.OpenPostgres(secret.New(p.URL()), database.ProxySchema, time.Minute)
	testkit.Must(t, err)
	defer db.Close()
	turns := NewTurns(2)
	var ended atomic.Int64
	transact := func(by Run) {
		err := turns.TransactInTurn(t.Context(), db, by, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `SELECT pg_sleep(0.02)`)
			return err
		})
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		ended.Add(1)
	}
	var all sync.WaitGroup
	defer all.Wait()
	for range 64 { // as many requests as a run has in flight
		all.Go(func() { transact(Run{ID: "flood"}) })
	}
	testkit.WaitFor(t, func() bool { return ended.Load() > 0 })
	began := ended.Load()
	transact(Run{ID: "honest"})
	return ended.Load() - began
}

// TestTurns: a flood of one run delays another run by a few transactions.
// Promise: tenant-shares, several-proxies
func TestTurns(t *testing.T) {
	if n := countBeforeHonest(t); n > 10 {
		t.Errorf("%d transactions of the flood came first", n)
	}
}

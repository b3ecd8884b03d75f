// Package database defines mcp-server's database: a SQLite file on one machine, or Postgres for several replicas. A
// feature with state, such as files of runs or logins, appends its tables to Migrations (schema.go).
package database

import (
	"time"

	"github.com/codeforge-mcp/codeforge/internal/database"
	"github.com/codeforge-mcp/codeforge/internal/secret"
)

// These types are in internal/database, because the proxy uses them too.
type (
	DB         = database.DB
	Migration  = database.Migration
	WakeSignal = database.WakeSignal
)

// See internal/database.
var (
	ErrNewer      = database.ErrNewer
	HideAddress   = database.HideAddress
	IsMistake     = database.IsMistake
	IsUnreachable = database.IsUnreachable
	LockAdvisory  = database.LockAdvisory
)

const schema = "codeforge"

// Notify is the statement that wakes all replicas when its transaction commits.
const Notify = `SELECT pg_notify('` + schema + `', '')`

// Keys of the advisory locks. Each lock is held until the end of a transaction.
const (
	// LockEvents orders the commits of transactions that write events, so that a reader never skips a late commit.
	LockEvents = database.LockMigration + 1 + iota
	// LockTidy lets one replica at a time remove old data.
	LockTidy
	// LockReplicas guards the list of replicas.
	LockReplicas
)

// OpenPostgres prepares connections to Postgres. The address is a URL that package settings has completed. The first
// use connects.
func OpenPostgres(address secret.Value) (*DB, error) {
	return database.OpenPostgres(address, schema, time.Minute)
}

package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Migration is one step of the schema in the SQL of each database. If Postgres is empty, Postgres skips the step.
type Migration struct{ SQLite, Postgres string }

// ErrNewer means that a newer CodeForge wrote the database. The database is neither read nor changed.
var ErrNewer = errors.New("a newer CodeForge wrote it")

// rowQuerier is a database or a transaction.
type rowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// schemaVersion returns the schema's version. It fails if the version is newer than the list of migrations.
func (db *DB) schemaVersion(ctx context.Context, q rowQuerier, list []Migration) (have int, err error) {
	query := `PRAGMA user_version`
	if db.Postgres {
		query = `SELECT coalesce(max(version), 0) FROM schema_version`
	}
	if err := q.QueryRowContext(ctx, query).Scan(&have); err != nil {
		return 0, err
	}
	if have > len(list) {
		return have, fmt.Errorf("%w: its schema is %d, and this one knows %d", ErrNewer, have, len(list))
	}
	return have, nil
}

// CheckVersion returns an error if a newer CodeForge wrote the database.
func (db *DB) CheckVersion(ctx context.Context, list []Migration) error {
	_, err := db.schemaVersion(ctx, db, list)
	return err
}

// IsCurrent reports whether the database has all migrations.
func (db *DB) IsCurrent(ctx context.Context, list []Migration) (bool, error) {
	have, err := db.schemaVersion(ctx, db, list)
	return have == len(list), err
}

// Migrate applies the migrations that a database lacks, each atomically.
func (db *DB) Migrate(ctx context.Context, list []Migration) error {
	if db.Postgres {
		return db.Transact(ctx, func(tx *sql.Tx) error { return db.migratePostgres(ctx, tx, list) })
	}
	have, err := db.schemaVersion(ctx, db, list)
	for err == nil && have < len(list) {
		have, err = db.applyNext(ctx, list)
	}
	return err
}

// applyNext applies the next missing migration of a file, unless another process has done so meanwhile. The transaction
// locks the file from its start. applyNext returns the file's new version.
func (db *DB) applyNext(ctx context.Context, list []Migration) (have int, err error) {
	err = db.Transact(ctx, func(tx *sql.Tx) error {
		if have, err = db.schemaVersion(ctx, tx, list); err != nil || have == len(list) {
			return err
		}
		have++
		if _, err := tx.ExecContext(ctx, list[have-1].SQLite+fmt.Sprintf(";PRAGMA user_version = %d", have)); err != nil {
			return fmt.Errorf("to version %d: %w", have, err)
		}
		return nil
	})
	return have, err
}

// migratePostgres applies all missing migrations. Replicas that start together wait for each other.
func (db *DB) migratePostgres(ctx context.Context, tx *sql.Tx, list []Migration) error {
	if err := LockAdvisory(ctx, tx, LockMigration); err != nil {
		return err
	}
	var is bool
	err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)`, db.schema).Scan(&is)
	if err == nil && !is { // IF NOT EXISTS would require the right to create one
		_, err = tx.ExecContext(ctx, `CREATE SCHEMA `+db.schema)
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS schema_version (version BIGINT PRIMARY KEY)`)
	}
	if err != nil {
		return err
	}
	have, err := db.schemaVersion(ctx, tx, list)
	for ; err == nil && have < len(list); have++ {
		_, err = tx.ExecContext(ctx, list[have].Postgres)
		if err == nil {
			_, err = tx.ExecContext(ctx, `INSERT INTO schema_version VALUES ($1)`, have+1)
		}
	}
	return err
}

package history

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// tables are the tables that MoveRuns copies, with their columns. MoveRuns rebuilds the full-text index.
var tables = []struct{ name, columns string }{
	{"run", "number, id, state, denied, client, session, tenant, data, hints"},
	{"content", "number, size, data"},
	{"run_file", "number, name, type, size, data"},
	{"fact", "kind, value, number"},
	{"exchange", "number, id, run, api, host, outcome, data"},
	{"swap", "name, number, place, swapped, scrubbed"},
	{"total", "began, kind, source, target, counted, denied, failed, bytes_up, bytes_down"},
	{"skill_version", "number, skill, version, data, source"},
	{"alert", "number, seen, data, kind, run"},
}

// MoveRuns copies all runs to another database without runs, in one transaction, and returns their number.
func MoveRuns(ctx context.Context, from, to *database.DB) (runs int, err error) {
	db := &writeTarget{DB: to, pairs: map[[2]string]bool{}, statements: map[string]*sql.Stmt{}}
	// SQLite's statements are prepared on one connection; see target.
	if !to.Postgres {
		if db.conn, err = to.Conn(ctx); err != nil {
			return 0, err
		}
		defer db.conn.Close()
	}
	inner, err := db.beginTransaction(ctx)
	if err != nil {
		return 0, database.HideAddress(err)
	}
	tx := &writeTransaction{Tx: inner, target: db, sums: map[sumKey]*totalRow{}}
	defer func() { _ = tx.Rollback() }() // has no effect after a commit
	// Checked in the same transaction, so that a concurrent run cannot slip in.
	var has bool
	if err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM run)`).Scan(&has); err != nil {
		return 0, database.HideAddress(err)
	}
	if has {
		return 0, errors.New("the target already has runs, and runs are not mixed: empty it first")
	}
	for _, t := range tables {
		if err := copyTable(ctx, tx, from, t.name, t.columns); err != nil {
			return 0, fmt.Errorf("copying %s: %w", t.name, database.HideAddress(err))
		}
	}
	if runs, err = indexRuns(ctx, tx, from); err == nil {
		err = tx.Commit()
	}
	return runs, database.HideAddress(err)
}

func copyTable(ctx context.Context, tx *writeTransaction, from *database.DB, name, columns string) error {
	n := strings.Count(columns, ",") + 1
	places := make([]string, n)
	values, into := make([]any, n), make([]any, n)
	for i := range places {
		places[i], into[i] = "$"+strconv.Itoa(i+1), &values[i]
	}
	query := "INSERT INTO " + name + " (" + columns + ") VALUES (" + strings.Join(places, ", ") + ")"
	return eachRow(ctx, from, func(row *sql.Rows) error {
		if err := row.Scan(into...); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, query, values...)
		return err
	}, "SELECT "+columns+" FROM "+name)
}

// indexRuns adds all runs to the full-text index.
func indexRuns(ctx context.Context, tx *writeTransaction, from *database.DB) (n int, err error) {
	return n, eachRow(ctx, from, func(row *sql.Rows) error {
		var data string
		var packed []byte
		if err := row.Scan(&data, &packed); err != nil {
			return err
		}
		var run operatorapi.Run
		if err := json.Unmarshal([]byte(data), &run); err != nil {
			return err
		}
		var c *runContent
		if packed != nil {
			c = &runContent{}
			if err := unpackValue(packed, c); err != nil {
				return err
			}
		}
		texts, err := exchangeTexts(ctx, tx, run.ID)
		if err != nil {
			return err
		}
		n++
		return putWords(ctx, tx, run, texts, c)
	}, `SELECT run.data, content.data FROM run LEFT JOIN content ON content.number = run.number`)
}

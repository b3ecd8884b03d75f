package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/history"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// checkTime bounds the first attempt to use Postgres, and a check of its state.
const checkTime = 5 * time.Second

// openDatabase opens Postgres, if DATABASE_URL is set. A database that does not answer yet is not an error, but one
// that rejects the login is.
func (d *daemon) openDatabase(ctx context.Context) (err error) {
	if d.settings.Database.IsEmpty() {
		return nil
	}
	if d.flags.history == "" {
		return errors.New("DATABASE_URL: want --history with it, for copies of skills")
	}
	if d.database, err = database.OpenPostgres(d.settings.Database); err != nil {
		return fmt.Errorf("DATABASE_URL: %w", err)
	}
	short, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	err = d.database.Migrate(short, database.Migrations)
	if err != nil && database.IsMistake(err) {
		return fmt.Errorf("DATABASE_URL: %w", database.HideAddress(err))
	}
	// mcp-server starts without Postgres and tries again later, so that a restart of the database does no harm.
	if err != nil {
		d.log.Warn("Postgres cannot be used yet", logline.Tag("database"),
			slog.String("error", database.HideAddress(err).Error()))
	}
	return nil
}

// openHistory opens the store of runs.
func (d *daemon) openHistory() {
	d.history = history.OpenStore(history.Config{
		Dir: d.flags.history, Mode: d.settings.History, Clean: newRedactor(d.settings.RedactingStrings),
		Scrub: d.control.ScrubTexts, ScrubFile: d.control.ScrubFile, Database: d.database, Log: d.log,
		Cancel: func(run string) bool { return d.executor.StopRun(run) }, // the executor does not exist yet
	})
}

func (d *daemon) databaseState(ctx context.Context) (out operatorapi.Database) {
	if d.database == nil {
		return out
	}
	out.Used = true
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	if err := d.database.CheckVersion(ctx, database.Migrations); err != nil {
		out.Problem = database.HideAddress(err).Error()
	} else if err := d.skills.DatabaseError(); err != nil {
		out.Problem = d.skills.DatabaseProblem() + ": " + err.Error()
	}
	if s, err := d.history.Status(ctx); err == nil {
		out.Waiting = s.Waiting
	}
	return out
}

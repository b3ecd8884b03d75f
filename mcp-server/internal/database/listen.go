package database

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// channel is where replicas notify each other, pollTime how often a replica looks without a notification.
	channel  = "codeforge"
	pollTime = 2 * time.Second
	// retryTime is the pause before another attempt to connect.
	retryTime = time.Second
)

// Notify wakes all replicas when the transaction commits.
const Notify = `SELECT pg_notify('` + channel + `', '')`

// Listen calls changed, which must not block, after each change that some replica notifies of, and every pollTime,
// until ctx ends.
func (db *DB) Listen(ctx context.Context, changed func()) {
	go func() {
		tick := time.NewTicker(pollTime)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				changed()
			}
		}
	}()
	for ctx.Err() == nil {
		_ = db.listen(ctx, changed) // the poll goes on meanwhile
		select {
		case <-ctx.Done():
		case <-time.After(retryTime):
		}
	}
}

// listen calls changed until the connection ends.
func (db *DB) listen(ctx context.Context, changed func()) error {
	conn, err := pgx.ConnectConfig(ctx, db.config.Copy())
	if err != nil {
		return err
	}
	defer func() {
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), retryTime)
		defer cancel()
		_ = conn.Close(short)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	for {
		changed() // also for what came before LISTEN
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return err
		}
	}
}

package database

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// channel is the channel on which replicas notify each other. pollTime is the interval of checks without a
	// notification.
	channel  = "codeforge"
	pollTime = 2 * time.Second
	// retryTime is the pause before the next attempt to connect.
	retryTime = time.Second
)

// Notify wakes all replicas when the transaction commits.
const Notify = `SELECT pg_notify('` + channel + `', '')`

// Listen calls changed after each notification of a replica, and every pollTime, until ctx ends. changed must not
// block.
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
		changed() // also for changes before LISTEN
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return err
		}
	}
}

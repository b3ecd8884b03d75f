package database

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/codeforge-mcp/codeforge/internal/timing"
)

const (
	// pollTime is the interval of checks without a notification.
	pollTime = 2 * time.Second
	// retryTime is the pause before the next attempt to connect.
	retryTime = time.Second
)

// listenerSet is the set of listeners for notifications. All listeners share one connection.
type listenerSet struct {
	mu    sync.Mutex
	all   map[WakeSignal]bool
	stop  context.CancelFunc
	ended chan struct{} // closed when the connection is closed after stop
}

// WakeSignal makes Listen call its function. Its capacity is 1, so several signals in a row count as one.
type WakeSignal chan struct{}

// SendSignal sends the signal, unless one already waits.
func (w WakeSignal) SendSignal() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// Listen calls changed at once, after each change that some process notifies of, after each signal of wake, and every
// pollTime, until ctx ends. It makes one call for several changes during the last one. Each listener has its own wake.
func (db *DB) Listen(ctx context.Context, wake WakeSignal, changed func()) {
	leave := db.addListener(wake)
	defer leave()
	poll := time.NewTicker(pollTime)
	defer poll.Stop()
	for ctx.Err() == nil {
		changed()
		select {
		case <-wake:
		case <-poll.C:
		case <-ctx.Done():
		}
	}
}

// addListener adds a listener, of which the first opens the connection. leave removes it. The last to leave waits until
// the connection is closed.
func (db *DB) addListener(wake WakeSignal) (leave func()) {
	l := &db.listeners
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan struct{})
		l.all, l.stop, l.ended = map[WakeSignal]bool{}, stop, ended
		go func() { defer close(ended); db.keepListening(ctx) }()
	}
	l.all[wake] = true
	return func() {
		l.mu.Lock()
		delete(l.all, wake)
		isLast, stop, ended := len(l.all) == 0, l.stop, l.ended
		l.mu.Unlock()
		if isLast {
			stop()
			<-ended
		}
	}
}

func (l *listenerSet) tellAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for wake := range l.all {
		wake.SendSignal()
	}
}

// keepListening opens the connection again and again until ctx ends.
func (db *DB) keepListening(ctx context.Context) {
	for ctx.Err() == nil {
		_ = db.relayNotifications(ctx) // the poll goes on meanwhile
		timing.WaitFor(ctx, retryTime)
	}
}

// relayNotifications tells all listeners of notifications until the connection ends.
func (db *DB) relayNotifications(ctx context.Context) error {
	// LISTEN belongs to one session, and a pool shares its connections between callers.
	conn, err := pgx.ConnectConfig(ctx, db.config.Copy())
	if err != nil {
		return err
	}
	defer func() {
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), retryTime)
		defer cancel()
		_ = conn.Close(short)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+db.schema); err != nil {
		return err
	}
	for {
		db.listeners.tellAll() // also of what came before LISTEN
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return err
		}
	}
}

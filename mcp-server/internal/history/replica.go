package history

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

const (
	// maxReplicas bounds the numbers of replicas. Postgres gives out the lower half. Until Postgres answers, a process has
	// a random number of the upper half.
	maxReplicas = 64
	// beatTime is the time between two heartbeats. A replica without a heartbeat for lostTime has ended, and its
	// unfinished runs are lost.
	beatTime = 3 * time.Second
	lostTime = 20 * time.Second
	// retryTime is the pause before the next attempt to use Postgres.
	retryTime = 500 * time.Millisecond
	// eventsPage is the number of rows of events that are read at a time.
	eventsPage = 100
)

// queueSize returns the number of jobs that may wait for the writer.
func queueSize(cfg Config) int {
	if cfg.Database != nil {
		return maxQueueAway
	}
	return maxQueue
}

// openPostgres migrates the schema of Postgres. It returns nil if Postgres cannot be used now.
func (s *Store) openPostgres() *writeTarget {
	ctx, cancel := context.WithTimeout(context.Background(), statusTime)
	defer cancel()
	s.setReader(s.cfg.Database) // readers try as well, and report the present problem
	if err := s.cfg.Database.Migrate(ctx, s.cfg.migrations); err != nil {
		s.reportProblem(database.HideAddress(err).Error())
		return nil
	}
	s.reportProblem("")
	return &writeTarget{DB: s.cfg.Database, pairs: map[[2]string]bool{}}
}

// awaitPostgres opens Postgres, and retries until Close.
func (s *Store) awaitPostgres() *writeTarget {
	for {
		db := s.openPostgres()
		if db != nil || s.pauseBeforeRetry() {
			return db
		}
	}
}

// pauseBeforeRetry waits for retryTime. It reports whether the store is closed.
func (s *Store) pauseBeforeRetry() bool {
	select {
	case <-s.closed:
		return true
	case <-time.After(retryTime):
		return false
	}
}

// transactPatiently is transact, but retries while Postgres does not answer, until Close.
func (s *Store) transactPatiently(db *writeTarget, jobs []writeJob) error {
	// A commit whose answer was lost may have succeeded, so jobs must know that they are repeated.
	for again := false; ; again = true {
		err := s.doJobs(db, jobs, again)
		// Another error would occur again.
		if !db.Postgres || !database.IsUnreachable(err) {
			return err
		}
		s.reportProblem(database.HideAddress(err).Error())
		if s.pauseBeforeRetry() {
			return s.doJobs(db, jobs, true) // the last attempt
		}
	}
}

// mayTidy reports whether this replica may remove old data in this transaction. Only one replica does so at a time.
func (tx *writeTransaction) mayTidy(ctx context.Context) (mine bool, err error) {
	if !tx.target.Postgres {
		return true, nil
	}
	err = tx.QueryRowContext(ctx, `SELECT pg_try_advisory_xact_lock($1)`, database.LockTidy).Scan(&mine)
	return mine, err
}

// storableArgs returns arguments that Postgres can store: UTF-8 without NUL.
func storableArgs(args []any) []any {
	for i, arg := range args {
		// Code prints arbitrary bytes.
		if text, ok := arg.(string); ok {
			args[i] = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
		}
	}
	return args
}

// putEvents stores the events of a transaction for followers at other replicas.
func (tx *writeTransaction) putEvents(ctx context.Context, writer string) error {
	if !tx.target.Postgres || len(tx.events) == 0 {
		return nil
	}
	data, err := json.Marshal(tx.events)
	if err == nil {
		// Under the lock, numbers become visible in order: a reader would otherwise skip a lower number that commits later.
		err = database.LockAdvisory(ctx, tx.Tx, database.LockEvents)
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, `INSERT INTO event (writer, data) VALUES ($1, $2)`, writer, string(data))
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, database.Notify)
	}
	return err
}

// followOthers publishes the events of other replicas, until ctx ends.
func (s *Store) followOthers(ctx context.Context) {
	<-s.opened
	last, known := int64(0), false
	s.cfg.Database.Listen(ctx, make(database.WakeSignal, 1), func() {
		// Events before the first look are in the lists that a reader loads.
		if !known {
			err := s.cfg.Database.QueryRowContext(ctx, `SELECT coalesce(max(number), 0) FROM event`).Scan(&last)
			known = err == nil
			return
		}
		for more := true; more; {
			last, more = s.publishOthers(ctx, last)
		}
	})
}

// publishOthers publishes a page of other replicas' events after a number. It returns the last number, and whether
// there may be more.
func (s *Store) publishOthers(ctx context.Context, after int64) (last int64, more bool) {
	last, n := after, 0
	err := eachRow(ctx, s.cfg.Database, func(row *sql.Rows) error {
		var writer, data string
		if err := row.Scan(&last, &writer, &data); err != nil {
			return err
		}
		n++
		var events []operatorapi.HistoryEvent
		// This process has published its events already.
		if writer == s.feed.era || json.Unmarshal([]byte(data), &events) != nil {
			return nil
		}
		for _, e := range events {
			if e.Kind != operatorapi.EventCancel {
				s.feed.publishEvent(e)
			} else if s.cfg.Cancel != nil {
				s.cfg.Cancel(e.RunID)
			}
		}
		return nil
	}, `SELECT number, writer, data FROM event WHERE number > $1 ORDER BY number LIMIT $2`, after, eventsPage)
	return last, err == nil && n == eventsPage
}

// sendHeartbeats sends heartbeats until ctx ends, and marks the runs of ended replicas as lost.
func (s *Store) sendHeartbeats(ctx context.Context) {
	<-s.opened // after the attempt to create the tables
	tick := time.NewTicker(beatTime)
	defer tick.Stop()
	var since time.Time // the start of the present row of successes
	for {
		switch err := s.beatOnce(ctx, !since.IsZero() && time.Since(since) > s.cfg.lost); {
		case err != nil:
			since = time.Time{} // others may have been cut off too, and need time to return
		case since.IsZero():
			since = time.Now()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.returnReplicaNumber()
			return
		}
	}
}

// beatOnce sends a heartbeat. If judge is set, it removes replicas without a heartbeat for lostTime.
func (s *Store) beatOnce(ctx context.Context, judge bool) error {
	short, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	// After a long pause another process may have the number.
	res, err := s.cfg.Database.ExecContext(short, `UPDATE replica SET seen = clock_timestamp() WHERE number = $1 AND
		process = $2`, s.replica.Load(), s.feed.era)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil {
		return err
	} else if n == 0 {
		// The row is missing at the first start, or if another replica has judged this one as ended.
		return s.writeAndWait(short, s.takeReplicaNumber)
	}
	if !judge {
		return nil
	}
	return s.writeAndWait(short, func(ctx context.Context, tx *writeTransaction) error {
		// Followers read within seconds; older events have no reader.
		_, err := tx.ExecContext(ctx, `DELETE FROM event WHERE at < now() - interval '10 minutes'`)
		if err == nil {
			err = s.loseRuns(ctx, tx)
		}
		return err
	})
}

// takeReplicaNumber takes the smallest free number. Unfinished runs of the number's earlier owner are lost.
func (s *Store) takeReplicaNumber(ctx context.Context, tx *writeTransaction) error {
	// Two replicas that start together would otherwise take the same number.
	if err := database.LockAdvisory(ctx, tx.Tx, database.LockReplicas); err != nil {
		return err
	}
	var number int64
	err := tx.QueryRowContext(ctx, `INSERT INTO replica SELECT n, clock_timestamp(), $2
		FROM generate_series(0, $1::bigint) n WHERE NOT EXISTS (SELECT FROM replica WHERE number = n) ORDER BY n LIMIT 1
		RETURNING number`, maxReplicas/2-1, s.feed.era).Scan(&number)
	if errors.Is(err, sql.ErrNoRows) { // too many replicas: it keeps its random number
		return nil
	}
	if err != nil {
		return err
	}
	s.replica.Store(number)
	_, err = markLost(ctx, tx, func(run operatorapi.Run) bool {
		return run.Number%maxReplicas == number && !s.isLive(run.ID)
	})
	return err
}

// CancelElsewhere cancels a run of another replica. That replica ends the run within the time of a notification.
func (s *Store) CancelElsewhere(run string) {
	s.queueJob(writeJob{do: func(_ context.Context, tx *writeTransaction) error {
		tx.events = append(tx.events, operatorapi.HistoryEvent{Kind: operatorapi.EventCancel, RunID: run})
		return nil
	}})
}

func (s *Store) isLive(run string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live[run] != nil
}

// loseRuns removes ended replicas, and marks the unfinished runs of unregistered replicas as lost. If such a replica
// still lives, it stores the end of its run over this.
func (s *Store) loseRuns(ctx context.Context, tx *writeTransaction) error {
	if err := database.LockAdvisory(ctx, tx.Tx, database.LockReplicas); err != nil {
		return err
	}
	// now() would be the start of this transaction, which may have waited long for the lock.
	_, err := tx.ExecContext(ctx, `DELETE FROM replica WHERE seen < clock_timestamp() - make_interval(secs => $1)`,
		s.cfg.lost.Seconds())
	if err != nil {
		return err
	}
	var alive []int64
	err = eachRow(ctx, tx, func(row *sql.Rows) error {
		var number int64
		err := row.Scan(&number)
		alive = append(alive, number)
		return err
	}, `SELECT number FROM replica`)
	if err != nil {
		return err
	}
	n, err := markLost(ctx, tx, func(run operatorapi.Run) bool {
		return !slices.Contains(alive, run.Number%maxReplicas) && !s.isLive(run.ID)
	})
	if n > 0 && err == nil {
		s.cfg.Log.Warn("a replica has ended without the ends of its runs", logline.Tag("history"), slog.Int("runs", n))
	}
	return err
}

// returnReplicaNumber gives the number of this replica back.
func (s *Store) returnReplicaNumber() {
	ctx, cancel := context.WithTimeout(context.Background(), statusTime)
	defer cancel()
	_, err := s.cfg.Database.ExecContext(ctx, `DELETE FROM replica WHERE number = $1 AND process = $2`,
		s.replica.Load(), s.feed.era)
	if err != nil {
		s.cfg.Log.Debug("a replica cannot sign off", logline.Tag("history"), slog.String("error",
			database.HideAddress(err).Error()))
	}
}

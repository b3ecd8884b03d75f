// Package history is the store of runs: a SQLite file, or a Postgres database that several replicas share (replica.go).
// One goroutine writes from a bounded queue. mcp-server/operatorapi describes the content.
//
// Contract: a run never waits for the store. The store drops and counts jobs that do not fit in the queue or on the
// disk, first code and output, then the rest. It sets a damaged file aside and creates a new one. While Postgres does
// not answer, jobs stay in the queue.
//
// Threat: a reader of the database learns what code did. The file has mode 0600 in a folder of mode 0700. It contains
// no credential: code uses names, and the proxy replaces a credential that a person put into code before the code and
// its output are stored. REDACTING_STRINGS are removed here, like from log lines. SQLite overwrites removed rows.
// Postgres overwrites them later, when it reuses their space.
package history

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// Modes of the store.
const (
	Full     = "full"     // code, output and receipts
	Receipts = "receipts" // destinations and sizes of requests, without code, output and titles
	Off      = "off"
)

// Ages and sizes up to which data is kept. contentBytes bounds code and output, and separately the files of runs.
const (
	contentDays  = 7
	contentBytes = 256 << 20
	receiptDays  = 90
)

var (
	// ErrOff is the readers' error if HISTORY is off.
	ErrOff = errors.New("runs are not kept: HISTORY=off")
	// ErrUnknown is the error for an entry that is not in the store.
	ErrUnknown = errors.New("this is not recorded")
)

// Config configures a Store.
type Config struct {
	// Dir is the folder of the file. It is created if it does not exist.
	Dir string
	// Database is the Postgres database that replaces the file, or nil.
	Database *database.DB
	// Mode is one of the modes.
	Mode string
	// Clean removes text that must not be stored. Nil removes no text.
	Clean func(string) string
	// Scrub replaces the credentials in texts by their token names. A text is stored only if Scrub succeeds. Nil replaces
	// no text.
	Scrub func(context.Context, []string) ([]string, error)
	// ScrubFile is Scrub for the data of one file.
	ScrubFile func(context.Context, []byte) ([]byte, error)
	// Cancel ends a run of this process if another replica cancels the run. Nil ends no run.
	Cancel func(run string) bool
	Log    *slog.Logger

	// migrations replace the real ones in tests. So do limits.
	migrations []database.Migration
	limits     storeLimits
	now        func() time.Time // the clock for removal by age
	lost       time.Duration    // lostTime
	fresh      time.Duration    // freshTime
}

// storeLimits bound the stored data.
type storeLimits struct {
	contentAge, receiptAge time.Duration
	content, file          int64
}

// Store is a store. It is safe for concurrent use.
type Store struct {
	cfg  Config
	feed eventFeed

	queue  chan writeJob
	sweeps chan chan error
	queued atomic.Int64 // bytes of content in the queue
	// waiting counts the jobs that are not written yet. failed counts the transactions that were rolled back.
	waiting, failed atomic.Int64
	last            atomic.Int64 // the last number given
	opened          chan struct{}
	closed          chan struct{}
	ended           chan struct{}
	closer          sync.Once
	first           int64     // the first number of this process
	swept           time.Time // only for the writer
	ends            int64     // only for the writer: dropped at the last complete tidyEnds
	// reached is the time that reckon accepts, in microseconds, and reckoned is its last call; both only for the writer.
	// today is the time for removal by age.
	reached  int64
	reckoned time.Time
	today    atomic.Int64
	// replica is the number that Postgres gave to this process, below maxReplicas. It is part of all numbers of the
	// process.
	replica atomic.Int64
	parts   sync.WaitGroup // all goroutines but the writer
	stop    context.CancelFunc

	mu      sync.Mutex
	reader  *database.DB // nil until it is open, or if it cannot be opened
	problem string
	dropped int64
	live    map[string]*Recording
}

// OpenStore starts a store and returns at once. The writer opens the file, and readers wait for that.
func OpenStore(cfg Config) *Store {
	if cfg.Clean == nil {
		cfg.Clean = func(s string) string { return s }
	}
	if cfg.migrations == nil {
		cfg.migrations = database.Migrations
	}
	// Tests set small limits.
	if cfg.limits == (storeLimits{}) {
		cfg.limits = storeLimits{
			contentAge: contentDays * 24 * time.Hour, receiptAge: receiptDays * 24 * time.Hour,
			content: contentBytes, file: maxFile,
		}
	}
	cfg.lost, cfg.fresh = cmp.Or(cfg.lost, lostTime), cmp.Or(cfg.fresh, freshTime)
	if cfg.now == nil {
		cfg.now = time.Now
	}
	s := &Store{
		cfg: cfg, queue: make(chan writeJob, queueSize(cfg)), sweeps: make(chan chan error),
		opened: make(chan struct{}), closed: make(chan struct{}), ended: make(chan struct{}), live: map[string]*Recording{},
	}
	s.replica.Store(maxReplicas/2 + rand.Int64N(maxReplicas/2)) //nolint:gosec // a number to tell replicas apart
	s.first = s.nextNumber()
	s.feed.beginChange()
	// A store without a place to write is off, so callers need no check.
	if cfg.Mode == Off || cfg.Dir == "" && cfg.Database == nil {
		s.cfg.Mode = Off
		close(s.opened)
		close(s.ended)
		return s
	}
	go s.writeJobs()
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	if cfg.Database != nil {
		s.parts.Go(func() { s.sendHeartbeats(ctx) })
		s.parts.Go(func() { s.followOthers(ctx) })
	}
	return s
}

// Mode returns the mode.
func (s *Store) Mode() string {
	if s == nil {
		return Off
	}
	return s.cfg.Mode
}

// isOff reports whether the store is off. A nil Store is off.
func (s *Store) isOff() bool { return s == nil || s.cfg.Mode == Off }

// Close writes the queued jobs, as long as ctx allows, and closes the file.
func (s *Store) Close(ctx context.Context) {
	if s == nil {
		return
	}
	s.closer.Do(func() {
		// The other goroutines queue jobs, so they end before the writer drains the queue.
		if s.stop != nil {
			s.stop()
			s.parts.Wait()
		}
		close(s.closed)
	})
	// Readers that follow must end with the store.
	s.feed.endChange()
	select {
	case <-s.ended:
	case <-ctx.Done():
	}
}

// nextNumber returns a number greater than all earlier ones. It is a time in microseconds since 1970. Its remainder is
// the replica's number, so that two replicas of Postgres never return the same number. Other processes may: see
// putNumbered.
func (s *Store) nextNumber() int64 {
	// A loop instead of a lock: runs call this and must not wait.
	for {
		last, replica := s.last.Load(), s.replica.Load()
		// Rounded down to a multiple of maxReplicas, so that the remainder is free for the replica.
		next := max(last/maxReplicas+1, time.Now().UnixMicro()/maxReplicas)*maxReplicas + replica
		if s.last.CompareAndSwap(last, next) {
			return next
		}
	}
}

// statusTime bounds how long Status waits for Postgres.
const statusTime = 2 * time.Second

// freshTime bounds how long a reader waits for earlier jobs.
const freshTime = 200 * time.Millisecond

// readConn returns the connection for reading, after the queued jobs are written or freshTime has passed.
func (s *Store) readConn(ctx context.Context) (*database.DB, error) {
	if s.isOff() {
		return nil, ErrOff
	}
	select {
	case <-s.opened:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	// A person who reads right after a run expects to see that run.
	if s.waiting.Load() > 0 {
		short, cancel := context.WithTimeout(ctx, s.cfg.fresh)
		// The writer reports a problem.
		_ = s.writeAndWait(short, func(context.Context, *writeTransaction) error { return nil })
		cancel()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader == nil {
		return nil, fmt.Errorf("the history cannot be read: %s", s.problem)
	}
	return s.reader, nil
}

// reportProblem logs a problem once, and stores it for Status. "" means that the problem is over.
func (s *Store) reportProblem(problem string) {
	s.mu.Lock()
	was := s.problem
	s.problem = problem
	s.mu.Unlock()
	switch {
	case problem == was:
	case problem != "":
		s.cfg.Log.Error("runs are not stored", logline.Tag("history"), slog.String("error", problem))
	default:
		s.cfg.Log.Info("runs are stored again", logline.Tag("history"))
	}
}

// countDropped counts jobs that were not stored.
func (s *Store) countDropped(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped += int64(n)
}

// Status returns the mode and the amount of stored data.
func (s *Store) Status(ctx context.Context) (operatorapi.Status, error) {
	if s.isOff() {
		return operatorapi.Status{Mode: Off}, nil
	}
	out := operatorapi.Status{
		Mode: s.cfg.Mode, Path: filepath.Join(s.cfg.Dir, database.Name),
		ContentDays: contentDays, ContentBytes: contentBytes, ReceiptDays: receiptDays, Cursor: s.CurrentCursor(),
	}
	if s.cfg.Database != nil {
		out.Path, out.Waiting = "Postgres", s.waiting.Load()
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, statusTime)
		defer cancel()
	}
	// Then the lists contain all events before the cursor. A problem is reported below.
	_ = s.writeAndWait(ctx, func(context.Context, *writeTransaction) error { return nil })
	db, err := s.readConn(ctx)
	if err == nil {
		var oldest sql.NullInt64
		err = s.checkReadError(db.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM run), (SELECT count(*) FROM exchange),
			(SELECT coalesce(sum(size), 0) FROM content), (SELECT min(number) FROM run)`).
			Scan(&out.Runs, &out.Exchanges, &out.Content, &oldest))
		if oldest.Valid {
			out.Oldest = time.UnixMicro(oldest.Int64).UTC()
		}
	}
	if err == nil && db.Postgres {
		err = db.QueryRowContext(ctx, `SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class
			WHERE relnamespace = 'codeforge'::regnamespace AND relkind = 'r'`).Scan(&out.Bytes)
	}
	// The write-ahead log counts too: it may be larger than the file for a moment.
	for _, suffix := range []string{"", "-wal"} {
		if info, serr := os.Stat(out.Path + suffix); serr == nil {
			out.Bytes += info.Size()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out.Problem, out.Dropped = s.problem, s.dropped
	if err != nil && out.Problem == "" {
		out.Problem = database.HideAddress(err).Error()
	}
	return out, nil
}

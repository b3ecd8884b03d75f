package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

const (
	// maxQueue bounds the jobs that wait for the writer, and maxQueued the code and output in them, in bytes.
	maxQueue  = 8192
	maxQueued = 32 << 20
	// maxQueueAway bounds the jobs that wait for Postgres: about a minute of 100 runs a second.
	maxQueueAway = 32768
	// maxBatch bounds the jobs of one transaction. batchTime bounds the first job's wait for others, because a transaction
	// costs more than its statements.
	maxBatch  = 512
	batchTime = 50 * time.Millisecond
	// tidyTime is the time between two searches for old data.
	tidyTime = 10 * time.Minute
)

// errClosed is the error of jobs while the file cannot be opened.
var errClosed = errors.New("the history cannot be written")

// writeJob is a write. size counts against maxQueued until the job is written. done, if not nil, receives the error.
// run, if not 0, is the number of the run whose row the job writes. Of several such jobs in one transaction, only the
// last is done.
type writeJob struct {
	do   func(context.Context, *writeTransaction) error
	size int64
	run  int64
	done chan error
}

// queueJob queues a job, or drops it. It never waits.
func (s *Store) queueJob(j writeJob) bool {
	if s.isOff() {
		return false
	}
	// Counted before the send: the writer may take the job and subtract at once.
	s.queued.Add(j.size)
	s.waiting.Add(1)
	select {
	case s.queue <- j:
		return true
	default:
		s.queued.Add(-j.size)
		s.waiting.Add(-1)
		s.countDropped(1)
		return false
	}
}

// isCrowded reports whether the queue has no room for content.
func (s *Store) isCrowded() bool { return s.queued.Load() > maxQueued }

// writeAndWait queues a job and waits until it is written. Only people's requests use it, and never runs.
func (s *Store) writeAndWait(ctx context.Context, do func(context.Context, *writeTransaction) error) error {
	if s.isOff() {
		return ErrOff
	}
	done := make(chan error, 1)
	if !s.queueJob(writeJob{do: do, done: done}) {
		return errors.New("the history is too busy: try again")
	}
	select {
	case err := <-done:
		return err
	case <-s.ended:
		return errors.New("the history is closed")
	case <-ctx.Done():
		return ctx.Err()
	}
}

type writeTarget struct {
	*database.DB
	// conn is the only connection to SQLite's file. statements are prepared on it, by text. Postgres drivers prepare
	// statements themselves.
	conn       *sql.Conn
	statements map[string]*sql.Stmt
	pairs      map[[2]string]bool // pairs of APIs that are known to be in total
	grown      int64              // bytes of exchanges and runs written since tidy
}

func openFile(dir string, list []database.Migration) (*writeTarget, error) {
	db, err := database.OpenFile(dir, list)
	if err != nil {
		return nil, err
	}
	conn, err := db.Conn(context.Background())
	if err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("opening %s: %w", database.Name, err)
	}
	return &writeTarget{DB: db, conn: conn, statements: map[string]*sql.Stmt{}, pairs: map[[2]string]bool{}}, nil
}

// Close closes SQLite's file. Postgres stays open for its other users.
func (t *writeTarget) Close() error {
	if t.Postgres {
		return nil
	}
	for _, st := range t.statements {
		_ = st.Close()
	}
	return errors.Join(t.conn.Close(), t.DB.Close())
}

func (t *writeTarget) beginTransaction(ctx context.Context) (*sql.Tx, error) {
	if t.Postgres {
		return t.BeginTx(ctx, nil)
	}
	return t.conn.BeginTx(ctx, nil)
}

// checkReadError returns a reader's error. If the file is damaged, it notifies the writer.
func (s *Store) checkReadError(err error) error {
	// Only the writer may replace the file.
	if database.IsDamaged(err) {
		s.queueJob(writeJob{do: func(context.Context, *writeTransaction) error { return err }})
	}
	return database.HideAddress(err)
}

// writeJobs is the writer: it opens the database, and writes jobs until Close.
func (s *Store) writeJobs() {
	defer close(s.ended)
	db := s.openTarget(false)
	// Other replicas' runs may still go on in Postgres, so only a file is marked here.
	if s.cfg.Database == nil && db != nil {
		if err := s.doJobs(db, []writeJob{{do: beginFile}}, false); err != nil {
			s.reportProblem(err.Error())
		}
	}
	close(s.opened)
	defer func() { s.closeTarget(db) }()
	tidy := time.NewTicker(tidyTime)
	defer tidy.Stop()
	s.removeOld(db)
	for {
		select {
		case j := <-s.queue:
			if db == nil && s.cfg.Database != nil {
				db = s.awaitPostgres()
			}
			if database.IsDamaged(s.writeBatch(db, j)) {
				s.closeTarget(db)
				db = s.openTarget(true)
			}
			// Code and servers can fill the disk long before the next tick.
			if db != nil && db.grown > max(s.cfg.limits.file/tidyPart, leastGrowth) {
				s.removeOld(db)
			}
		case done := <-s.sweeps:
			done <- overwriteRemoved(db)
		case <-tidy.C:
			if db == nil {
				db = s.openTarget(false)
			}
			s.removeOld(db)
		// Jobs that were queued before Close are still written.
		case <-s.closed:
			for {
				select {
				case j := <-s.queue:
					_ = s.writeBatch(db, j)
				default:
					return
				}
			}
		}
	}
}

// openTarget opens the database for writing and reading. It starts a new file if the file is damaged. If it fails, it
// logs the reason and returns nil.
func (s *Store) openTarget(isDamaged bool) *writeTarget {
	if s.cfg.Database != nil {
		return s.openPostgres()
	}
	var err error
	if isDamaged {
		err = database.SetAside(s.cfg.Dir)
		const text = "it is set aside as " + database.Name + ".damaged, and a new one is created"
		s.cfg.Log.Error("the history was damaged: "+text, logline.Tag("history"))
		s.AddAlert(operatorapi.Alert{Kind: operatorapi.AlertHistory, Title: "The history was damaged", Text: text})
	}
	var db *writeTarget
	var reader *database.DB
	if err == nil {
		db, err = openFile(s.cfg.Dir, s.cfg.migrations)
	}
	if database.IsDamaged(err) && !isDamaged {
		return s.openTarget(true)
	}
	if err == nil {
		reader, err = database.OpenReader(s.cfg.Dir)
	}
	if err != nil {
		s.reportProblem(err.Error())
		return nil
	}
	s.setReader(reader)
	s.reportProblem("")
	return db
}

func (s *Store) setReader(reader *database.DB) (before *database.DB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, s.reader = s.reader, reader
	return before
}

// beginFile marks unfinished runs as lost, because the process that would have stored their ends has ended.
func beginFile(ctx context.Context, tx *writeTransaction) error {
	_, err := markLost(ctx, tx, func(operatorapi.Run) bool { return true })
	return err
}

func (s *Store) closeTarget(db *writeTarget) {
	if reader := s.setReader(nil); reader != nil && !reader.Postgres {
		_ = reader.Close()
	}
	if db != nil {
		_ = db.Close()
	}
}

// writeBatch writes a job, and those that follow within batchTime, in one transaction. It does not wait if a caller
// waits for the job. If one job fails, each is tried alone. The returned error affects all jobs.
func (s *Store) writeBatch(db *writeTarget, first writeJob) error {
	jobs := []writeJob{first}
	timer := time.NewTimer(batchTime)
	defer timer.Stop()
collect:
	for asked := first.done != nil; len(jobs) < maxBatch && !asked; {
		select {
		case j := <-s.queue:
			jobs = append(jobs, j)
			asked = j.done != nil
		case <-timer.C:
			break collect
		case <-s.closed:
			break collect
		}
	}
	for _, j := range jobs {
		// Released before the write: the memory is this function's now.
		s.queued.Add(-j.size)
	}
	if db == nil {
		return s.reportWritten(jobs, errClosed)
	}
	err := s.transactPatiently(db, jobs)
	// One bad job must not lose the others; a full disk would fail each of them.
	if err == nil || len(jobs) == 1 || database.IsGeneral(err) {
		return s.reportWritten(jobs, err)
	}
	for _, j := range jobs {
		_ = s.reportWritten([]writeJob{j}, s.transactPatiently(db, []writeJob{j}))
	}
	return nil
}

// overwriteRemoved overwrites removed data in the file, its full-text index and its write-ahead log, and shrinks the
// file.
func overwriteRemoved(db *writeTarget) error {
	if db == nil {
		return errClosed
	}
	if db.Postgres { // autovacuum frees the space of removed rows
		return nil
	}
	_, err := db.conn.ExecContext(context.Background(), `INSERT INTO words (words) VALUES ('optimize');
		PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE)`)
	return err
}

// reportWritten passes the error to the callers that wait for the jobs, and counts and logs unwritten jobs.
func (s *Store) reportWritten(jobs []writeJob, err error) error {
	s.waiting.Add(-int64(len(jobs)))
	lost := 0
	for _, j := range jobs {
		if j.done != nil {
			j.done <- err
		} else if err != nil {
			lost++
		}
	}
	if err == nil {
		s.reportProblem("")
		return nil
	}
	s.countDropped(lost)
	if lost > 0 && !errors.Is(err, errClosed) { // the reason for errClosed is already logged
		s.reportProblem(database.HideAddress(err).Error())
	}
	return err
}

// doJobs does jobs in one transaction. again is set if an earlier attempt may have succeeded.
func (s *Store) doJobs(db *writeTarget, jobs []writeJob, again bool) (err error) {
	ctx := context.Background()
	defer func() {
		if err != nil {
			s.failed.Add(1)
			// The rolled-back transaction may have inserted pairs that the cache calls known.
			clear(db.pairs)
		}
	}()
	inner, err := db.beginTransaction(ctx)
	if err != nil {
		return fmt.Errorf("writing the history: %w", err)
	}
	tx := &writeTransaction{Tx: inner, target: db, again: again, sums: map[sumKey]*totalRow{}}
	latest := map[int64]int{} // job by run
	for i, j := range jobs {
		// Each run writes its row several times in a moment, and only the last state matters.
		latest[j.run] = i
	}
	for i, j := range jobs {
		if j.run != 0 && latest[j.run] != i {
			continue
		}
		if err := j.do(ctx, tx); err != nil {
			_ = tx.Rollback()
			return err
		}
	}
	if err := tx.finishJobs(ctx, s.feed.era); err != nil {
		_ = tx.Rollback()
		return err
	}
	if err := tx.Commit(); err != nil {
		_ = tx.Rollback()
		return fmt.Errorf("writing the history: %w", err)
	}
	return nil
}

// writeTransaction is a transaction of the writer. Its statements stay prepared while the file is open, because their
// texts are constants.
type writeTransaction struct {
	*sql.Tx
	target *writeTarget
	again  bool // an earlier attempt may have succeeded
	sums   map[sumKey]*totalRow
	// events are for the followers at other replicas.
	events []operatorapi.HistoryEvent
	// last runs after all jobs, because the full-text index is flushed by each statement after the one that changes it.
	last []func() error
}

// finishJobs does the work that jobs left for the end of the transaction.
func (tx *writeTransaction) finishJobs(ctx context.Context, writer string) error {
	if err := tx.putSums(ctx); err != nil {
		return err
	}
	for _, do := range tx.last {
		if err := do(); err != nil {
			return err
		}
	}
	return tx.putEvents(ctx, writer)
}

func (tx *writeTransaction) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if tx.target.Postgres {
		return tx.Tx.ExecContext(ctx, query, storableArgs(args)...)
	}
	st, err := tx.prepareOnce(ctx, query)
	if err != nil {
		return nil, err
	}
	return st.ExecContext(ctx, args...)
}

func (tx *writeTransaction) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if tx.target.Postgres {
		return tx.Tx.QueryContext(ctx, query, args...)
	}
	st, err := tx.prepareOnce(ctx, query)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(ctx, args...)
}

// prepareOnce prepares a statement of SQLite once. The statement runs in the connection's present transaction.
func (tx *writeTransaction) prepareOnce(ctx context.Context, query string) (*sql.Stmt, error) {
	if st := tx.target.statements[query]; st != nil {
		return st, nil
	}
	st, err := tx.target.conn.PrepareContext(ctx, query)
	if err == nil {
		tx.target.statements[query] = st
	}
	return st, err
}

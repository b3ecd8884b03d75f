package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/mcp-server/historyapi"
)

const (
	// maxQueue bounds the jobs that wait for the writer, maxQueued the bytes of code and output in them.
	maxQueue  = 8192
	maxQueued = 32 << 20
	// maxBatch bounds the jobs of one transaction, and batchTime the first job's wait for others: a transaction costs more
	// than the statements in it.
	maxBatch  = 512
	batchTime = 50 * time.Millisecond
	// tidyTime is the time between two searches for what is too old.
	tidyTime = 10 * time.Minute
)

// errClosed is for jobs while the file cannot be opened.
var errClosed = errors.New("the history cannot be written")

// job is something to write. Its size counts against maxQueued until it is written. done, if not nil, receives the
// error. run, if not 0, is the number of the run whose row it writes: of several in one transaction only the last is
// done.
type job struct {
	do   func(context.Context, *transaction) error
	size int64
	run  int64
	done chan error
}

// put queues a job, or drops it. It never waits.
func (s *Store) put(j job) bool {
	if s.off() {
		return false
	}
	s.queued.Add(j.size)
	s.waiting.Add(1)
	select {
	case s.queue <- j:
		return true
	default:
		s.queued.Add(-j.size)
		s.waiting.Add(-1)
		s.drop(1)
		return false
	}
}

// crowded reports whether there is no room for content in the queue.
func (s *Store) crowded() bool { return s.queued.Load() > maxQueued }

// ask queues a job and waits until it is written: for people, not for runs.
func (s *Store) ask(ctx context.Context, do func(context.Context, *transaction) error) error {
	if s.off() {
		return ErrOff
	}
	if s.queue == nil {
		return errors.New("CodeForge is not running: the history can only be read")
	}
	done := make(chan error, 1)
	if !s.put(job{do: do, done: done}) {
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

// write is the writer: it opens the file, and writes jobs until Close.
func (s *Store) write() {
	defer close(s.ended)
	db := s.open(false)
	if db != nil {
		if err := errors.Join(begin(db), s.share.queueAll(db)); err != nil {
			s.report(err.Error())
		}
	}
	close(s.opened)
	defer func() { s.shut(db) }()
	tidy := time.NewTicker(tidyTime)
	defer tidy.Stop()
	s.tidy(db)
	for {
		select {
		case j := <-s.queue:
			if damaged(s.batch(db, j)) {
				s.shut(db)
				db = s.open(true)
				s.share.reload()
			}
			if db != nil && db.grown > max(s.cfg.limits.file/tidyPart, leastGrowth) {
				s.tidy(db)
			}
		case done := <-s.sweeps:
			done <- sweep(db)
		case <-tidy.C:
			if db == nil {
				db = s.open(false)
			}
			s.tidy(db)
		case <-s.closed:
			for {
				select {
				case j := <-s.queue:
					_ = s.batch(db, j)
				default:
					return
				}
			}
		}
	}
}

// open opens the file for writing and for reading, and starts a new one if it is damaged. Nil means that it could not,
// and the reason is logged.
func (s *Store) open(isDamaged bool) *file {
	var err error
	if isDamaged {
		err = setAside(s.cfg.Dir)
		const text = "it is set aside as " + Name + ".damaged, and a new one is created"
		s.cfg.Log.Error("the history was damaged: "+text, logline.Tag("history"))
		s.AddAlert(historyapi.Alert{Kind: historyapi.AlertHistory, Title: "The history was damaged", Text: text})
	}
	var db *file
	var reader *sql.DB
	if err == nil {
		db, err = openFile(s.cfg.Dir, s.cfg.migrations)
	}
	if damaged(err) && !isDamaged {
		return s.open(true)
	}
	if err == nil {
		reader, err = openReader(s.cfg.Dir)
	}
	if err != nil {
		s.report(err.Error())
		return nil
	}
	s.mu.Lock()
	s.reader = reader
	s.mu.Unlock()
	s.report("")
	return db
}

// begin marks the runs that were under way as lost: the process that would have stored their ends is no longer there.
func begin(db *file) error {
	_, err := db.ExecContext(context.Background(),
		`UPDATE run SET state = ?, data = json_set(data, '$.state', ?) WHERE state IN (?, ?)`,
		historyapi.Lost, historyapi.Lost, historyapi.Waiting, historyapi.Running)
	return err
}

// shut closes the file.
func (s *Store) shut(db *file) {
	s.mu.Lock()
	reader := s.reader
	s.reader = nil
	s.mu.Unlock()
	if reader != nil {
		_ = reader.Close()
	}
	if db != nil {
		_ = db.Close()
	}
}

// batch writes a job and those that follow it within batchTime in one transaction, without a wait if somebody waits for
// the job. If one of them is at fault, each is tried on its own. The error is one that affects all of them.
func (s *Store) batch(db *file, first job) error {
	jobs := []job{first}
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
		s.queued.Add(-j.size)
	}
	if db == nil {
		return s.written(jobs, errClosed)
	}
	err := s.transact(db, jobs)
	if err == nil || len(jobs) == 1 || general(err) {
		return s.written(jobs, err)
	}
	for _, j := range jobs {
		_ = s.written([]job{j}, s.transact(db, []job{j}))
	}
	return nil
}

// sweep overwrites what was removed, in the file, its full-text index and its write-ahead log, and shrinks the file.
func sweep(db *file) error {
	if db == nil {
		return errClosed
	}
	_, err := db.ExecContext(context.Background(), `INSERT INTO words (words) VALUES ('optimize');
		PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE)`)
	return err
}

// general reports whether an error would affect other jobs too: a full disk, a damaged or locked file.
func general(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code()&0xff != lib.SQLITE_CONSTRAINT
}

// written passes the error to whoever waits for the jobs, and counts and logs what was not written.
func (s *Store) written(jobs []job, err error) error {
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
		s.report("")
		return nil
	}
	s.drop(lost)
	if lost > 0 && !errors.Is(err, errClosed) { // the reason why it is closed is logged already
		s.report(err.Error())
	}
	return err
}

// transact does jobs in one transaction.
func (s *Store) transact(db *file, jobs []job) (err error) {
	ctx := context.Background()
	defer func() {
		if err != nil {
			s.failed.Add(1)
			clear(db.pairs)
		}
	}()
	inner, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("writing the history: %w", err)
	}
	tx := &transaction{Tx: inner, file: db, sums: map[sumKey]*sum{}}
	latest := map[int64]int{} // job by run
	for i, j := range jobs {
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
	if err := tx.finish(ctx); err != nil {
		_ = tx.Rollback()
		return err
	}
	if err := tx.Commit(); err != nil {
		_ = tx.Rollback()
		return fmt.Errorf("writing the history: %w", err)
	}
	if tx.shares {
		s.share.wake()
	}
	return nil
}

// transaction is a transaction of the writer. Its statements stay prepared as long as the file is open: their texts are
// constants.
type transaction struct {
	*sql.Tx
	file *file
	sums map[sumKey]*sum
	// shares means that a run is to be uploaded to the bucket.
	shares bool
	// room, unless nil, is how many more rows of sums there may be: see roomForSums.
	room *int64
	// last is done after all jobs: the full-text index is flushed by every statement after the one that changes it.
	last []func() error
}

// finish does what jobs left for the end of the transaction.
func (tx *transaction) finish(ctx context.Context) error {
	if err := tx.putSums(ctx); err != nil {
		return err
	}
	for _, do := range tx.last {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

func (tx *transaction) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	st, err := tx.file.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	return st.ExecContext(ctx, args...)
}

func (tx *transaction) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	st, err := tx.file.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(ctx, args...)
}

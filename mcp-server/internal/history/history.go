// Package history is the store of runs: one SQLite file, written by one goroutine from a bounded queue.
// mcp-server/historyapi describes its content. With a bucket, several stores share their runs (share.go).
//
// Contract: no run ever waits for the store. What does not fit in the queue or on the disk is dropped and counted,
// first the code and output, then the rest; a damaged file is set aside, and a new one is created.
//
// Threat: whoever may read the file learns what code did. It has mode 0600 in a folder of 0700, and holds no
// credential: code has names, and if a person put a credential itself into code, the proxy replaces it before the code
// and its output are stored. REDACTING_STRINGS are removed here, as from log lines. What is removed from the file is
// overwritten.
package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/mcp-server/historyapi"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bucket"
)

// Name is the file's name in its folder.
const Name = "runs.db"

// The modes: what is kept.
const (
	Full     = "full"     // code, output and receipts
	Receipts = "receipts" // what was sent where, without code, output and titles
	Off      = "off"
)

// How long things are kept.
const (
	contentDays  = 7
	contentBytes = 256 << 20
	receiptDays  = 90
)

var (
	// ErrOff is the answer to readers when HISTORY is off.
	ErrOff = errors.New("nothing is kept of runs: HISTORY=off")
	// ErrUnknown is the answer for what is not in the store.
	ErrUnknown = errors.New("nothing is recorded of this")
)

// Config configures a Store.
type Config struct {
	// Dir is the folder of the file. It is made if it is not there.
	Dir string
	// Mode is one of the modes above.
	Mode string
	// Clean takes out what must not be stored. Nil takes out nothing.
	Clean func(string) string
	// Scrub replaces the credentials in texts by their token names. A text is stored only if Scrub succeeds. Nil replaces
	// nothing.
	Scrub func(context.Context, []string) ([]string, error)
	// Bucket has the runs of all stores that share it. With nil the store shares nothing.
	Bucket *bucket.Bucket
	Log    *slog.Logger

	// migrations replace the real ones in tests, limits too.
	migrations []string
	limits     limits
	now        func() time.Time // of what is removed by age
}

// limits are how much is kept.
type limits struct {
	contentAge, receiptAge time.Duration
	content, file          int64
}

// Store is a store. It is safe for concurrent use.
type Store struct {
	cfg  Config
	feed feed

	queue  chan job
	sweeps chan chan error
	queued atomic.Int64 // bytes of content in the queue
	// waiting counts jobs that are not written yet, failed counts transactions that were rolled back.
	waiting, failed atomic.Int64
	last            atomic.Int64 // number given last
	opened          chan struct{}
	closed          chan struct{}
	ended           chan struct{}
	closer          sync.Once
	first           int64     // the number that this process began with
	swept           time.Time // by the writer
	ends            int64     // by the writer: dropped, when tidyEnds has looked for runs without an end
	share           *share    // nil without a bucket
	// reached is the time that reckon has believed, in microseconds, and reckoned when it was called last: by the writer.
	// today is the time by which things are too old.
	reached  int64
	reckoned time.Time
	today    atomic.Int64
	// floor is the number of the newest run that was removed because the file was too large.
	floor atomic.Int64

	mu      sync.Mutex
	reader  *sql.DB // nil until it is open, and when it cannot be
	problem string
	dropped int64
	live    map[string]*Recording
}

// Open starts a store. It returns at once: the file is opened by the writer, and readers wait for that.
func Open(cfg Config) *Store {
	if cfg.Clean == nil {
		cfg.Clean = func(s string) string { return s }
	}
	if cfg.migrations == nil {
		cfg.migrations = migrations
	}
	if cfg.limits == (limits{}) {
		cfg.limits = limits{
			contentAge: contentDays * 24 * time.Hour, receiptAge: receiptDays * 24 * time.Hour,
			content: contentBytes, file: maxFile,
		}
	}
	if cfg.now == nil {
		cfg.now = time.Now
	}
	s := &Store{
		cfg: cfg, queue: make(chan job, maxQueue), sweeps: make(chan chan error),
		opened: make(chan struct{}), closed: make(chan struct{}), ended: make(chan struct{}), live: map[string]*Recording{},
	}
	s.first = s.number()
	s.feed.begin()
	if cfg.Mode == Off || cfg.Dir == "" {
		s.cfg.Mode = Off
		close(s.opened)
		close(s.ended)
		return s
	}
	if cfg.Bucket != nil {
		s.share = newShare(s, cfg.Bucket)
	}
	go s.write()
	s.share.start()
	return s
}

// Mode is what is kept: one of the modes.
func (s *Store) Mode() string {
	if s == nil {
		return Off
	}
	return s.cfg.Mode
}

// off reports whether nothing is stored. A nil Store is off.
func (s *Store) off() bool { return s == nil || s.cfg.Mode == Off }

// Close stores what is in the queue, as long as ctx allows, and closes the file.
func (s *Store) Close(ctx context.Context) {
	if s == nil {
		return
	}
	s.share.close(ctx) // while the file is open
	s.closer.Do(func() { close(s.closed) })
	s.feed.end()
	select {
	case <-s.ended:
	case <-ctx.Done():
	}
}

// Read opens the file of a store for reading, while nobody writes it.
func Read(dir string) (*Store, error) {
	reader, err := openReader(dir)
	if err == nil {
		_, err = version(reader, migrations)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", filepath.Join(dir, Name), err)
	}
	s := &Store{
		cfg: Config{Dir: dir, Mode: Full}, reader: reader,
		opened: make(chan struct{}), closed: make(chan struct{}), ended: make(chan struct{}),
	}
	s.feed.begin()
	close(s.opened)
	close(s.ended)
	return s, nil
}

// number returns a number greater than all before it: microseconds since 1970, so that it is also a time. It is even:
// odd numbers are for runs and exchanges of other stores.
func (s *Store) number() int64 {
	for {
		last := s.last.Load()
		next := max(last+2, time.Now().UnixMicro()&^1)
		if s.last.CompareAndSwap(last, next) {
			return next
		}
	}
}

// freshTime bounds how long a reader waits for jobs that were queued before.
const freshTime = 200 * time.Millisecond

// db returns the connection for reading, once the writer has written the queued jobs or freshTime has passed.
func (s *Store) db(ctx context.Context) (*sql.DB, error) {
	if s.off() {
		return nil, ErrOff
	}
	select {
	case <-s.opened:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.waiting.Load() > 0 {
		short, cancel := context.WithTimeout(ctx, freshTime)
		_ = s.ask(short, func(context.Context, *transaction) error { return nil }) // the writer reports a problem
		cancel()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader == nil {
		return nil, fmt.Errorf("the history cannot be read: %s", s.problem)
	}
	return s.reader, nil
}

// report logs a problem once, and keeps it for Status. An empty one means that it is over.
func (s *Store) report(problem string) {
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

// drop counts what was not stored.
func (s *Store) drop(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped += int64(n)
}

// Status is what is kept, and how much.
func (s *Store) Status(ctx context.Context) (historyapi.Status, error) {
	if s.off() {
		return historyapi.Status{Mode: Off}, nil
	}
	out := historyapi.Status{
		Mode: s.cfg.Mode, Path: filepath.Join(s.cfg.Dir, Name),
		ContentDays: contentDays, ContentBytes: contentBytes, ReceiptDays: receiptDays, Cursor: s.Now(),
	}
	if s.queue != nil { // then all events before the cursor are in the lists
		_ = s.ask(ctx, func(context.Context, *transaction) error { return nil }) // a problem is reported below
	}
	db, err := s.db(ctx)
	if err == nil {
		var oldest sql.NullInt64
		err = s.checked(db.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM run), (SELECT count(*) FROM exchange),
			(SELECT coalesce(sum(size), 0) FROM content), (SELECT min(number) FROM run)`).
			Scan(&out.Runs, &out.Exchanges, &out.Content, &oldest))
		if oldest.Valid {
			out.Oldest = time.UnixMicro(oldest.Int64).UTC()
		}
	}
	if err == nil && s.share != nil {
		out.Bucket, err = s.share.status(ctx, db)
	}
	for _, suffix := range []string{"", "-wal"} {
		if info, serr := os.Stat(out.Path + suffix); serr == nil {
			out.Bytes += info.Size()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out.Problem, out.Dropped = s.problem, s.dropped
	if err != nil && out.Problem == "" {
		out.Problem = err.Error()
	}
	return out, nil
}

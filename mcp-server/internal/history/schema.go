package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

// migrations bring an empty file to the current schema: a file of version n needs those from n on. Never change one
// that was released; append.
//
// What is searched for has a column; everything else of a run or an exchange is in data, as JSON of historyapi, so that
// a new field needs no migration. Numbers are microseconds since 1970. A row of hour is a sum over a quarter of an
// hour, of one kind; the names of its columns are in ledger.go. fact says which APIs, hosts and skills a run has.
// shared has the keys of runs in a bucket; gone has the tombstones of runs that a person removed. sent and told say
// whether the bucket has them.
var migrations = []string{`
CREATE TABLE run (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL, denied INTEGER NOT NULL,
	client TEXT NOT NULL, session TEXT NOT NULL, data TEXT NOT NULL, hints TEXT NOT NULL DEFAULT '[]');
CREATE TABLE content (number INTEGER PRIMARY KEY REFERENCES run ON DELETE CASCADE, size INTEGER NOT NULL,
	data BLOB NOT NULL);
CREATE TABLE fact (kind TEXT, value TEXT, number INTEGER REFERENCES run ON DELETE CASCADE,
	PRIMARY KEY (kind, value, number)) WITHOUT ROWID;
CREATE INDEX fact_number ON fact (number);
CREATE TABLE exchange (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, run TEXT NOT NULL, api TEXT NOT NULL,
	host TEXT NOT NULL, outcome TEXT NOT NULL, data TEXT NOT NULL);
CREATE INDEX exchange_run ON exchange (run, number);
CREATE INDEX exchange_api ON exchange (api, number);
CREATE INDEX exchange_host ON exchange (host, number);
CREATE TABLE swap (name TEXT, number INTEGER REFERENCES exchange ON DELETE CASCADE, place TEXT,
	swapped INTEGER NOT NULL, scrubbed INTEGER NOT NULL, PRIMARY KEY (name, number, place)) WITHOUT ROWID;
CREATE INDEX swap_number ON swap (number);
CREATE TABLE hour (at INTEGER, kind TEXT, a TEXT, b TEXT, n INTEGER, denied INTEGER, failed INTEGER, up INTEGER,
	down INTEGER, PRIMARY KEY (kind, at, a, b)) WITHOUT ROWID;
CREATE TABLE skill_version (number INTEGER PRIMARY KEY, skill TEXT NOT NULL, version INTEGER NOT NULL,
	data TEXT NOT NULL, source BLOB, UNIQUE (skill, version));
CREATE TABLE alert (number INTEGER PRIMARY KEY, seen INTEGER NOT NULL DEFAULT 0, data TEXT NOT NULL);
CREATE VIRTUAL TABLE words USING fts5 (text, content = '', contentless_delete = 1);
`, `
CREATE TABLE shared (number INTEGER PRIMARY KEY REFERENCES run ON DELETE CASCADE, key TEXT NOT NULL,
	sent INTEGER NOT NULL);
CREATE INDEX shared_key ON shared (key);
CREATE INDEX shared_unsent ON shared (number) WHERE sent = 0;
CREATE TABLE gone (id TEXT PRIMARY KEY, at INTEGER NOT NULL, key TEXT NOT NULL, told INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX gone_untold ON gone (id) WHERE told = 0;
`}

// errNewer is for a file that a later CodeForge wrote. It is neither read nor changed.
var errNewer = errors.New("a newer CodeForge wrote it")

// dsn is how a connection is opened. first are pragmas that go before the others.
func dsn(path string, write bool, first ...string) string {
	v := url.Values{"_pragma": append(first,
		"busy_timeout(5000)", "foreign_keys(1)", "temp_store(2)", "cache_size(-4096)")}
	if write {
		v["_pragma"] = append(v["_pragma"], "journal_mode(WAL)", "synchronous(1)", "secure_delete(1)",
			"journal_size_limit(4194304)")
		v.Set("_txlock", "immediate")
	} else {
		v.Set("mode", "ro")
		v["_pragma"] = append(v["_pragma"], "query_only(1)")
	}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: v.Encode()}).String()
}

// openFile opens the file of a folder for writing, and brings its schema to the current version.
func openFile(dir string, list []string) (*file, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of the history: %w", err)
	}
	path := filepath.Join(dir, Name)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) // SQLite would make it readable for everybody
	if err != nil {
		return nil, fmt.Errorf("opening the history: %w", err)
	}
	info, err := f.Stat()
	_ = f.Close()
	if err != nil {
		return nil, fmt.Errorf("opening the history: %w", err)
	}
	if info.Size() > 0 { // a newer one is not touched
		if err := readable(dir, list); err != nil {
			return nil, fmt.Errorf("opening %s: %w", Name, err)
		}
	}
	var first []string
	if info.Size() == 0 {
		first = []string{"auto_vacuum(2)"} // it has no effect on a file with tables
	}
	db, err := sql.Open("sqlite", dsn(path, true, first...))
	if err != nil {
		return nil, fmt.Errorf("opening the history: %w", err)
	}
	db.SetMaxOpenConns(1)
	if err := migrate(db, list); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("opening %s: %w", Name, err)
	}
	conn, err := db.Conn(context.Background())
	if err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("opening %s: %w", Name, err)
	}
	return &file{Conn: conn, db: db, statements: map[string]*sql.Stmt{}, pairs: map[[2]string]bool{}}, nil
}

// file is the file, open for writing by one goroutine.
type file struct {
	*sql.Conn
	db         *sql.DB
	statements map[string]*sql.Stmt // by their texts
	pairs      map[[2]string]bool   // of APIs that are known to be in hour
	grown      int64                // bytes of exchanges and runs that were written since tidy
}

// statement prepares a statement, once. It runs in the transaction that the connection is in.
func (f *file) statement(ctx context.Context, query string) (*sql.Stmt, error) {
	if st := f.statements[query]; st != nil {
		return st, nil
	}
	st, err := f.PrepareContext(ctx, query)
	if err == nil {
		f.statements[query] = st
	}
	return st, err
}

// Close closes the file.
func (f *file) Close() error {
	for _, st := range f.statements {
		_ = st.Close()
	}
	return errors.Join(f.Conn.Close(), f.db.Close())
}

// readable checks that a file has a version that is known.
func readable(dir string, list []string) error {
	db, err := openReader(dir)
	if err == nil {
		_, err = version(db, list)
		_ = db.Close()
	}
	return err
}

// openReader opens the file of a folder for reading.
func openReader(dir string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", dsn(filepath.Join(dir, Name), false))
	if err != nil {
		return nil, fmt.Errorf("opening the history: %w", err)
	}
	db.SetMaxOpenConns(maxReaders)
	db.SetMaxIdleConns(1)
	db.SetConnMaxIdleTime(time.Minute)
	return db, nil
}

// maxReaders is how many readers read at once. Each has a cache of its own.
const maxReaders = 4

// row is a database or a transaction.
type row interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// version is that of the schema. It must not be newer than the list of migrations.
func version(db row, list []string) (int, error) {
	var have int
	if err := db.QueryRowContext(context.Background(), "PRAGMA user_version").Scan(&have); err != nil {
		return 0, err
	}
	if have > len(list) {
		return have, fmt.Errorf("%w: its schema is %d, and this one knows %d", errNewer, have, len(list))
	}
	return have, nil
}

// migrate applies the migrations that a file lacks, each atomically.
func migrate(db *sql.DB, list []string) error {
	have, err := version(db, list)
	for err == nil && have < len(list) {
		have, err = step(db, list)
	}
	return err
}

// step applies the next migration that a file lacks, unless another process has done so in the meantime: the
// transaction locks the file from its beginning. It returns the file's new version.
func step(db *sql.DB, list []string) (int, error) {
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // nothing to do after a commit
	have, err := version(tx, list)
	if err != nil || have == len(list) {
		return have, err
	}
	_, err = tx.ExecContext(context.Background(), list[have]+fmt.Sprintf(";PRAGMA user_version = %d", have+1))
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return have, fmt.Errorf("to version %d: %w", have+1, err)
	}
	return have + 1, nil
}

// damaged reports whether an error says that the file is not a sound database.
func damaged(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	code := e.Code() & 0xff
	return code == lib.SQLITE_CORRUPT || code == lib.SQLITE_NOTADB
}

// setAside renames the file, and replaces one that was set aside before.
func setAside(dir string) error {
	path := filepath.Join(dir, Name)
	for _, suffix := range []string{"-wal", "-shm"} { // of no use without it, and a new file must not find them
		_ = os.Remove(path + suffix)
	}
	return os.Rename(path, path+".damaged")
}

// checked returns a reader's error. If the file is damaged, it notifies the writer.
func (s *Store) checked(err error) error {
	if damaged(err) {
		s.put(job{do: func(context.Context, *transaction) error { return err }})
	}
	return err
}

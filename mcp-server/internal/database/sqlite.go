package database

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

// Name is the name of the SQLite file in its folder.
const Name = "runs.db"

// maxReaders bounds the connections that read a file at once. Each has a separate cache.
const maxReaders = 4

// dataSourceName returns the data source name of a file. first are pragmas that go before the others.
func dataSourceName(path string, write bool, first ...string) string {
	v := url.Values{"_pragma": append(first,
		"busy_timeout(5000)", "foreign_keys(1)", "temp_store(2)", "cache_size(-4096)")}
	if write {
		// secure_delete overwrites removed rows: code and output must not stay readable in the file.
		v["_pragma"] = append(v["_pragma"], "journal_mode(WAL)", "synchronous(1)", "secure_delete(1)",
			"journal_size_limit(4194304)")
		v.Set("_txlock", "immediate")
	} else {
		v.Set("mode", "ro")
		v["_pragma"] = append(v["_pragma"], "query_only(1)")
	}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: v.Encode()}).String()
}

// OpenFile opens the file Name of a folder for one writer, and migrates its schema.
func OpenFile(dir string, list []Migration) (*DB, error) { return openFile(dir, Name, list) }

// OpenLogins opens the file LoginName of a folder, and migrates its schema.
func OpenLogins(dir string) (*DB, error) { return openFile(dir, LoginName, LoginMigrations) }

func openFile(dir, name string, list []Migration) (*DB, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of %s: %w", name, err)
	}
	path := filepath.Join(dir, name)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) // SQLite would make it readable for all users
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", name, err)
	}
	info, err := f.Stat()
	_ = f.Close()
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", name, err)
	}
	if info.Size() > 0 { // a newer file stays untouched
		if err := checkFile(path, list); err != nil {
			return nil, fmt.Errorf("opening %s: %w", name, err)
		}
	}
	var first []string
	if info.Size() == 0 {
		first = []string{"auto_vacuum(2)"} // this has no effect on a file with tables
	}
	inner, err := sql.Open("sqlite", dataSourceName(path, true, first...))
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", name, err)
	}
	// SQLite has one writer at a time, so a second connection would only wait for the first.
	inner.SetMaxOpenConns(1)
	db := &DB{DB: inner}
	if err := db.Migrate(context.Background(), list); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("opening %s: %w", name, err)
	}
	return db, nil
}

// checkFile checks that the version of a file is known.
func checkFile(path string, list []Migration) error {
	db, err := openReader(path)
	if err == nil {
		err = db.CheckVersion(context.Background(), list)
		_ = db.Close()
	}
	return err
}

// OpenReader opens the file Name of a folder for reading.
func OpenReader(dir string) (*DB, error) { return openReader(filepath.Join(dir, Name)) }

func openReader(path string) (*DB, error) {
	db, err := sql.Open("sqlite", dataSourceName(path, false))
	if err != nil {
		return nil, fmt.Errorf("opening the history: %w", err)
	}
	db.SetMaxOpenConns(maxReaders)
	db.SetMaxIdleConns(1)
	db.SetConnMaxIdleTime(time.Minute)
	return &DB{DB: db}, nil
}

// IsDamaged reports whether an error means that a file is not a valid database.
func IsDamaged(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	code := e.Code() & 0xff
	return code == lib.SQLITE_CORRUPT || code == lib.SQLITE_NOTADB
}

// IsGeneral reports whether an error would affect other statements, too: a full disk, a damaged or locked file, or a
// Postgres that does not answer.
func IsGeneral(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code()&0xff != lib.SQLITE_CONSTRAINT || IsUnreachable(err)
}

// SetAside renames the file of a folder, and replaces an earlier renamed file.
func SetAside(dir string) error {
	path := filepath.Join(dir, Name)
	for _, suffix := range []string{"-wal", "-shm"} { // useless without the file, and a new file must not find them
		_ = os.Remove(path + suffix)
	}
	return os.Rename(path, path+".damaged")
}

package database

import (
	"context"
	"database/sql"
	"errors"
)

// Versions for Write and Remove besides a Document's version.
const (
	Absent int64 = 0
	Any    int64 = -1
)

var (
	// ErrNotFound means that a document does not exist.
	ErrNotFound = errors.New("no such document")
	// ErrConflict means that a document has another version by now.
	ErrConflict = errors.New("the document was changed in the meantime")
)

// SharedDocument describes a file that replicas share. Each version is used only once.
type SharedDocument struct {
	Name          string
	Version, Size int64
}

// Folders of documents. A TenantSkills folder ends in the tenant's name.
const (
	Skills       = "skills"
	SkillPins    = "pins"
	TenantSkills = "tenants/"
	Alarms       = "alarms"
)

// Documents are the documents of one folder in Postgres.
type Documents struct {
	DB     *DB
	Folder string
}

// maxDocuments bounds the listed documents of a folder, because other programs may write the table.
const maxDocuments = 10_000

// List returns the documents, sorted by name: the first maxDocuments of those whose names can be names of files.
func (d Documents) List(ctx context.Context) (list []SharedDocument, err error) {
	rows, err := d.DB.QueryContext(ctx, `SELECT name, version, octet_length(data) FROM document
		WHERE folder = $1 AND octet_length(name) <= 255 ORDER BY name COLLATE "C" LIMIT $2`, d.Folder, maxDocuments)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var one SharedDocument
		if err := rows.Scan(&one.Name, &one.Version, &one.Size); err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	return list, rows.Err()
}

// Read returns a document and its version.
func (d Documents) Read(ctx context.Context, name string) (data []byte, version int64, err error) {
	err = d.DB.QueryRowContext(ctx, `SELECT data, version FROM document WHERE folder = $1 AND name = $2`, d.Folder, name).
		Scan(&data, &version)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	return data, version, err
}

// Write replaces a version of a document, Absent or Any, and returns the new version.
func (d Documents) Write(ctx context.Context, name string, data []byte, of int64) (version int64, err error) {
	const insert = `INSERT INTO document (folder, name, data) VALUES ($1, $2, $3) ON CONFLICT (folder, name) `
	const set = `version = nextval('document_version'), data = $3, changed = now()`
	// pgx writes a nil slice as NULL, which the column does not allow.
	if data == nil {
		data = []byte{}
	}
	query, args := insert+`DO NOTHING RETURNING version`, []any{d.Folder, name, data}
	switch of {
	case Absent:
	case Any:
		query = insert + `DO UPDATE SET ` + set + ` RETURNING version`
	default:
		query = `UPDATE document SET ` + set + ` WHERE folder = $1 AND name = $2 AND version = $4 RETURNING version`
		args = append(args, of)
	}
	err = d.DB.Transact(ctx, func(tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, query, args...).Scan(&version); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, Notify)
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrConflict
	}
	return version, err
}

// Remove removes a version of a document, or Any. If the document has another version, the error is ErrConflict.
func (d Documents) Remove(ctx context.Context, name string, of int64) error {
	return d.DB.Transact(ctx, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `DELETE FROM document WHERE folder = $1 AND name = $2 AND (version = $3 OR $3 < 0)`,
			d.Folder, name, of)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 && of != Any {
			return errors.Join(err, ErrConflict)
		}
		_, err = tx.ExecContext(ctx, Notify)
		return err
	})
}

// Update replaces a document by the result of change, which gets the old document, empty before the first version. The
// row stays locked meanwhile, so that other replicas cannot change it.
func (d Documents) Update(ctx context.Context, name string, change func(old []byte) ([]byte, error)) error {
	return d.DB.Transact(ctx, func(tx *sql.Tx) error {
		// The row must exist before FOR UPDATE can lock it.
		if _, err := tx.ExecContext(ctx, `INSERT INTO document (folder, name, data) VALUES ($1, $2, '')
			ON CONFLICT (folder, name) DO NOTHING`, d.Folder, name); err != nil {
			return err
		}
		var old []byte
		if err := tx.QueryRowContext(ctx, `SELECT data FROM document WHERE folder = $1 AND name = $2 FOR UPDATE`,
			d.Folder, name).Scan(&old); err != nil {
			return err
		}
		data, err := change(old)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE document SET version = nextval('document_version'), data = $3, changed = now()
			WHERE folder = $1 AND name = $2`, d.Folder, name, data)
		if err == nil {
			_, err = tx.ExecContext(ctx, Notify)
		}
		return err
	})
}

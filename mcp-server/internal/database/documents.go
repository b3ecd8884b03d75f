package database

import (
	"context"
	"database/sql"
	"errors"
)

// The versions that Write and Remove take besides one of Document.
const (
	Absent int64 = 0
	Any    int64 = -1
)

var (
	// ErrNotFound is for a document that does not exist.
	ErrNotFound = errors.New("no such document")
	// ErrConflict is for a document whose version is another one by now.
	ErrConflict = errors.New("the document was changed in the meantime")
)

// Document describes a file that replicas share. A version is never used twice.
type Document struct {
	Name          string
	Version, Size int64
}

// The folders of documents. A folder of TenantSkills ends in the name of the tenant.
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

// List lists the documents, sorted by name.
func (d Documents) List(ctx context.Context) (list []Document, err error) {
	rows, err := d.DB.QueryContext(ctx, `SELECT name, version, octet_length(data) FROM document WHERE folder = $1
		ORDER BY name COLLATE "C"`, d.Folder)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var one Document
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

// Write writes a document in place of a version, Absent or Any, and returns the new version.
func (d Documents) Write(ctx context.Context, name string, data []byte, of int64) (version int64, err error) {
	const insert = `INSERT INTO document (folder, name, data) VALUES ($1, $2, $3) ON CONFLICT (folder, name) `
	const set = `version = nextval('document_version'), data = $3, changed = now()`
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

// Remove removes a version of a document, or Any. If the document does not have that version, the error is ErrConflict.
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

// Update replaces a document by what change returns for it: nil before the first version. The row stays locked
// meanwhile, so no other replica changes it.
func (d Documents) Update(ctx context.Context, name string, change func(old []byte) ([]byte, error)) error {
	return d.DB.Transact(ctx, func(tx *sql.Tx) error {
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

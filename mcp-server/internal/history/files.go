package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// File is a stored file of a run.
type File struct {
	operatorapi.RunFile
	Data []byte
	// Tenant is the run's tenant.
	Tenant string
}

// maxTextFile bounds a file that is sent as text, in bytes. JSON makes some text six times as long, and base64 makes a
// file a third longer.
const maxTextFile = 1 << 20

// IsText reports whether the file is UTF-8, and short enough to be sent as text.
func (f File) IsText() bool { return len(f.Data) <= maxTextFile && utf8.Valid(f.Data) }

// CheckFile returns the data of a run's file in a form that may be stored and shown. In text it replaces credentials,
// and strings that must not be stored. Other data with one of them cause an error, because a replacement would break
// the file. The error's text is for a model.
func (s *Store) CheckFile(ctx context.Context, data []byte) ([]byte, error) {
	if s == nil {
		return data, nil
	}
	clean := data
	if s.cfg.ScrubFile != nil {
		ctx, cancel := context.WithTimeout(ctx, scrubTime)
		defer cancel()
		var err error
		if clean, err = s.cfg.ScrubFile(ctx, data); err != nil {
			return nil, errors.New("the proxy could not check it for credentials")
		}
	}
	if !utf8.Valid(data) {
		//defence:scrub-files
		if text := string(clean); text != string(data) || s.cfg.Clean(text) != text {
			return nil, errors.New("it contains a credential, or a string that the user hides")
		}
		return data, nil
	}
	return []byte(s.cfg.Clean(string(clean))), nil
}

// AddFile stores a file of the run. CheckFile must have returned data. ok is false if the store keeps no files, or is
// too busy.
func (r *Recording) AddFile(name string, data []byte) (f operatorapi.RunFile, ok bool) {
	if r == nil || r.store.cfg.Mode != Full || r.store.isCrowded() {
		return f, false
	}
	f = operatorapi.RunFile{Name: name, Type: fileType(name, data), Size: int64(len(data))}
	return f, r.store.queueJob(writeJob{size: f.Size, do: func(ctx context.Context, tx *writeTransaction) error {
		tx.target.grown += f.Size
		_, err := tx.ExecContext(ctx, `INSERT INTO run_file VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`,
			r.number, f.Name, f.Type, f.Size, data)
		return err
	}})
}

// textTypes are the types of text files that their first bytes do not show.
var textTypes = map[string]string{
	".csv": "text/csv", ".json": "application/json", ".md": "text/markdown", ".svg": "image/svg+xml",
}

// fileType returns the MIME type of a file by its first bytes, and for text by the end of its name.
func fileType(name string, data []byte) string {
	of, _, _ := strings.Cut(http.DetectContentType(data), ";")
	if known := textTypes[strings.ToLower(path.Ext(name))]; known != "" && strings.HasPrefix(of, "text/") {
		return known
	}
	return of
}

func listRunFiles(ctx context.Context, q rowSource, number int64) (out []operatorapi.RunFile, err error) {
	return out, eachRow(ctx, q, func(row *sql.Rows) error {
		var f operatorapi.RunFile
		err := row.Scan(&f.Name, &f.Type, &f.Size)
		out = append(out, f)
		return err
	}, `SELECT name, type, size FROM run_file WHERE number = $1 ORDER BY name`, number)
}

// ReadRunFile returns a file of a run. The error is ErrUnknown if there is no such file. If admit is not nil, it gets
// the file without its data, and its error prevents the reading of the data.
func (s *Store) ReadRunFile(ctx context.Context, run, name string, admit func(File) error) (f File, err error) {
	db, err := s.readConn(ctx)
	if err != nil {
		return f, err
	}
	var number int64
	err = db.QueryRowContext(ctx, `SELECT name, type, run_file.size, run.tenant, run.number
		FROM run_file JOIN run ON run.number = run_file.number WHERE run.id = $1 AND name = $2`, run, name).
		Scan(&f.Name, &f.Type, &f.Size, &f.Tenant, &number)
	if err == nil && admit != nil {
		if err := admit(f); err != nil {
			return f, err
		}
	}
	if err == nil {
		err = db.QueryRowContext(ctx, `SELECT data FROM run_file WHERE number = $1 AND name = $2`, number, name).
			Scan(&f.Data)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return f, ErrUnknown
	}
	if err != nil {
		return f, fmt.Errorf("reading a file of run %s: %w", run, s.checkReadError(err))
	}
	return f, nil
}

// ServeHTTP answers with the file. A browser saves it and never shows it as a page: code chose its name and content.
func (f File) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	//defence:file-page
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": f.Name}))
	_, _ = w.Write(f.Data) // the reader may have gone
}

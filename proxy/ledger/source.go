package ledger

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The files of a ledger: see the package comment.
const (
	pubName     = "key.pub"
	dayLayout   = time.DateOnly
	recordsName = ".ndjson"
	hashesName  = ".hashes"
	rootsName   = ".roots"
	// maxKeyFile bounds the files of keys, in bytes.
	maxKeyFile = 4 << 10
)

// Source is a place from which a ledger is read.
type Source interface {
	// ListDays lists the files of days, the oldest first.
	ListDays() ([]string, error)
	// Open opens a file that Days lists, or key.pub.
	Open(name string) (io.ReadCloser, error)
}

// Dir is a ledger's folder.
type Dir string

// ListDays implements Source.
func (d Dir) ListDays() ([]string, error) { return listDays(string(d)) }

// Open implements Source.
func (d Dir) Open(name string) (io.ReadCloser, error) {
	// Handler passes names from requests: only the ledger's files may be opened, and never the private key.
	if !isDay(name) && name != pubName {
		return nil, os.ErrNotExist
	}
	return os.Open(filepath.Join(string(d), name)) //nolint:gosec // the name is one of a ledger's files
}

// Prefix begins the paths of Handler.
const Prefix = "/audit/v1"

// NewHandler serves a ledger to a Remote:
//
//	GET /audit/v1         -> the names of its days, a line each
//	GET /audit/v1/{name}  -> a file
func NewHandler(d Dir) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Prefix, func(w http.ResponseWriter, _ *http.Request) {
		names, err := d.ListDays()
		if err != nil {
			http.Error(w, "the ledger cannot be read", http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, strings.Join(names, "\n")) // an error means that the reader disconnected
	})
	mux.HandleFunc("GET "+Prefix+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		f, err := d.Open(r.PathValue("name"))
		if err != nil {
			http.Error(w, "no such file", http.StatusNotFound)
			return
		}
		defer f.Close()
		_, _ = io.Copy(w, f)
	})
	return mux
}

// Remote is a ledger that a Handler serves.
type Remote struct{ HTTP *http.Client }

// ListDays implements Source.
func (r Remote) ListDays() ([]string, error) {
	body, err := r.getFile(Prefix)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, 1<<20))
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(text)), nil
}

// Open implements Source.
func (r Remote) Open(name string) (io.ReadCloser, error) { return r.getFile(Prefix + "/" + name) }

func (r Remote) getFile(path string) (io.ReadCloser, error) {
	resp, err := r.HTTP.Get("http://proxy" + path) //nolint:noctx // the command ends with its process
	if err != nil {
		return nil, err
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return resp.Body, nil
	case http.StatusNotFound:
		err = os.ErrNotExist
	default:
		err = errors.New("the proxy answered " + resp.Status)
	}
	_ = resp.Body.Close()
	return nil, err
}

// maxLine is the longest line, in bytes. Records are far shorter.
const maxLine = 4 << 20

type lineReader struct {
	r    *bufio.Reader
	buf  []byte
	read int64 // bytes of all lines so far, with their ends
}

func newLineReader(r io.Reader) *lineReader { return &lineReader{r: bufio.NewReaderSize(r, 64<<10)} }

// nextLine returns the next line without its end, or nil if there is no whole line. The line is valid until the next
// call. next cuts a line that is much longer than maxLine.
func (l *lineReader) nextLine() ([]byte, error) {
	l.buf = l.buf[:0]
	n := int64(0)
	for {
		part, err := l.r.ReadSlice('\n')
		n += int64(len(part))
		switch {
		case err == nil && len(l.buf) == 0:
			l.read += n
			return part[:len(part)-1], nil
		case errors.Is(err, io.EOF):
			return nil, nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
		// Keep counting, but not storing: a line without an end must not fill the memory.
		if len(l.buf) < maxLine {
			l.buf = append(l.buf, part...)
		}
		if err == nil {
			l.read += n
			return bytes.TrimSuffix(l.buf, []byte("\n")), nil
		}
	}
}

// listDays lists the files of the ledger, the oldest first. A day with both hashes and records counts with its records.
func listDays(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if isDay(e.Name()) && e.Type().IsRegular() {
			out = append(out, e.Name())
		}
	}
	return dropDuplicateDays(out), nil
}

// dropDuplicateDays sorts the files of days, and keeps the most complete file of each day.
func dropDuplicateDays(names []string) []string {
	slices.Sort(names)
	all := slices.Clone(names)
	return slices.DeleteFunc(names, func(name string) bool {
		day := dayOf(name)
		return name != day+recordsName && slices.Contains(all, day+recordsName) ||
			name == day+rootsName && slices.Contains(all, day+hashesName)
	})
}

func dayOf(name string) string { return strings.TrimSuffix(name, filepath.Ext(name)) }

// isDay reports whether a file is the file of a day.
func isDay(name string) bool {
	_, err := time.Parse(dayLayout, dayOf(name))
	return err == nil && slices.Contains([]string{recordsName, hashesName, rootsName}, filepath.Ext(name))
}

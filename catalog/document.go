package catalog

import (
	"bufio"
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/text/encoding"
	"golang.org/x/text/transform"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
)

const (
	// maxDocument is the largest types.d.ts or operations.jsonl in bytes. maxDocuments bounds the files of all APIs
	// together.
	maxDocument  = operation.MaxFile
	maxDocuments = 256 << 20
	// soonDocuments is the number of bytes that a Load with Options.Soon reads.
	soonDocuments = 64 << 10
	// racy is the minimum age of a file at its reading. Only then does the file's time show a later change.
	racy = 2 * time.Second
)

// errDocuments is the error for a file that would exceed maxDocuments.
var errDocuments = fmt.Errorf("a file in apis/, whose types.d.ts and operations.jsonl together exceed %d MiB",
	maxDocuments>>20)

// Document is a file of an API that a model may read: types.d.ts or operations.jsonl. It may be large. Document keeps
// the checked text, compressed, so later changes on disk are never served unchecked. A nil *Document is empty.
type Document struct {
	size   int64
	sum    [sha256.Size]byte
	packed []byte
	// info is the file's metadata at the time of reading. settled means that a later change would show in the metadata.
	info    fs.FileInfo
	settled bool
	unread  bool // see Options.Soon
}

// IsUnread reports whether only the size and the expected digest of the document are known.
func (d *Document) IsUnread() bool { return d != nil && d.unread }

// Size returns the length of the text in bytes.
func (d *Document) Size() int64 {
	if d == nil {
		return 0
	}
	return d.size
}

// Digest returns the SHA-256 of the text in hexadecimal, or "" without a document.
func (d *Document) Digest() string {
	if d == nil {
		return ""
	}
	return hex.EncodeToString(d.sum[:])
}

// Open returns a reader of the text. A nil *Document is empty.
func (d *Document) Open() io.ReadCloser {
	if d == nil {
		return io.NopCloser(strings.NewReader(""))
	}
	return flate.NewReader(bytes.NewReader(d.packed))
}

// isUnchanged reports whether a file still has the document's text, judging by its metadata.
func (d *Document) isUnchanged(now fs.FileInfo) bool {
	return d != nil && d.settled && os.SameFile(d.info, now) &&
		d.info.Size() == now.Size() && d.info.ModTime().Equal(now.ModTime())
}

// deferReading returns a Document for an operations.jsonl whose reading can wait, or nil.
func (v *configValidator) deferReading(o *Operations) *Document {
	d := &Document{unread: true}
	n, err := hex.Decode(d.sum[:], []byte(o.SHA256))
	info, err2 := v.root.Stat(v.API + "/" + operation.FileName)
	switch {
	case !v.soon || o.Only || err != nil || n != len(d.sum) || err2 != nil:
		return nil
	case !info.Mode().IsRegular() || info.Size() == 0 || info.Size() > maxDocument || info.Size() > v.budget.documents:
		return nil
	// The first small files are read at once.
	case info.Size() <= v.budget.documents-(maxDocuments-soonDocuments):
		return nil
	}
	// The size counts now, although the file is read by a later Load.
	v.budget.documents -= info.Size()
	d.size = info.Size()
	return d
}

// readOptional reads an optional file of the API's folder. read checks the content and must read all of it. A file that
// has not changed since old is not read again.
func (v *configValidator) readOptional(name, want string, old *Document, read func(io.Reader) error) *Document {
	d, err := v.readDocument(v.API+"/"+name, old, read)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return d
	}
	v.AddProblem(Problem{API: v.API, File: "apis/" + v.API + "/" + name, Found: describeReadError(err), Want: want})
	return nil
}

func (v *configValidator) readDocument(path string, old *Document, read func(io.Reader) error) (*Document, error) {
	info, err := v.root.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errNotRegular
	case info.Size() > maxDocument:
		return nil, fmt.Errorf("%w: more than %d bytes", errTooLarge, maxDocument)
	case info.Size() > v.budget.documents:
		return nil, errDocuments
	}
	v.budget.documents -= info.Size()
	if old.isUnchanged(info) {
		return old, nil
	}
	f, err := v.root.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return newDocument(io.LimitReader(f, maxDocument+1), info, read)
}

// newDocument reads a text, checks that it is UTF-8 without NUL, and passes it to check.
func newDocument(r io.Reader, info fs.FileInfo, check func(io.Reader) error) (*Document, error) {
	// A write within the resolution of the file system's clock would keep the same time.
	d := &Document{info: info, settled: time.Since(info.ModTime()) > racy}
	var packed bytes.Buffer
	pack, err := flate.NewWriter(&packed, flate.BestSpeed)
	if err != nil {
		return nil, err
	}
	sum, count := sha256.New(), &byteCounter{}
	valid := textReader{transform.NewReader(r, encoding.UTF8Validator)}
	text := io.TeeReader(valid, io.MultiWriter(sum, pack, count))
	if err := check(text); err != nil {
		return nil, err
	}
	// check may not read to the end, but the digest needs every byte.
	if _, err := io.Copy(io.Discard, text); err != nil {
		return nil, err
	}
	// The file may have grown since the Stat.
	if count.n > maxDocument {
		return nil, fmt.Errorf("%w: more than %d bytes", errTooLarge, maxDocument)
	}
	if err := pack.Close(); err != nil {
		return nil, err
	}
	if count.n == 0 {
		return nil, nil //nolint:nilnil // an empty file is not a document
	}
	d.size, d.packed = count.n, bytes.Clone(packed.Bytes())
	sum.Sum(d.sum[:0])
	return d, nil
}

type byteCounter struct{ n int64 }

func (c *byteCounter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

// errNotText is the error for bytes that are not UTF-8, and for NUL.
var errNotText = errors.New("bytes that are not text")

// textReader passes a text on, and fails at the first byte that is not text.
type textReader struct{ valid io.Reader }

func (t textReader) Read(p []byte) (int, error) {
	n, err := t.valid.Read(p)
	if errors.Is(err, encoding.ErrInvalidUTF8) || bytes.IndexByte(p[:n], 0) >= 0 {
		return 0, errNotText
	}
	return n, err
}

// acceptAny is a check that accepts every text.
func acceptAny(io.Reader) error { return nil }

// readDocuments reads types.d.ts and operations.jsonl. old is the current version of the API, or nil.
func (v *configValidator) readDocuments(a, old *API) {
	if old == nil {
		old = &API{}
	}
	a.Types = v.readOptional("types.d.ts", fmt.Sprintf("UTF-8 text of at most %d bytes", maxDocument), old.Types,
		acceptAny)
	const want = "the file that codeforge api add --openapi writes; codeforge api update writes it again"
	o := a.Operations
	if o == nil {
		o = &Operations{}
	}
	if a.OperationsFile = v.deferReading(o); a.OperationsFile != nil {
		return
	}
	before := old.OperationsFile
	if o.Only {
		a.Only = operation.NewRoutes()
		if old.Only == nil {
			before = nil // the file must be read for its routes
		}
	}
	check := func(r io.Reader) error { return checkOperations(r, a.Only) }
	a.OperationsFile = v.readOptional(operation.FileName, want, before, check)
	bad := func(found string) {
		v.AddProblem(Problem{API: v.API, File: "apis/" + v.API + "/" + operation.FileName, Found: found, Want: want})
	}
	switch {
	case a.OperationsFile != nil && o.SHA256 != "" && o.SHA256 != a.OperationsFile.Digest():
		bad("another digest than operations.sha256")
	case a.OperationsFile == nil && o.Only && !v.Failed:
		bad("no file, though operations.only is set")
	// The unchanged file was not read again, so its routes come from the old version.
	case a.OperationsFile != nil && o.Only && a.OperationsFile == before:
		a.Only = old.Only
	}
	if a.Queries = old.Queries; a.OperationsFile != old.OperationsFile {
		a.Queries = readQueries(a.OperationsFile)
	}
}

// readQueries returns API.Queries for a checked operations.jsonl.
func readQueries(d *Document) []Rule {
	if d.Size() == 0 {
		return nil
	}
	text := d.Open()
	defer text.Close()
	lines, err := operation.NewReader(text)
	if err != nil || !lines.Head().GraphQL {
		return nil
	}
	first, err := lines.Next() // all operations of a schema have the same path
	if err != nil || pathProblem(first.Path) != "" || strings.Contains(first.Path, "*") {
		return nil
	}
	r := Rule{Path: first.Path, GraphQL: "query", Then: ActionAllow}
	r.compilePath()
	return []Rule{r}
}

// checkOperations reads operations.jsonl to its end. If only is not nil, checkOperations adds the operations to only.
func checkOperations(r io.Reader, only *operation.Routes) error {
	lines, err := operation.NewReader(r)
	if err != nil {
		return err
	}
	for {
		l, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if only == nil || l.Method == "" {
			continue
		}
		if err := only.AddOperation(lines.Head(), l); err != nil {
			return err
		}
	}
}

// searchDocuments notes the credentials in the API's documents. It searches the bytes on disk, and strings with JSON
// escapes also decoded.
func (x *credentialIndex) searchDocuments(a *API, note func(i int, file, field, found, want string)) {
	for i, d := range []*Document{a.Types, a.OperationsFile} {
		if d.Size() == 0 || d.IsUnread() || len(x.all) == 0 {
			continue
		}
		name := []string{"types.d.ts", operation.FileName}[i]
		raw, read := x.values.newSearch(), x.values.newSearch()
		found := func(word int) {
			for _, i := range x.byValue[x.all[word].Value.Reveal()] {
				note(i, name, "", "", "")
			}
		}
		text := d.Open()
		lines, at := bufio.NewReaderSize(text, operation.MaxLine+1), int32(0)
		for {
			line, err := lines.ReadSlice('\n')
			at = scanPiece(raw, at, line, found)
			// Only lines with escapes differ from their decoded form.
			if d == a.OperationsFile && bytes.IndexByte(line, '\\') >= 0 {
				var v any
				if json.Unmarshal(line, &v) == nil {
					scanStrings(v, func(s string) { read.scanText(s, found) })
				}
			}
			// types.d.ts may have longer lines. They are searched in pieces.
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
				break
			}
		}
		_ = text.Close() // reading from memory
	}
}

// scanStrings calls scan for each string in a JSON value.
func scanStrings(v any, scan func(string)) {
	switch v := v.(type) {
	case string:
		scan(v)
	case []any:
		for _, e := range v {
			scanStrings(e, scan)
		}
	case map[string]any:
		for k, e := range v {
			scan(k)
			scanStrings(e, scan)
		}
	}
}

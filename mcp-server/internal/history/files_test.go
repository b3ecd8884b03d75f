package history

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// TestFiles: the history stores and removes files with their run. Files have separate limits, and a missing file does
// not affect the rest.
func TestFiles(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	s := open(t, dir, func(c *Config) {
		c.limits = storeLimits{contentAge: 7 * 24 * time.Hour, receiptAge: 90 * 24 * time.Hour, content: 3000, file: 1 << 30}
		c.now = func() time.Time { return now }
	})
	for n := range 4 {
		id := fmt.Sprint("r", n)
		r := s.BeginRecording(operatorapi.Run{ID: id, Tenant: "one"}, "code")
		for _, name := range []string{"b.csv", "a.bin"} {
			if f, ok := r.AddFile(name, bytes.Repeat([]byte{'x'}, 500)); !ok || f.Size != 500 {
				t.Fatal(f, ok)
			}
		}
		r.RecordEnd(RunEnd{Answer: "done"})
	}
	settle(t, s)
	d, err := s.FindRun(t.Context(), "r1")
	if err != nil || fmt.Sprint(d.Files) != "[{a.bin text/plain 500} {b.csv text/csv 500}]" {
		t.Errorf("%v %v", d.Files, err)
	}
	f, err := s.ReadRunFile(t.Context(), "r1", "b.csv", nil)
	if err != nil || len(f.Data) != 500 || f.Tenant != "one" || f.Type != "text/csv" {
		t.Errorf("%+v %v", f.RunFile, err)
	}
	for _, wrong := range [][2]string{{"r1", "c"}, {"r9", "a.bin"}, {"r", "a.bin"}, {"", "a.bin"}, {"r1", "A.BIN"}, {"r1", "%"}} {
		if _, err := s.ReadRunFile(t.Context(), wrong[0], wrong[1], nil); !errors.Is(err, ErrUnknown) {
			t.Errorf("%v: %v", wrong, err)
		}
	}
	n := 0
	testkit.Must(t, s.writeAndWait(t.Context(), func(ctx context.Context, tx *writeTransaction) (err error) {
		s.today.Store(now.UnixMicro())
		n, err = s.tidyFiles(ctx, tx)
		return err
	}))
	if _, err := s.ReadRunFile(t.Context(), "r0", "a.bin", nil); n != 1 || !errors.Is(err, ErrUnknown) {
		t.Errorf("over the limit: removed %d, %v", n, err)
	}
	if d, err := s.FindRun(t.Context(), "r0"); err != nil || !d.Kept || d.Files != nil {
		t.Errorf("the run without its files: %v %v", d.Files, err)
	}
	if _, err := s.RemoveRuns(t.Context(), operatorapi.RunFilter{Run: "r1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ReadRunFile(t.Context(), "r1", "a.bin", nil); !errors.Is(err, ErrUnknown) {
		t.Errorf("of a removed run: %v", err)
	}
}

// TestOthersStay: a tenant that fills the space for files and for output loses its oldest files and output. The files
// and output of another tenant and of the operator stay.
// Promise: tenant-shares
func TestOthersStay(t *testing.T) {
	checkOthersStay(t, "[r0 r1 r5]")
}

// checkOthersStay lets bob fill the space, and checks the files and the output of all runs.
func checkOthersStay(t *testing.T, want string) {
	t.Helper()
	s := open(t, t.TempDir(), func(c *Config) {
		c.limits = storeLimits{contentAge: 7 * 24 * time.Hour, receiptAge: 90 * 24 * time.Hour, content: 3500, file: 1 << 30}
	})
	tenants := []string{"", "alice", "bob", "bob", "bob", "alice", "bob"}
	for n, tenant := range tenants {
		r := s.BeginRecording(operatorapi.Run{ID: fmt.Sprint("r", n), Tenant: tenant}, noise(t, 1600))
		r.AddFile("a", bytes.Repeat([]byte{'x'}, 1100))
		r.RecordEnd(RunEnd{Answer: "done"})
	}
	settle(t, s)
	for _, tidy := range []func(context.Context, *writeTransaction) (int, error){s.tidyFiles, s.tidyContent} {
		testkit.Must(t, s.writeAndWait(t.Context(), func(ctx context.Context, tx *writeTransaction) error {
			s.today.Store(time.Now().UnixMicro())
			for {
				if n, err := tidy(ctx, tx); n == 0 || err != nil {
					return err
				}
			}
		}))
	}
	var files, outputs []string
	for n := range tenants {
		d, err := s.FindRun(t.Context(), fmt.Sprint("r", n))
		testkit.Must(t, err)
		if len(d.Files) > 0 {
			files = append(files, d.ID)
		}
		if d.Kept {
			outputs = append(outputs, d.ID)
		}
	}
	if fmt.Sprint(files) != want || fmt.Sprint(outputs) != want {
		t.Errorf("files of %s and output of %s remain, want %s", files, outputs, want)
	}
}

// noise is text that does not get shorter by compression.
func noise(t *testing.T, n int) string {
	t.Helper()
	b := make([]byte, n/2)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// TestCheckFile: text has no credential and no hidden string. CheckFile refuses other data with one of them, and data
// that the proxy does not check.
// Promise: never-printed
func TestCheckFile(t *testing.T) {
	s := &Store{cfg: Config{
		Clean: func(s string) string { return strings.ReplaceAll(s, "ACME", "REDACTED") },
		ScrubFile: func(_ context.Context, data []byte) ([]byte, error) {
			if bytes.Contains(data, []byte("down")) {
				return nil, errors.New("the proxy has gone")
			}
			return bytes.ReplaceAll(data, []byte(literal), []byte("STRIPE_TOKEN")), nil
		},
	}}
	for name, row := range map[string]struct{ data, want string }{
		"text":               {"a " + literal + " of ACME", "a STRIPE_TOKEN of REDACTED"},
		"harmless":           {"a\x00b\xff", "a\x00b\xff"},
		"empty":              {"", ""},
		"a key in a binary":  {"\xff" + literal, ""},
		"a name in a binary": {"\xff ACME", ""},
		"not checked":        {"down", ""},
	} {
		got, err := s.CheckFile(t.Context(), []byte(row.data))
		if string(got) != row.want || (err == nil) != (row.want != "" || row.data == "") {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
}

// TestFilesNotStored: without a full history, no file is stored.
func TestFilesNotStored(t *testing.T) {
	if _, ok := (*Recording)(nil).AddFile("a", nil); ok {
		t.Error("stored without a recording")
	}
	s := open(t, t.TempDir(), func(c *Config) { c.Mode = Receipts })
	if _, ok := s.BeginRecording(operatorapi.Run{ID: "r"}, "code").AddFile("a", []byte("x")); ok {
		t.Error("stored with receipts only")
	}
}

// TestServedFile: a browser saves a file with any content.
// Promise: files-are-data
func TestServedFile(t *testing.T) {
	for name, want := range map[string]string{
		"a.html": "attachment; filename=a.html", "ü (1).svg": "attachment; filename*=utf-8''%C3%BC%20%281%29.svg", "a b.png": `attachment; filename="a b.png"`,
	} {
		w := httptest.NewRecorder()
		File{RunFile: operatorapi.RunFile{Name: name, Type: "text/html"}, Data: []byte("<script>")}.ServeHTTP(w, nil)
		h := w.Header()
		if h.Get("Content-Disposition") != want || h.Get("Content-Type") != "application/octet-stream" ||
			h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Content-Security-Policy") != "sandbox; default-src 'none'" {
			t.Errorf("%s: %v", name, h)
		}
	}
}

// TestFileTypes: the first bytes decide the type. The name counts only for text.
func TestFileTypes(t *testing.T) {
	for _, row := range [][3]string{
		{"a.csv", "x,y", "text/csv"}, {"a.csv", "\x89PNG\r\n\x1a\n", "image/png"}, {"a.png", "hello", "text/plain"},
		{"a.png", "<html>", "text/html"}, {"a.JSON", "{}", "application/json"}, {"a", "\x00\x01", "application/octet-stream"},
		{"a.svg", "<svg/>", "image/svg+xml"}, {"a.md", "# x", "text/markdown"}, {"a.pdf", "%PDF-1.7", "application/pdf"},
	} {
		if got := fileType(row[0], []byte(row[1])); got != row[2] {
			t.Errorf("%v: %s", row, got)
		}
	}
}

// TestFilesAreGone: a removed file is not in the database's files.
// Promise: nothing-stays
func TestFilesAreGone(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	r := s.BeginRecording(operatorapi.Run{ID: "r"}, "code")
	r.AddFile("secret.txt", []byte("a-word-that-must-go"))
	r.RecordEnd(RunEnd{Answer: "done"})
	settle(t, s)
	if _, err := s.RemoveRuns(t.Context(), operatorapi.RunFilter{}); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal"} {
		if data, _ := os.ReadFile(filepath.Join(dir, database.Name+suffix)); bytes.Contains(data, []byte("a-word-that-must-go")) {
			t.Errorf("%s has it", database.Name+suffix)
		}
	}
}

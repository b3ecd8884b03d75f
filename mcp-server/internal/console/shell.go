package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/consolestyle"
)

// files are the files of the shell.
//
//go:embed web
var files embed.FS

// types are the content types of the shell's files. Other files are not served.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".woff2": "font/woff2", ".txt": "text/plain; charset=utf-8",
}

type staticFile struct {
	content []byte
	kind    string
	tag     string
}

// staticFiles serves static files by their paths below Path. "" is the page.
type staticFiles map[string]staticFile

func newShell() staticFiles {
	s := staticFiles{}
	add := func(name string, text []byte) {
		sum := sha256.Sum256(text)
		s[name] = staticFile{text, types[path.Ext(name)], `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	entries, _ := fs.ReadDir(files, "web") // embedded
	for _, e := range entries {
		text, _ := files.ReadFile(path.Join("web", e.Name()))
		add(e.Name(), text)
	}
	add("console.css", consolestyle.Sheet())
	s[""] = s["index.html"]
	return s
}

// ServeHTTP serves a file. A browser caches it, and asks each time whether it has changed.
func (s staticFiles) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, Path), "/")
	f, ok := s[name]
	switch {
	// A file of an unknown type is not served, because a browser could guess its type.
	case !ok || f.kind == "":
		http.Error(w, "CodeForge: the console is at "+Path, http.StatusNotFound)
	case name == "" && r.URL.Path != Path:
		http.Redirect(w, r, Path, http.StatusMovedPermanently) // the page's addresses start there
	default:
		w.Header().Set("Content-Type", f.kind)
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("ETag", f.tag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.content))
	}
}

package swap

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// jsonWriter swaps in JSON strings that are values. A field is named by the keys that lead to it, joined by dots; arrays
// do not count. Names outside of strings are taken as in plain text.
type jsonWriter struct {
	words
	levels  []level
	deep    int    // levels beyond maxLevels
	text    []byte // of the key that is being read, at most maxKey
	wantKey bool
	in      bool // a string
	key     bool // which is a key
	only    bool // nothing but one run so far
}

// level is an object or array that is open.
type level struct {
	object bool
	key    []byte // as it is written, at most maxKey+1 bytes
}

const maxLevels = 64

func (w *jsonWriter) push(dst, src []byte) []byte {
	for _, b := range src {
		if w.in {
			dst = w.inString(dst, b)
		} else {
			dst = w.outside(dst, b)
		}
	}
	return dst
}

func (w *jsonWriter) finish(dst []byte) []byte {
	if w.in {
		dst = append(w.run(dst, false), w.escape...)
	}
	return w.end(dst, spot{kind: catalog.SurfaceBody}, nil)
}

// inString takes one byte of a string.
func (w *jsonWriter) inString(dst []byte, b byte) []byte {
	if w.key && len(w.text) <= maxKey && (b != '"' || len(w.escape) > 0) {
		w.text = append(w.text, b)
	}
	switch {
	case len(w.escape) > 0:
		return w.inEscape(dst, b)
	case b == '\\':
		w.only, w.escape = false, append(w.escape, b)
		return dst
	case b == '"':
		dst = w.run(dst, w.only)
		w.closeString()
	case isWord(b):
		return w.add(dst, b)
	default:
		dst = w.run(dst, false)
		w.only = false
	}
	return append(dst, b)
}

// inEscape takes one byte after a backslash. One that cannot belong to the escape ends it.
func (w *jsonWriter) inEscape(dst []byte, b byte) []byte {
	short := len(w.escape) == 1
	if !short && !isHex(b) {
		dst = append(w.run(dst, false), w.escape...)
		w.escape = w.escape[:0]
		if w.key && len(w.text) > 0 {
			w.text = w.text[:len(w.text)-1] // it comes again
		}
		return w.inString(dst, b)
	}
	w.escape = append(w.escape, b)
	if short && b == 'u' || !short && len(w.escape) < len(`\u0000`) {
		return dst
	}
	var text string
	if json.Unmarshal([]byte(`"`+string(w.escape)+`"`), &text) == nil && isWord(text[0]) {
		dst = w.spoil(dst)
	} else {
		dst = w.run(dst, false)
	}
	dst = append(dst, w.escape...)
	w.escape = w.escape[:0]
	return dst
}

// run ends a run in a string.
func (w *jsonWriter) run(dst []byte, whole bool) []byte {
	if w.key {
		return w.endKey(dst, spot{kind: catalog.SurfaceBody})
	}
	at := spot{catalog.SurfaceBody, "", whole}
	if w.named() {
		at.field = w.path()
	}
	return w.end(dst, at, escapeJSON)
}

func (w *jsonWriter) closeString() {
	w.in = false
	if w.key && w.deep == 0 && len(w.levels) > 0 {
		l := &w.levels[len(w.levels)-1]
		l.key = append(l.key[:0], w.text...)
	}
}

// path names the value that is being read, or is empty where no field is that can be declared.
func (w *jsonWriter) path() string {
	if w.deep > 0 {
		return ""
	}
	var keys []string
	for _, l := range w.levels {
		if !l.object {
			continue
		}
		var key string
		if len(l.key) > maxKey || json.Unmarshal([]byte(`"`+string(l.key)+`"`), &key) != nil {
			return ""
		}
		keys = append(keys, key)
	}
	return strings.Join(keys, ".")
}

// outside takes one byte that is in no string.
func (w *jsonWriter) outside(dst []byte, b byte) []byte {
	if isWord(b) {
		return w.add(dst, b)
	}
	dst = w.end(dst, spot{kind: catalog.SurfaceBody}, nil)
	switch b {
	case '"':
		w.in, w.only, w.key, w.text = true, true, w.wantKey, w.text[:0]
	case '{', '[':
		w.open(b == '{')
	case '}', ']':
		w.shut()
	case ',':
		w.wantKey = w.deep == 0 && len(w.levels) > 0 && w.levels[len(w.levels)-1].object
	case ':':
		w.wantKey = false
	}
	return append(dst, b)
}

func (w *jsonWriter) open(object bool) {
	w.wantKey = object && w.deep == 0 && len(w.levels) < maxLevels
	if len(w.levels) == maxLevels {
		w.deep++
		return
	}
	if n := len(w.levels); n < cap(w.levels) {
		w.levels = w.levels[:n+1] // with the space for its key
		w.levels[n].object, w.levels[n].key = object, w.levels[n].key[:0]
		return
	}
	w.levels = append(w.levels, level{object: object})
}

func (w *jsonWriter) shut() {
	w.wantKey = false
	switch {
	case w.deep > 0:
		w.deep--
	case len(w.levels) > 0:
		w.levels = w.levels[:len(w.levels)-1]
	}
}

// escapeJSON writes a value as it stands within quotes.
func escapeJSON(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < 0x20:
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

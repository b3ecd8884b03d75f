// Package logline renders log records in the common format of all daemons:
//
//	[2026-11-20T09:00:00.000Z] [req] message key=value
//
// Threat: text from outside (hosts, paths, upstream errors) that forges lines or escape codes, or carries a credential.
// Contract: every string is cleaned first, and then control characters are quoted.
package logline

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/codeforge-mcp/codeforge/internal/safetext"
)

const (
	tagKey     = "tag"
	timeLayout = "2006-01-02T15:04:05.000Z"
)

// Tag is the attribute that a line shows in brackets, e.g. Tag("req").
func Tag(name string) slog.Attr { return slog.String(tagKey, name) }

// New makes a logger that writes to w. format is LOG_FORMAT: "json" gives slog's JSON, anything else text. In both
// formats every string of a record passes clean; nil cleans nothing. The logger passes every level, so the caller must
// filter debug lines.
func New(w io.Writer, format string, clean func(string) string) *slog.Logger {
	if clean == nil {
		clean = func(s string) string { return s }
	}
	if format == "json" {
		return slog.New(newJSON(w, clean))
	}
	return slog.New(&textHandler{w: w, mu: new(sync.Mutex), clean: clean})
}

// AddHandler returns a logger that also passes each record to h, after clean has cleaned every string of it.
func AddHandler(l *slog.Logger, h slog.Handler, clean func(string) string) *slog.Logger {
	return slog.New(slog.NewMultiHandler(l.Handler(), cleanHandler{h, clean}))
}

// textHandler renders text lines. It is immutable; mu guards w.
type textHandler struct {
	w     io.Writer
	mu    *sync.Mutex
	clean func(string) string
	tag   string
	attrs string // rendered, each with a leading space
	group string // "a.b."
}

// Enabled passes every level.
func (h *textHandler) Enabled(context.Context, slog.Level) bool { return true }

// lineBuffer is the memory in which lines are built.
type lineBuffer struct{ text, attrs []byte }

var spaces = sync.Pool{New: func() any { return new(lineBuffer) }}

// maxKept is the size up to which the memory of lines is reused, in bytes.
const maxKept = 16 << 10

// Handle writes one line. A record without a tag gets its level as the tag: [info], [warn], [error], [debug].
func (h *textHandler) Handle(_ context.Context, r slog.Record) error { return h.writeRecords(r) }

// LogTogether writes related records. Text lines leave in one write, with no other line between them.
func LogTogether(ctx context.Context, l *slog.Logger, records ...slog.Record) error {
	if h, ok := l.Handler().(*textHandler); ok {
		return h.writeRecords(records...)
	}
	for _, r := range records {
		if err := l.Handler().Handle(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func (h *textHandler) writeRecords(records ...slog.Record) error {
	s := spaces.Get().(*lineBuffer)
	s.text = s.text[:0]
	for _, r := range records {
		h.appendLine(s, r)
	}
	h.mu.Lock()
	_, err := h.w.Write(s.text)
	h.mu.Unlock()
	// One huge line must not stay in the pool.
	if cap(s.text)+cap(s.attrs) <= maxKept {
		spaces.Put(s)
	}
	return err
}

func (h *textHandler) appendLine(s *lineBuffer, r slog.Record) {
	tag := h.tag
	s.attrs = append(s.attrs[:0], h.attrs...)
	r.Attrs(func(a slog.Attr) bool {
		s.attrs = h.appendAttr(s.attrs, h.group, a, &tag)
		return true
	})
	if tag == "" {
		tag = strings.ToLower(r.Level.String())
	}
	at := r.Time
	if at.IsZero() {
		at = time.Now()
	}
	b := at.UTC().AppendFormat(append(s.text, '['), timeLayout)
	b = h.appendSafe(append(b, "] ["...), tag)
	b = h.appendSafe(append(b, "] "...), r.Message)
	s.text = append(append(b, s.attrs...), '\n')
}

func (h *textHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next, b := *h, []byte(h.attrs)
	for _, a := range attrs {
		b = h.appendAttr(b, h.group, a, &next.tag)
	}
	next.attrs = string(b)
	return &next
}

func (h *textHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	next := *h
	next.group += name + "."
	return &next
}

func (h *textHandler) appendAttr(b []byte, group string, a slog.Attr, tag *string) []byte {
	v := a.Value.Resolve()
	if a.Equal(slog.Attr{}) {
		return b
	}
	// A group flattens into keys such as a.b=c.
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			group += a.Key + "."
		}
		for _, sub := range v.Group() {
			b = h.appendAttr(b, group, sub, tag)
		}
		return b
	}
	if group == "" && a.Key == tagKey {
		*tag = v.String()
		return b
	}
	b = appendQuoted(append(b, ' '), h.clean(group+a.Key))
	return appendQuoted(append(b, '='), h.clean(valueText(v)))
}

// appendSafe appends cleaned text without quotes. It escapes only characters that could break the line.
func (h *textHandler) appendSafe(b []byte, s string) []byte {
	s = h.clean(s)
	if isPrintable(s) {
		return append(b, s...)
	}
	q := safetext.QuoteText(s)
	return append(b, q[1:len(q)-1]...)
}

func valueText(v slog.Value) string {
	if v.Kind() == slog.KindTime {
		return v.Time().UTC().Format(timeLayout)
	}
	if v.Kind() == slog.KindAny {
		return fmt.Sprint(v.Any())
	}
	return v.String()
}

// appendQuoted appends a key or value, in quotes if it would be ambiguous without.
func appendQuoted(b []byte, s string) []byte {
	if s != "" && !strings.ContainsAny(s, ` "=`) && isPrintable(s) {
		return append(b, s...)
	}
	return append(b, safetext.QuoteText(s)...)
}

// isPrintable reports whether text needs no escape.
func isPrintable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' { // rare
			return safetext.IsPlain(s)
		}
	}
	return true
}

func isUnprintable(r rune) bool { return !unicode.IsPrint(r) || safetext.IsOdd(r) }

// newJSON returns slog's JSON handler behind one that cleans every string.
func newJSON(w io.Writer, clean func(string) string) slog.Handler {
	return cleanHandler{slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug - 4}), clean}
}

type cleanHandler struct {
	next  slog.Handler
	clean func(string) string
}

func (c cleanHandler) Enabled(ctx context.Context, l slog.Level) bool { return c.next.Enabled(ctx, l) }

func (c cleanHandler) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, r.Level, c.cleanText(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(c.cleanAttr(a))
		return true
	})
	return c.next.Handle(ctx, out)
}

func (c cleanHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	attrs = slices.Clone(attrs)
	for i := range attrs {
		attrs[i] = c.cleanAttr(attrs[i])
	}
	return cleanHandler{c.next.WithAttrs(attrs), c.clean}
}

func (c cleanHandler) WithGroup(name string) slog.Handler {
	return cleanHandler{c.next.WithGroup(name), c.clean}
}

// cleanAttr cleans a value. A number, boolean or time keeps its type unless cleaning changes its text.
func (c cleanHandler) cleanAttr(a slog.Attr) slog.Attr {
	v, key := a.Value.Resolve(), c.cleanText(a.Key)
	switch v.Kind() {
	case slog.KindGroup:
		subs := slices.Clone(v.Group())
		for i := range subs {
			subs[i] = c.cleanAttr(subs[i])
		}
		return slog.Attr{Key: key, Value: slog.GroupValue(subs...)}
	case slog.KindString, slog.KindAny:
		return slog.String(key, c.cleanText(valueText(v)))
	}
	if plain := valueText(v); c.clean(plain) != plain {
		return slog.String(key, c.clean(plain))
	}
	return slog.Attr{Key: key, Value: v}
}

// cleanText cleans a string. JSON escapes characters below a space. text escapes the other characters that move a
// terminal's cursor or change its direction.
func (c cleanHandler) cleanText(s string) string {
	s = c.clean(s)
	if !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x7f && isUnprintable(r) }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if r >= 0x7f && isUnprintable(r) {
			q := strconv.QuoteToASCII(string(r))
			b.WriteString(q[1 : len(q)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

package logline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/secret"
)

const canary = "sk-canary-0123456789"

func clean(s string) string { return strings.ReplaceAll(s, canary, "CANARY_TOKEN") }

type stringer struct{}

func (stringer) String() string { return "of " + canary }

// Promise: never-printed
func TestText(t *testing.T) {
	const head = "[2026-11-20T09:00:00.001Z] "
	rows := []struct {
		log  func(l *slog.Logger)
		want string
	}{
		{func(l *slog.Logger) { l.Info("GET api.example.com", Tag("req"), slog.Int("status", 200)) }, "[req] GET api.example.com status=200"},
		{func(l *slog.Logger) { l.With(Tag("mcp")).Info("started") }, "[mcp] started"},
		{func(l *slog.Logger) { l.With(Tag("mcp")).Info("started", Tag("skill")) }, "[skill] started"},
		{func(l *slog.Logger) { l.Warn("no tag") }, "[warn] no tag"},
		{func(l *slog.Logger) { l.Debug(">>> body", Tag("debug")) }, "[debug] >>> body"},
		{func(l *slog.Logger) {
			l.Info("m", "a", "two words", "b", "", "c", `q"q`, "d", "x=y", "e", "plain/path?x")
		}, `[info] m a="two words" b="" c="q\"q" d="x=y" e=plain/path?x`},
		{func(l *slog.Logger) { l.Info("m\n[2026-11-20T09:00:00.000Z] [req] forged\x1b[2J") }, `[info] m\n[2026-11-20T09:00:00.000Z] [req] forged\x1b[2J`},
		{func(l *slog.Logger) { l.Info("m", "k", "a\r\nb\x00\u202e\u009b1m\xff", "k\nk", 1) }, `[info] m k="a\r\nb\x00\u202e\u009b1m\xff" "k\nk"=1`},
		{func(l *slog.Logger) { l.Info("m", Tag("a]\n[b")) }, `[a]\n[b] m`},
		{func(l *slog.Logger) { l.WithGroup("g").With("a", 1).Info("m", slog.Group("h", "b", true)) }, "[info] m g.a=1 g.h.b=true"},
		{func(l *slog.Logger) {
			l.Info("m", slog.Duration("took", 1500*time.Millisecond), slog.Time("at", time.Unix(0, 0)))
		}, "[info] m took=1.5s at=1970-01-01T00:00:00.000Z"},
		{func(l *slog.Logger) { l.Info("grüße", "host", "münchen") }, "[info] grüße host=münchen"},
		{func(l *slog.Logger) {
			l.Info("with "+canary, "k", "x"+canary, "e", errors.New("of "+canary), "s", stringer{})
		}, `[info] with CANARY_TOKEN k=xCANARY_TOKEN e="of CANARY_TOKEN" s="of CANARY_TOKEN"`},
		{func(l *slog.Logger) { l.With("k", canary).Info("m", canary, canary) }, "[info] m k=CANARY_TOKEN CANARY_TOKEN=CANARY_TOKEN"},
		{func(l *slog.Logger) { l.Info("m", "v", secret.New("other"), "list", []string{"a", canary}) }, `[info] m v=[secret] list="[a CANARY_TOKEN]"`},
	}
	for _, r := range rows {
		var b bytes.Buffer
		l := New(&stamped{&b}, "text", clean)
		r.log(l)
		if got := b.String(); got != head+r.want+"\n" {
			t.Errorf("got  %swant %s%s", got, head, r.want)
		}
	}
}

// stamped replaces a line's time, which is checked to be one, by a fixed one.
type stamped struct{ w io.Writer }

func (s *stamped) Write(p []byte) (int, error) {
	at, rest, ok := strings.Cut(strings.TrimPrefix(string(p), "["), "]")
	if _, err := time.Parse("2006-01-02T15:04:05.000Z", at); !ok || err != nil {
		return 0, fmt.Errorf("no time in %q", p)
	}
	_, err := io.WriteString(s.w, "[2026-11-20T09:00:00.001Z]"+rest)
	return len(p), err
}

func TestTimeIsUTC(t *testing.T) {
	var b bytes.Buffer
	r := slog.NewRecord(time.Date(2026, 11, 20, 10, 0, 0, 1e6, time.FixedZone("CET", 3600)), slog.LevelInfo, "m", 0)
	if err := New(&b, "", nil).Handler().Handle(t.Context(), r); err != nil || b.String() != "[2026-11-20T09:00:00.001Z] [info] m\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}

// Promise: never-printed
func TestJSON(t *testing.T) {
	var b bytes.Buffer
	l := New(&b, "json", clean).With(slog.String("who", canary), Tag("req"))
	l.WithGroup("g").Error("of "+canary, "k", canary, canary, 7, slog.Group("h", "e", errors.New(canary+"\u009b\u202e\n")), "v", secret.New("x"))
	var got map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatalf("%v in %s", err, b.String())
	}
	delete(got, "time")
	want := map[string]any{"level": "ERROR", "msg": "of CANARY_TOKEN", "who": "CANARY_TOKEN", "tag": "req",
		"g": map[string]any{"k": "CANARY_TOKEN", "CANARY_TOKEN": float64(7), "h": map[string]any{"e": "CANARY_TOKEN\\u009b\\u202e\n"}, "v": "[secret]"}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if strings.Count(b.String(), "\n") != 1 {
		t.Errorf("more than a line: %q", b.String())
	}
}

// TestNumbersAreCleaned: a credential may be a number.
func TestNumbersAreCleaned(t *testing.T) {
	hide := func(s string) string { return strings.ReplaceAll(s, "12345678", "PIN_TOKEN") }
	for _, format := range []string{"text", "json"} {
		var b bytes.Buffer
		New(&b, format, hide).Info("m", slog.Int("n", 12345678), slog.Int64("o", 1))
		if strings.Contains(b.String(), "12345678") || !strings.Contains(b.String(), "PIN_TOKEN") {
			t.Errorf("%s: %s", format, b.String())
		}
	}
}

// TestLinesStayWhole: lines of several goroutines do not mix.
// Promise: never-printed
func TestLinesStayWhole(t *testing.T) {
	var b bytes.Buffer
	l := New(&b, "text", nil)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 50 {
				l.With("worker", i).Info(strings.Repeat("x", 100), Tag("req"))
			}
		})
	}
	wg.Wait()
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	for _, line := range lines {
		if !strings.Contains(line, "] [req] "+strings.Repeat("x", 100)+" worker=") {
			t.Fatalf("a broken line: %q", line)
		}
	}
	if len(lines) != 400 {
		t.Errorf("%d lines, want 400", len(lines))
	}
}

func FuzzText(f *testing.F) {
	f.Add("message", "key", "value")
	f.Add("a\nb", "\x00", "\u2028")
	f.Fuzz(func(t *testing.T, message, key, value string) {
		var b bytes.Buffer
		New(&b, "text", clean).Info(message, slog.String("k"+key, value))
		line := b.String()
		if strings.Count(line, "\n") != 1 || !strings.HasSuffix(line, "\n") || strings.Contains(line, canary) {
			t.Fatalf("%q", line)
		}
		for _, r := range line[:len(line)-1] {
			if isUnprintable(r) {
				t.Fatalf("%U in %q", r, line)
			}
		}
	})
}

// writes counts them.
type writes struct {
	n int
	bytes.Buffer
}

func (w *writes) Write(p []byte) (int, error) {
	w.n++
	return w.Buffer.Write(p)
}

// failing fails at each record.
type failing struct {
	slog.Handler
	n *int
}

func (f failing) Handle(context.Context, slog.Record) error { *f.n++; return io.ErrClosedPipe }

// TestTogetherFails: another handler's error ends the records.
func TestTogetherFails(t *testing.T) {
	n := 0
	if err := LogTogether(t.Context(), slog.New(failing{slog.DiscardHandler, &n}), slog.Record{}, slog.Record{}); !errors.Is(err, io.ErrClosedPipe) || n != 1 {
		t.Errorf("%v after %d records", err, n)
	}
}

// TestTogether: lines that belong together leave in one piece, each with its own tag.
func TestTogether(t *testing.T) {
	record := func(text, tag string) slog.Record {
		r := slog.NewRecord(time.Unix(0, 0), slog.LevelInfo, text, 0)
		r.AddAttrs(Tag(tag), slog.String("k", canary))
		return r
	}
	for format, want := range map[string]int{"text": 1, "json": 2} {
		var w writes
		l := New(&w, format, clean)
		if err := LogTogether(t.Context(), l, record("first", "req"), record("second", "inject")); err != nil {
			t.Error(err)
		}
		if w.n != want {
			t.Errorf("%s: %d writes, want %d", format, w.n, want)
		}
		if format != "text" {
			continue
		}
		const at = "[1970-01-01T00:00:00.000Z] "
		if got, want := w.String(), at+"[req] first k=CANARY_TOKEN\n"+at+"[inject] second k=CANARY_TOKEN\n"; got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	}
}

// BenchmarkLine is a line as the proxy writes it for every exchange.
func BenchmarkLine(b *testing.B) {
	l := New(io.Discard, "text", clean)
	b.ReportAllocs()
	for b.Loop() {
		l.LogAttrs(b.Context(), slog.LevelInfo, "GET https://api.example.com/v1/customers?limit", Tag("req"), slog.Int("slot", 3),
			slog.String("run", "run-0123456789"), slog.Int("status", 200), slog.String("outcome", "served"), slog.Int64("up", 0),
			slog.Int64("down", 1234), slog.String("took", "1.234ms"))
	}
}

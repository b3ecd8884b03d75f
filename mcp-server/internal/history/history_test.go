package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// open opens a store in a folder until the end of the test.
func open(t testing.TB, dir string, change func(*Config)) *Store {
	t.Helper()
	cfg := Config{Dir: dir, Mode: Full, Log: logline.New(t.Output(), "text", nil)}
	if openDatabase != nil {
		cfg.Database = openDatabase(t)
	}
	if change != nil {
		change(&cfg)
	}
	s := OpenStore(cfg)
	t.Cleanup(func() { shut(t, s) })
	return s
}

// shut closes a store.
func shut(t testing.TB, s *Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	s.Close(ctx)
	if ctx.Err() != nil {
		t.Error("the store did not close")
	}
}

// settle waits until everything that was stored so far is written.
func settle(t testing.TB, s *Store) {
	t.Helper()
	if err := s.SeeAlerts(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
}

// exchange makes an exchange of a run.
func exchange(run string, n int, method, api, host string) proxyapi.Exchange {
	return proxyapi.Exchange{
		ID: fmt.Sprintf("%s-%d", run, n), Run: run, At: time.Now().UTC(), Method: method, URL: "https://" + host + "/v1/things",
		Host: host, APIs: []string{api}, Outcome: proxyapi.OutcomeServed, Status: 200, BytesUp: 10, HeadUp: 100, BytesDown: 1000,
		Swapped: []proxyapi.Swap{{Name: strings.ToUpper(api) + "_TOKEN", In: "header:Authorization"}}, Milliseconds: 0.001,
	}
}

// store stores a run that read from one API, wrote to another, and printed.
func store(s *Store, id, code, printed string) {
	r := s.BeginRecording(operatorapi.Run{ID: id, Client: "tester", ClientVersion: "1.0", Protocol: "2025-11-25", Language: "typescript", Session: "s"}, code)
	r.RecordSlot(3, 17)
	r.RecordOutput(printed, "")
	rec := proxyapi.Receipt{Run: id, Hints: []proxyapi.Hint{{Code: "a_hint", Text: "Do it differently."}}}
	read := exchange(id, 1, "GET", "stripe", "api.stripe.com")
	s.RecordExchange(read) // the second is only on the receipt
	time.Sleep(time.Millisecond)
	write := exchange(id, 2, "POST", "slack", "slack.com")
	write.Scrubbed, write.Sanitized = []proxyapi.Swap{{Name: "SLACK_TOKEN", In: "body", Count: 2}}, 2
	for _, x := range []proxyapi.Exchange{read, write} {
		rec.Exchanges = append(rec.Exchanges, x)
		rec.Count.AddExchange(x)
	}
	r.RecordEnd(RunEnd{Exit: sandboxapi.Exit{Reason: sandboxapi.Exited, WallMS: 42, CPUMS: 7, MaxRSS: 1 << 20, StdoutBytes: int64(len(printed))}, Receipt: rec, Answer: printed})
}

// TestRun: what was stored of a run is found again, by its id, and by each filter, also by another process that comes
// later.
func TestRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "history")
	s := open(t, dir, nil)
	store(s, "raaaa", "// Open invoices by owner\nimport { f } from \"/skills/open-invoices.ts\";\nawait f();", "61 of 214 invoices are late\n")
	store(s, "rbbbb", "console.log('nothing');", "nothing\n")
	settle(t, s)
	for _, again := range []bool{false, true} {
		if again {
			shut(t, s)
			s = open(t, dir, nil)
		}
		d, err := s.FindRun(t.Context(), "ra")
		if err != nil {
			t.Fatal(err)
		}
		if d.ID != "raaaa" || d.State != operatorapi.OK || d.Title != "Open invoices by owner" || !d.Kept || d.Client != "tester" || d.Slot != 3 ||
			d.Generation != 17 || d.WallMS != 42 || d.CPUMS != 7 || d.MaxRSS != 1<<20 || len(d.Exchanges) != 2 || d.Count.Exchanges != 2 || d.Omitted != 0 ||
			fmt.Sprint(d.APIs) != "[slack stripe]" || fmt.Sprint(d.Skills) != "[open-invoices]" || len(d.CodeSHA) != 64 || d.Ended.IsZero() || len(d.Hints) != 1 {
			t.Errorf("%+v", d)
		}
		if len(d.Output.Head) != 1 || d.Output.Head[0].Text != "61 of 214 invoices are late\n" || !strings.HasPrefix(d.Code.Head, "// Open") || d.Answer.Head == "" {
			t.Errorf("content: %+v", d)
		}
		if x := d.Exchanges[1]; x.Method != "POST" || x.Scrubbed[0].Count != 2 || x.HeadUp != 100 || x.Number == 0 {
			t.Errorf("exchange: %+v", x)
		}
		for want, f := range map[string]operatorapi.RunFilter{
			"rbbbb raaaa":  {},
			"raaaa":        {Grep: "INVOICES lat"},
			"rbbbb":        {Grep: "nothing"},
			"rbbbb raaaa ": {Grep: "api.stripe.com/v1"}, "": {Grep: "invoices nothing"}, " ": {Grep: `" OR "*`},
			"rbbbb raaaa    ": {Grep: " \t"}, "rbbbb raaaa     ": {Grep: "- stripe ."},
			"raaaa ": {Skill: "open-invoices"}, "rbbbb raaaa  ": {API: "slack", Host: "slack.com", State: "ok", Client: "tester", Session: "s"},
			"  ": {State: "failed"}, "   ": {State: "denied"}, "    ": {Until: time.Now().Add(-time.Hour)}, "raaaa  ": {Run: "raa"},
			"rbbbb raaaa   ": {Since: time.Now().Add(-time.Hour), Spans: true},
		} {
			page, err := s.ListRuns(t.Context(), f, "")
			if err != nil {
				t.Fatalf("%+v: %v", f, err)
			}
			var got []string
			for _, r := range page.Runs {
				got = append(got, r.ID)
				if f.Spans && len(r.Spans) != 2 {
					t.Errorf("spans: %+v", r.Spans)
				}
			}
			if strings.Join(got, " ") != strings.TrimSpace(want) {
				t.Errorf("%+v lists %v, want %q", f, got, want)
			}
		}
	}
	if _, err := s.FindRun(t.Context(), "rzz"); !errors.Is(err, ErrUnknown) {
		t.Errorf("an unknown run: %v", err)
	}
	for path, mode := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, database.Name): 0o600, filepath.Join(dir, database.Name+"-wal"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", path, info.Mode(), err)
		}
	}
}

// TestEndedWithoutExit: of a run that nobody reported the exit of, as it was stopped or its sandbox went away, what it
// printed, how long it took and the requests that were seen are known all the same. One that never started took no time.
func TestEndedWithoutExit(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "history"), nil)
	r := s.BeginRecording(operatorapi.Run{ID: "rstop", Language: "typescript"}, "")
	r.RecordSlot(3, 17)
	r.RecordOutput("fifteen", "oh")
	s.RecordExchange(exchange("rstop", 1, "GET", "stripe", "api.stripe.com"))
	time.Sleep(30 * time.Millisecond)
	r.RecordEnd(RunEnd{Reason: "cancelled", Stopped: true})
	w := s.BeginRecording(operatorapi.Run{ID: "rwait", Language: "typescript"}, "")
	time.Sleep(30 * time.Millisecond)
	w.RecordEnd(RunEnd{Reason: "cancelled", Stopped: true})
	settle(t, s)
	if d, err := s.FindRun(t.Context(), "rstop"); err != nil || d.WallMS < 30 || d.StdoutBytes != 7 || d.StderrBytes != 2 || d.Count.Exchanges != 1 {
		t.Errorf("%+v %v", d.Run, err)
	}
	if d, err := s.FindRun(t.Context(), "rwait"); err != nil || d.WallMS != 0 {
		t.Errorf("%+v %v", d.Run, err)
	}
}

// TestFresh: a reader sees what was stored before, though the writer waits for more to write with it. Of the states of
// a run in one transaction only the last is written.
func TestFresh(t *testing.T) {
	s := open(t, t.TempDir(), func(c *Config) { c.fresh = testkit.Patience }) // a busy machine may not write within freshTime
	for i := range 20 {
		id := fmt.Sprintf("r%d", i)
		store(s, id, "x", "y")
		if d, err := s.FindRun(t.Context(), id); err != nil || d.State != operatorapi.OK || len(d.Exchanges) != 2 {
			t.Errorf("%+v %v", d.Run, err)
		}
	}
	db, err := openFile(t.TempDir(), database.Migrations)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var done []int
	var jobs []writeJob
	for i, run := range []int64{1, 0, 2, 1, 0, 1} {
		jobs = append(jobs, writeJob{run: run, do: func(context.Context, *writeTransaction) error {
			done = append(done, i)
			return nil
		}})
	}
	if err := s.doJobs(db, jobs, false); err != nil || fmt.Sprint(done) != "[1 2 4 5]" {
		t.Errorf("done: %v %v", done, err)
	}
}

// TestPages: pages have every run once.
func TestPages(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	for i := range 25 {
		store(s, fmt.Sprintf("r%03d", i), "x", "")
	}
	settle(t, s)
	var runs, exchanges []string
	for cursor := ""; ; {
		p, err := s.ListRuns(t.Context(), operatorapi.RunFilter{Limit: 10}, cursor)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Runs {
			runs = append(runs, r.ID)
		}
		if cursor = p.Next; cursor == "" {
			break
		}
	}
	for cursor := ""; ; {
		p, err := s.ListExchanges(t.Context(), operatorapi.ExchangeFilter{Limit: 7, Oldest: true, Name: "SLACK_TOKEN", Host: "slack.com"}, cursor)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range p.Exchanges {
			exchanges = append(exchanges, x.Run)
		}
		if cursor = p.Next; cursor == "" {
			break
		}
	}
	if len(runs) != 25 || runs[0] != "r024" || runs[24] != "r000" || len(exchanges) != 25 || exchanges[0] != "r000" {
		t.Errorf("%v\n%v", runs, exchanges)
	}
	if _, err := s.ListRuns(t.Context(), operatorapi.RunFilter{}, "x"); err == nil {
		t.Error("a wrong cursor is accepted")
	}
}

// TestLedger: sums of what left, also after the runs themselves are gone.
func TestLedger(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	store(s, "r1", "x", "12345")
	store(s, "r2", "y", "12345")
	denied := exchange("server-git", 9, "GET", "", "made-up.example.org")
	denied.APIs, denied.Outcome, denied.Swapped = nil, proxyapi.OutcomeDenied, nil
	denied.BytesUp, denied.HeadUp, denied.BytesDown = 0, 0, 0
	s.RecordExchange(denied)
	s.RecordSent([]proxyapi.Exchange{denied}) // and once more, when the server ends
	for _, removed := range []bool{false, true} {
		settle(t, s)
		l, err := s.SumTraffic(t.Context(), time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if l.Runs != 2 || l.Requests != 5 || l.Denied != 1 || l.BytesUp != 440 || l.BytesDown != 4000 || l.Shown != 10 || l.Sanitized != 4 || l.Swapped != 4 {
			t.Errorf("%+v", l)
		}
		if len(l.Traffic) != 3 || len(l.Matrix) != 2 || len(l.Carried) != 1 || l.Carried[0].From != "stripe" || l.Carried[0].To != "slack" || l.Carried[0].Runs != 2 || l.Carried[0].First.IsZero() {
			t.Errorf("%+v", l)
		}
		for _, c := range l.Matrix {
			if c.Name == "SLACK_TOKEN" && (c.Host != "slack.com" || c.Swapped != 2 || c.Scrubbed != 4) {
				t.Errorf("%+v", c)
			}
		}
		h, err := s.TrafficByHour(t.Context(), time.Now().Add(-time.Hour), time.Now().Add(time.Hour), time.Hour)
		if err != nil || len(h) < 3 {
			t.Errorf("%+v %v", h, err)
		}
		if removed {
			break
		}
		if n, err := s.RemoveRuns(t.Context(), operatorapi.RunFilter{}); err != nil || n != 2 {
			t.Fatalf("removed %d: %v", n, err)
		}
	}
	alerts, err := s.ListAlerts(t.Context(), true)
	if err != nil || len(alerts) != 1 || alerts[0].Kind != operatorapi.AlertNewPair || alerts[0].Seen {
		t.Fatalf("%+v %v", alerts, err)
	}
	if err := s.SeeAlerts(t.Context(), alerts[0].Number); err != nil {
		t.Fatal(err)
	}
	unseen, _ := s.ListAlerts(t.Context(), true)
	all, _ := s.ListAlerts(t.Context(), false)
	if len(unseen) != 0 || len(all) != 1 || !all[0].Seen {
		t.Errorf("%+v %+v", unseen, all)
	}
}

// TestRemoved: nothing of a removed run is in the files.
// Promise: nothing-stays
func TestRemoved(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	store(s, "r1", "// zebrawort\n", "quaggabloom\n")
	store(s, "r2", "// other\n", "other\n")
	settle(t, s)
	found := func() (n int) {
		for _, file := range []string{database.Name, database.Name + "-wal"} {
			data, _ := os.ReadFile(filepath.Join(dir, file))
			n += bytes.Count(data, []byte("zebrawort"))
		}
		return n
	}
	if found() == 0 {
		t.Fatal("the text is not in the files: what is searched for below proves nothing")
	}
	if n, err := s.RemoveRuns(t.Context(), operatorapi.RunFilter{Grep: "---"}); err == nil || n != 0 {
		t.Fatalf("a text without a word removed %d runs: %v", n, err)
	}
	if n, err := s.RemoveRuns(t.Context(), operatorapi.RunFilter{Run: "r1"}); err != nil || n != 1 {
		t.Fatalf("removed %d: %v", n, err)
	}
	db, err := s.readConn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var vacuum, free int
	if err := errors.Join(db.QueryRow("PRAGMA auto_vacuum").Scan(&vacuum), db.QueryRow("PRAGMA freelist_count").Scan(&free)); err != nil || vacuum != 2 || free != 0 {
		t.Errorf("auto_vacuum is %d, %d pages are free: %v", vacuum, free, err)
	}
	if n := found(); n != 0 {
		t.Errorf("it is still there %d times", n)
	}
	if _, err := s.FindRun(t.Context(), "r1"); !errors.Is(err, ErrUnknown) {
		t.Errorf("the run is there: %v", err)
	}
	if p, err := s.ListExchanges(t.Context(), operatorapi.ExchangeFilter{}, ""); err != nil || len(p.Exchanges) != 2 {
		t.Errorf("%d exchanges, %v", len(p.Exchanges), err)
	}
	if p, err := s.ListRuns(t.Context(), operatorapi.RunFilter{Grep: "zebrawort"}, ""); err != nil || len(p.Runs) != 0 {
		t.Errorf("%+v %v", p, err)
	}
}

// TestModes: receipts has no code, output or title; off has nothing, and no file.
// Promise: nothing-stays
func TestModes(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, func(c *Config) { c.Mode = Receipts })
	store(s, "r1", "// secret plan\n", "secret result\n")
	s.RecordSkill(operatorapi.SkillVersion{Skill: "a", By: operatorapi.ByTool}, "secret source")
	settle(t, s)
	d, err := s.FindRun(t.Context(), "r1")
	if err != nil || d.Kept || d.Title != "" || len(d.Exchanges) != 2 || len(d.CodeSHA) != 64 {
		t.Errorf("%+v %v", d, err)
	}
	if _, err := s.SkillSource(t.Context(), "a", 1); !errors.Is(err, ErrUnknown) {
		t.Errorf("source: %v", err)
	}
	shut(t, s)
	if data, err := os.ReadFile(filepath.Join(dir, database.Name)); err != nil || bytes.Contains(data, []byte("secret")) {
		t.Errorf("the file has what it must not: %v", err)
	}
	empty := t.TempDir()
	off := open(t, filepath.Join(empty, "history"), func(c *Config) { c.Mode = Off })
	var none *Store
	for _, s := range []*Store{off, none} {
		store(s, "r1", "x", "y")
		if _, err := s.ListRuns(t.Context(), operatorapi.RunFilter{}, ""); !errors.Is(err, ErrOff) {
			t.Errorf("off: %v", err)
		}
		if _, err := s.Follow(t.Context(), ""); !errors.Is(err, ErrOff) {
			t.Errorf("off: %v", err)
		}
		if _, err := s.RemoveRuns(t.Context(), operatorapi.RunFilter{}); !errors.Is(err, ErrOff) {
			t.Errorf("off: %v", err)
		}
	}
	if left, _ := os.ReadDir(empty); len(left) != 0 {
		t.Errorf("off made %v", left)
	}
}

// TestAppendPiece joins recent and short pieces of one stream, and all of them at the end of a long list.
func TestAppendPiece(t *testing.T) {
	short, full, whole := "x", strings.Repeat("x", joinBytes), strings.Repeat("x", most)
	for _, c := range []struct {
		n          int
		last, next operatorapi.Print
		joins      bool
	}{
		{1, operatorapi.Print{Text: short}, operatorapi.Print{Text: "y", MS: joinMS - 1}, true},
		{1, operatorapi.Print{Text: short}, operatorapi.Print{Text: "y", MS: joinMS}, false},
		{1, operatorapi.Print{Text: short}, operatorapi.Print{Text: "y", Err: true}, false},
		{1, operatorapi.Print{Text: full[1:]}, operatorapi.Print{Text: "y"}, true},
		{1, operatorapi.Print{Text: full}, operatorapi.Print{Text: "y"}, false},
		{maxPrints - 1, operatorapi.Print{Text: full}, operatorapi.Print{Text: "y"}, false},
		{maxPrints, operatorapi.Print{Text: full}, operatorapi.Print{Text: "y", MS: joinMS}, true},
		{maxPrints, operatorapi.Print{Text: whole}, operatorapi.Print{Text: "y"}, false},
	} {
		list := make([]operatorapi.Print, c.n)
		list[c.n-1] = c.last
		if got := appendPiece(list, c.next); (len(got) == c.n) != c.joins || !strings.HasSuffix(got[len(got)-1].Text, "y") {
			t.Errorf("%d bytes at %d ms behind %d bytes: %d pieces of %d", len(c.next.Text), c.next.MS, len(c.last.Text), len(got), c.n)
		}
	}
}

// TestClean: what must not be stored is taken out of everything, also where it was printed in two pieces.
// Promise: never-printed
func TestClean(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, func(c *Config) {
		c.Clean = func(text string) string { return strings.ReplaceAll(text, "hush-name", "REDACTED") }
	})
	r := s.BeginRecording(operatorapi.Run{ID: "r1", Client: "hush-name"}, "// about hush-name\n")
	r.RecordOutput("by hush-", "")
	r.RecordOutput("", "never joined")
	r.RecordOutput("x", "")
	r.RecordOutput("hush-na", "")
	time.Sleep(2 * joinMS * time.Millisecond)
	r.RecordOutput("me again\n", "")
	live, err := s.FindRun(t.Context(), "r1")
	for err != nil { // until the writer has it
		live, err = s.FindRun(t.Context(), "r1")
	}
	r.RecordEnd(RunEnd{Exit: sandboxapi.Exit{Reason: sandboxapi.Exited, Detail: "hush-name"}, Answer: "of hush-name"})
	s.RecordSkill(operatorapi.SkillVersion{Skill: "a", By: operatorapi.ByTool}, "for hush-name")
	settle(t, s)
	d, err := s.FindRun(t.Context(), "r1")
	source, _ := s.SkillSource(t.Context(), "a", 1)
	if err != nil || !strings.Contains(fmt.Sprint(d), "about REDACTED") || source != "for REDACTED" {
		t.Fatalf("%+v %v %q", d, err, source)
	}
	if all := fmt.Sprint(live, d); strings.Contains(all, "hush-name") {
		t.Error(all)
	}
	shut(t, s)
	if data, _ := os.ReadFile(filepath.Join(dir, database.Name)); bytes.Contains(data, []byte("hush-name")) {
		t.Error("the file has it")
	}
}

// TestCapture: the beginning and the end of any output are kept, in whole characters and order, and everything else is
// counted.
func TestCapture(t *testing.T) {
	for _, size := range []int{1, 7, 1000, half - 1, half, 2*half + 1, 3 * half} {
		for _, total := range []int{0, 1, half - 1, half, half + 1, 2 * half, 2*half + 1, 5*half + 3} {
			var c outputCapture
			text := strings.Repeat("aé", total/3+1)[:total]
			text = strings.ToValidUTF8(text, "b")
			ms := int64(0)
			for rest := text; rest != ""; ms += 3 {
				piece := safetext.CutText(rest, size, "")
				if piece == "" {
					piece = rest[:2]
				}
				c.addPiece(operatorapi.Print{MS: ms, Err: ms%2 == 1, Text: piece})
				rest = rest[len(piece):]
			}
			o := runContent{Output: c.collectedOutput()}.cleanTexts(func(text string) string { return text }).cutMargins().Output
			var head, tail strings.Builder
			for _, p := range o.Head {
				head.WriteString(p.Text)
			}
			for _, p := range o.Tail {
				tail.WriteString(p.Text)
			}
			switch {
			case !strings.HasPrefix(text, head.String()) || !strings.HasSuffix(text, tail.String()):
				t.Errorf("%d in pieces of %d: not the beginning and the end", total, size)
			case head.Len()+tail.Len()+int(o.Omitted) != len(text):
				t.Errorf("%d in pieces of %d: %d and %d are kept, %d omitted", total, size, head.Len(), tail.Len(), o.Omitted)
			case max(head.Len(), tail.Len()) > half && (o.Omitted > 0 || len(text) > 2*half) || len(o.Head) > maxPrints || len(o.Tail) > maxPrints:
				t.Errorf("%d in pieces of %d: too much: %d, %d", total, size, head.Len(), tail.Len())
			case size > 100 && len(text) <= 2*half-4 && o.Omitted > 0:
				t.Errorf("%d in pieces of %d: %d are omitted for nothing", total, size, o.Omitted)
			}
		}
	}
}

// TestSkills: each version once, with who made it; a change that a run may have made is the run's.
func TestSkills(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	s.RecordSkill(operatorapi.SkillVersion{Skill: "a", By: operatorapi.ByPerson}, "one\ntwo\n")
	s.RecordSkill(operatorapi.SkillVersion{Skill: "a", By: operatorapi.ByTool, Client: "c"}, "one\ntwo\n")
	r := s.BeginRecording(operatorapi.Run{ID: "r1"}, "x")
	s.RecordSkill(operatorapi.SkillVersion{Skill: "a", By: operatorapi.ByPerson}, "one\n2\nthree\n")
	s.RecordSkill(operatorapi.SkillVersion{Skill: "a", By: operatorapi.ByRun, Run: "r1"}, "one\n2\nthree\n")
	r.RecordEnd(RunEnd{})
	s.RecordSkill(operatorapi.SkillVersion{Skill: "a", By: operatorapi.ByTool, Deleted: true}, "")
	s.RecordSkill(operatorapi.SkillVersion{Skill: "never", By: operatorapi.ByTool, Deleted: true}, "")
	settle(t, s)
	list, err := s.SkillVersions(t.Context(), "")
	if err != nil || len(list) != 3 {
		t.Fatalf("%+v %v", list, err)
	}
	if v := list[1]; v.Version != 2 || v.By != operatorapi.ByRun || v.Run != "r1" || v.Added != 2 || v.Removed != 1 || v.Bytes != 12 {
		t.Errorf("%+v", v)
	}
	if !list[0].Deleted || list[0].Version != 3 || list[2].By != operatorapi.ByPerson {
		t.Errorf("%+v", list)
	}
	if source, err := s.SkillSource(t.Context(), "a", 2); err != nil || source != "one\n2\nthree\n" {
		t.Errorf("%q %v", source, err)
	}
}

// TestManyExchanges: of a run that sends more than is kept, the rest is counted, and whoever looks on is told of it.
func TestManyExchanges(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	r := s.BeginRecording(operatorapi.Run{ID: "r1"}, "x")
	for i := range maxOfRun {
		s.RecordExchange(exchange("r1", i, "GET", "stripe", "api.stripe.com"))
	}
	settle(t, s)
	cursor := s.CurrentCursor()
	s.RecordExchange(exchange("r1", maxOfRun, "GET", "stripe", "api.stripe.com"))
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	if events, err := s.Follow(ctx, cursor); err != nil || len(events) != 1 || events[0].RunID != "r1" {
		t.Errorf("of one that is not kept: %+v, %v", events, err)
	}
	d, err := s.RunAfter(t.Context(), "r1", 0)
	if err != nil || len(d.Exchanges) != maxOfRun || d.Count.Exchanges != maxOfRun+1 || d.Omitted != 1 {
		t.Errorf("%d exchanges, counted %d, %d omitted, %v", len(d.Exchanges), d.Count.Exchanges, d.Omitted, err)
	}
	r.RecordEnd(RunEnd{})
}

// TestFollow: a follower gets every event once and in order, or is told that some are gone.
func TestFollow(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	cursor := s.CurrentCursor()
	store(s, "r1", "x", "y")
	var kinds []string
	for len(kinds) < 5 {
		events, err := s.Follow(t.Context(), cursor)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			kinds = append(kinds, e.Kind)
			cursor = e.Cursor
		}
	}
	if got := strings.Join(kinds[:5], " "); got != "run run print exchange run" {
		t.Errorf("events: %s", got)
	}
	settle(t, s)
	cursor = s.CurrentCursor()
	for range maxEvents + 10 {
		s.NotifyGap()
	}
	events, err := s.Follow(t.Context(), cursor)
	if err != nil || events[0].Kind != operatorapi.EventGap || len(events) != maxEvents+1 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	again, err := s.Follow(t.Context(), events[0].Cursor)
	if err != nil || again[0].Cursor != events[1].Cursor {
		t.Errorf("after the gap comes %+v, want %+v: %v", again[0], events[1], err)
	}
	if e, err := s.Follow(t.Context(), "other.7"); err != nil || e[0].Kind != operatorapi.EventGap {
		t.Errorf("of another process: %+v %v", e, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Follow(ctx, s.CurrentCursor()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestAlertsOfOneCause: one run that reads ten APIs and then writes is one alert, and so is a network that is down for
// ten APIs. What a person has seen gets no addition.
func TestAlertsOfOneCause(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	for i := range 30 {
		s.AddAlert(operatorapi.Alert{Kind: operatorapi.AlertNewPair, Run: "r1", Title: fmt.Sprint("pair ", i)})
	}
	for i := range 10 {
		s.AddAlert(operatorapi.Alert{Kind: operatorapi.AlertAPI, Run: fmt.Sprint("r", i), Title: fmt.Sprint("API ", i)})
	}
	for i := range 2 {
		s.AddAlert(operatorapi.Alert{Kind: operatorapi.AlertAlarm, Run: fmt.Sprint("r", i), Title: "alarm"})
	}
	var list []operatorapi.Alert
	var err error
	testkit.WaitFor(t, func() bool { // Postgres may still be starting
		list, err = s.ListAlerts(t.Context(), true)
		return err != nil || len(list) == 4
	})
	if err != nil {
		t.Fatal(err)
	}
	if p := list[3]; p.Title != "pair 0" || p.Further != 29 || len(p.Titles) != operatorapi.MaxTitles || p.Titles[0] != "pair 1" {
		t.Errorf("%+v", p)
	}
	if p := list[2]; p.Title != "API 0" || p.Further != 9 {
		t.Errorf("%+v", p)
	}
	if err := s.SeeAlerts(t.Context(), list[0].Number); err != nil {
		t.Fatal(err)
	}
	s.AddAlert(operatorapi.Alert{Kind: operatorapi.AlertNewPair, Run: "r1", Title: "pair 30"})
	if list, err = s.ListAlerts(t.Context(), true); err != nil || len(list) != 1 || list[0].Further != 0 {
		t.Errorf("%+v %v", list, err)
	}
}

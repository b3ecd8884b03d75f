package history

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// writerDir makes this program the writer of TestKilled, in this folder.
const writerDir = "CODEFORGE_TEST_HISTORY"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerDir); dir != "" {
		cfg := Config{Dir: dir, Mode: Full, Log: logline.New(os.Stderr, "text", nil)}
		if strings.HasPrefix(dir, "postgres:") {
			cfg.Database, _ = database.OpenPostgres(secret.New(dir)) // the test's own URL
		}
		s := OpenStore(cfg)
		for i := 0; ; i++ {
			id := fmt.Sprintf("r%d-%06d", os.Getpid(), i)
			store(s, id, "// code of "+id+"\n"+strings.Repeat("x", i%5000), strings.Repeat("printed ", i%3000))
			if err := s.SeeAlerts(context.Background(), 0); err != nil { // until it is written
				fmt.Println(err)
				os.Exit(1)
			}
			fmt.Println(id)
		}
	}
	os.Exit(m.Run())
}

// writer starts a process that stores runs, and tells the id of each one that is stored.
func writer(t *testing.T, dir string) (*exec.Cmd, *testkit.Buffer) {
	t.Helper()
	cmd, out := exec.CommandContext(t.Context(), os.Args[0]), &testkit.Buffer{}
	cmd.Env = append(os.Environ(), writerDir+"="+dir)
	cmd.Stdout, cmd.Stderr = out, t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, out
}

// whole checks that a file is sound and has all of each run that was told to be stored.
func whole(t *testing.T, dir string, told []string) {
	t.Helper()
	s := open(t, dir, nil)
	defer shut(t, s)
	db, err := s.readConn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var said string
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&said); err != nil || said != "ok" {
		t.Errorf("integrity: %s %v", said, err)
	}
	for _, id := range told {
		d, err := s.FindRun(t.Context(), id)
		if err != nil || d.State != operatorapi.OK || len(d.Exchanges) != 2 || !strings.HasPrefix(d.Code.Head, "// code of "+id) {
			t.Errorf("%s was stored, and is %+v, %v", id, d.Run, err)
		}
	}
	for _, state := range []string{operatorapi.Running, operatorapi.Waiting} {
		if p, err := s.ListRuns(t.Context(), operatorapi.RunFilter{State: state}, ""); err != nil || len(p.Runs) > 0 {
			t.Errorf("still %s: %+v %v", state, p.Runs, err)
		}
	}
}

// TestKilled: whenever the writer is killed, the file is sound, what was stored is there, and runs that were under way
// are lost and not running.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	var told []string
	for i := range 12 {
		cmd, out := writer(t, dir)
		testkit.WaitFor(t, func() bool { return strings.Contains(out.String(), "\n") })
		time.Sleep(time.Duration(i*7) * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		lines := strings.Split(out.String(), "\n")
		told = append(told, lines[:len(lines)-1]...) // the last one may be cut
		whole(t, dir, told)
	}
	if len(told) < 12 {
		t.Errorf("only %d runs", len(told))
	}
}

// TestTwoProcesses: two processes write one file, and lose nothing.
func TestTwoProcesses(t *testing.T) {
	dir := t.TempDir()
	a, outA := writer(t, dir)
	b, outB := writer(t, dir)
	testkit.WaitFor(t, func() bool { return strings.Count(outA.String(), "\n") > 20 && strings.Count(outB.String(), "\n") > 20 })
	for _, cmd := range []*exec.Cmd{a, b} {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	var told []string
	for _, out := range []*testkit.Buffer{outA, outB} {
		lines := strings.Split(out.String(), "\n")
		told = append(told, lines[:len(lines)-1]...)
	}
	whole(t, dir, told)
}

// TestSameNumbers: two processes that draw the same numbers, for example from the same random part, lose no run.
func TestSameNumbers(t *testing.T) {
	dir := t.TempDir()
	stores := []*Store{open(t, dir, nil), open(t, dir, nil)}
	later := time.Now().Add(time.Hour).UnixMicro()
	for _, s := range stores {
		settle(t, s) // the store has opened the file and chosen its numbers
		s.replica.Store(maxReplicas - 1)
		s.last.Store(later)
	}
	var ids []string
	var slow []*Recording // one run of each store; both begin before either ends
	for i, s := range stores {
		id := fmt.Sprintf("slow%d", i)
		slow = append(slow, s.BeginRecording(operatorapi.Run{ID: id}, "// code of "+id))
		settle(t, s)
	}
	for i, s := range stores {
		id := fmt.Sprintf("fast%d", i)
		ids = append(ids, id, slow[i].run.ID)
		store(s, id, "// code of "+id, "printed")
		s.RecordSkill(operatorapi.SkillVersion{Skill: id}, "source")
		s.AddAlert(operatorapi.Alert{Kind: operatorapi.AlertAlarm, Title: id, Run: id})
		settle(t, s)
	}
	for i, s := range stores {
		slow[i].AddFile("of.txt", []byte(slow[i].run.ID))
		slow[i].RecordEnd(RunEnd{Exit: sandboxapi.Exit{Reason: sandboxapi.Exited}})
		settle(t, s)
	}
	for _, id := range ids {
		d, err := stores[0].FindRun(t.Context(), id)
		if err != nil || d.State != operatorapi.OK || !strings.HasPrefix(d.Code.Head, "// code of "+id) {
			t.Errorf("%s: %+v, %v", id, d.Run, err)
		}
		if strings.HasPrefix(id, "slow") {
			if f, err := stores[0].ReadRunFile(t.Context(), id, "of.txt", nil); string(f.Data) != id {
				t.Errorf("%s has the file %q, %v", id, f.Data, err)
			}
			continue
		}
		if versions, err := stores[0].SkillVersions(t.Context(), id); len(d.Exchanges) != 2 || len(versions) != 1 {
			t.Errorf("%s: %d exchanges, versions %+v, %v", id, len(d.Exchanges), versions, err)
		}
	}
	if p, err := stores[0].ListRuns(t.Context(), operatorapi.RunFilter{}, ""); err != nil || len(p.Runs) != len(ids) {
		t.Errorf("%d runs, %v", len(p.Runs), err)
	}
	list, err := stores[0].ListAlerts(t.Context(), true)
	testkit.Must(t, err)
	for i := range stores {
		if !slices.ContainsFunc(list, func(a operatorapi.Alert) bool { return a.Title == fmt.Sprintf("fast%d", i) }) {
			t.Errorf("no alert fast%d: %+v", i, list)
		}
	}
}

// TestDamaged: a file that is damaged, before the start or while it is open, is set aside, and a new one begun.
func TestDamaged(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"no database": func(b []byte) []byte { return bytes.Repeat([]byte("nonsense"), len(b)/8) },
		"pages":       func(b []byte) []byte { return append(b[:4096:4096], bytes.Repeat([]byte{0xa5}, len(b)-4096)...) },
		"short":       func(b []byte) []byte { return b[:5000] },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, database.Name)
			s := open(t, dir, nil)
			for i := range 20 {
				store(s, fmt.Sprintf("r%d", i), "x", "y")
			}
			settle(t, s)
			shut(t, s)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, damage(data), 0o600); err != nil {
				t.Fatal(err)
			}
			s = open(t, dir, nil)
			ok := func() bool { // jobs that meet the damage are dropped
				store(s, "rnew", "x", "y")
				_ = s.SeeAlerts(t.Context(), 0)
				d, err := s.FindRun(t.Context(), "rnew")
				return err == nil && d.State == operatorapi.OK
			}
			testkit.WaitFor(t, ok)
			if _, err := os.Stat(path + ".damaged"); err != nil {
				t.Error(err)
			}
			list, err := s.ListAlerts(t.Context(), true)
			if err != nil || len(list) == 0 || list[len(list)-1].Kind != operatorapi.AlertHistory {
				t.Errorf("alerts: %+v %v", list, err)
			}
		})
	}
}

// TestDiskFull: on a full disk nothing waits, what is not stored is counted and said, and with room again storing goes
// on. It needs root for a small file system.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("small", dir, "tmpfs", 0, "size=1m"); err != nil {
		testkit.SkipBecause(t, "mounting a small file system: "+err.Error())
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	s := open(t, filepath.Join(dir, "history"), nil)
	store(s, "r1", "x", "y")
	settle(t, s)
	filler := filepath.Join(dir, "filler")
	_ = os.WriteFile(filler, bytes.Repeat([]byte("x"), 1<<20), 0o600)
	var slowest time.Duration
	for i := range 50 {
		began := time.Now()
		store(s, fmt.Sprintf("rfull%d", i), "x", fmt.Sprint(i))
		slowest = max(slowest, time.Since(began))
	}
	testkit.WaitFor(t, func() bool {
		st, err := s.Status(t.Context())
		return err == nil && st.Dropped > 0 && strings.Contains(st.Problem, "full")
	})
	if slowest > testkit.Patience/4 {
		t.Errorf("a run waited %v", slowest)
	}
	if _, err := s.FindRun(t.Context(), "r1"); err != nil {
		t.Errorf("what was stored before: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	store(s, "r2", "x", "y")
	settle(t, s)
	st, err := s.Status(t.Context())
	if err != nil || st.Problem != "" {
		t.Errorf("with room again: %+v %v", st, err)
	}
	if d, err := s.FindRun(t.Context(), "r2"); err != nil || d.State != operatorapi.OK {
		t.Errorf("with room again: %+v %v", d.Run, err)
	}
}

// TestEndNotStored: a run whose end could not be stored is not shown as running for good, and one under way still is.
func TestEndNotStored(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	exec := func(query string) {
		t.Helper()
		testkit.Must(t, s.writeAndWait(t.Context(), func(_ context.Context, tx *writeTransaction) error {
			_, err := tx.Exec(query)
			return err
		}))
	}
	state := func(id string) string {
		t.Helper()
		d, err := s.FindRun(t.Context(), id)
		testkit.Must(t, err)
		return d.State
	}
	tidy := func() {
		t.Helper()
		testkit.Must(t, s.writeAndWait(t.Context(), func(ctx context.Context, tx *writeTransaction) error {
			_, err := s.tidyEnds(ctx, tx)
			return err
		}))
	}
	ended, running := s.BeginRecording(operatorapi.Run{ID: "r1"}, "x"), s.BeginRecording(operatorapi.Run{ID: "r2"}, "x")
	ended.RecordSlot(1, 1)
	running.RecordSlot(2, 2)
	settle(t, s)
	exec(`CREATE TEMP TRIGGER full BEFORE UPDATE ON run BEGIN SELECT RAISE(FAIL, 'full'); END`)
	ended.RecordEnd(RunEnd{})
	settle(t, s)
	exec(`DROP TRIGGER full`)
	tidy()
	if a, b := state("r1"), state("r2"); a != operatorapi.Lost || b != operatorapi.Running {
		t.Errorf("the one that is over is %s, the one under way %s", a, b)
	}
	running.RecordEnd(RunEnd{})
	tidy()
	if got := state("r2"); got != operatorapi.Failed {
		t.Errorf("the one whose end is stored is %s", got)
	}
}

// TestRolledBack: what a failed transaction has lost of a run, its end stores from the receipt.
func TestRolledBack(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	r := s.BeginRecording(operatorapi.Run{ID: "r1"}, "x")
	x := exchange("r1", 1, "GET", "stripe", "api.stripe.com")
	s.RecordExchange(x)
	err := s.writeAndWait(t.Context(), func(ctx context.Context, tx *writeTransaction) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO nowhere VALUES (1)`)
		return err
	})
	if err == nil {
		t.Fatal("the transaction did not fail")
	}
	if _, err := s.FindRun(t.Context(), "r1"); !errors.Is(err, ErrUnknown) {
		t.Fatalf("nothing was lost: %v", err)
	}
	rec := proxyapi.Receipt{Run: "r1", Exchanges: []proxyapi.Exchange{x}}
	rec.Count.AddExchange(x)
	r.RecordEnd(RunEnd{Receipt: rec})
	d, err := s.FindRun(t.Context(), "r1")
	found, ferr := s.ListRuns(t.Context(), operatorapi.RunFilter{Grep: "api.stripe.com/v1"}, "")
	if err := errors.Join(err, ferr); err != nil || len(d.Exchanges) != 1 || d.Omitted != 0 || len(found.Runs) != 1 {
		t.Errorf("%+v, %d found, %v", d, len(found.Runs), err)
	}
}

// TestSlowDisk: while the file is locked, storing waits for nothing, and drops what does not fit in the queue.
func TestSlowDisk(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	settle(t, s)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, database.Name)+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.Begin() // immediate: it holds the lock
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for i := range maxQueue + 2000 {
		s.RecordExchange(exchange("server-x", i, "GET", "stripe", "api.stripe.com"))
	}
	if took := time.Since(began); took > testkit.Patience/2 {
		t.Errorf("it took %v", took)
	}
	s.mu.Lock()
	dropped := s.dropped
	s.mu.Unlock()
	if dropped == 0 {
		t.Error("nothing was dropped: the queue has no bound")
	}
	_ = tx.Rollback()
	testkit.WaitFor(t, func() bool { return s.SeeAlerts(t.Context(), 0) == nil })
	p, err := s.ListExchanges(t.Context(), operatorapi.ExchangeFilter{Run: "server-x"}, "")
	if err != nil || len(p.Exchanges) == 0 {
		t.Errorf("%d exchanges, %v", len(p.Exchanges), err)
	}
}

// TestMigration: a file of an older version is brought to the new one with what is in it; one of a newer version is
// left as it is.
func TestMigration(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	store(s, "r1", "x", "y")
	settle(t, s)
	shut(t, s)
	newer := append(slices.Clone(database.Migrations), database.Migration{SQLite: `CREATE TABLE added (x); ALTER TABLE run ADD COLUMN extra TEXT`})
	broken := append(slices.Clone(database.Migrations), database.Migration{SQLite: `CREATE TABLE half (x); CREATE TABLE run (x)`})
	s = open(t, dir, func(c *Config) { c.migrations = broken })
	if _, err := s.FindRun(t.Context(), "r1"); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("to version %d", len(broken))) {
		t.Errorf("a migration that fails: %v", err)
	}
	shut(t, s)
	s = open(t, dir, func(c *Config) { c.migrations = newer })
	if _, err := s.FindRun(t.Context(), "r1"); err != nil {
		t.Errorf("after the migration: %v", err)
	}
	var left int
	db, err := s.readConn(t.Context())
	if err == nil {
		err = db.QueryRow(`SELECT count(*) FROM sqlite_master WHERE name IN ('half', 'added')`).Scan(&left)
	}
	if err != nil || left != 1 {
		t.Errorf("half a migration is left: %d %v", left, err)
	}
	shut(t, s)
	before, _ := os.ReadFile(filepath.Join(dir, database.Name))
	s = open(t, dir, nil)
	store(s, "r2", "x", "y")
	if _, err := s.FindRun(t.Context(), "r1"); err == nil || !strings.Contains(err.Error(), "a newer CodeForge wrote it") {
		t.Errorf("a newer file: %v", err)
	} else if strings.Contains(err.Error(), dir) { // a path that there is in this process's view of the file system alone
		t.Errorf("it says where a newer file is: %v", err)
	}
	shut(t, s)
	if after, _ := os.ReadFile(filepath.Join(dir, database.Name)); !bytes.Equal(before, after) {
		t.Error("a newer file was changed")
	}
}

// TestOthersGiveWay: what an MCP server sends without end, and the requests of runs that another mcp-server has, take
// none of the room of runs: the oldest of them go first, and before the file is much too large.
// Promise: bounded-records
func TestOthersGiveWay(t *testing.T) {
	const file = 12 << 20
	s := open(t, t.TempDir(), func(c *Config) { c.limits = storeLimits{24 * time.Hour, 24 * time.Hour, 1 << 30, file} })
	for i := range 20 {
		store(s, fmt.Sprintf("r%02d", i), "// kept\n", "printed")
	}
	most := int64(0)
	for i := range 5 * maxOthers {
		x := exchange(fmt.Sprint("server-", i%2), i, "GET", "slack", "slack.com")
		x.URL += strings.Repeat("a", 600)
		s.RecordExchange(x)
		if i%1000 == 0 {
			settle(t, s)
			st, err := s.Status(t.Context())
			testkit.Must(t, err)
			most = max(most, st.Bytes)
		}
	}
	settle(t, s)
	db, err := openFile(s.cfg.Dir, database.Migrations)
	testkit.Must(t, err)
	defer db.Close()
	s.removeOld(db)
	st, err := s.Status(t.Context())
	testkit.Must(t, err)
	if st.Runs != 20 || st.Exchanges < maxOthers {
		t.Errorf("%d of 20 runs are left, and %d exchanges", st.Runs, st.Exchanges)
	}
	if most > 2*file {
		t.Errorf("the file had %d bytes, %d are allowed", most, file)
	}
}

// TestVersionsGiveWay: versions of many new skills, and alerts of many new runs, take no space from runs.
// Promise: bounded-records
func TestVersionsGiveWay(t *testing.T) {
	const file = 8 << 20
	s := open(t, t.TempDir(), func(c *Config) { c.limits = storeLimits{24 * time.Hour, 24 * time.Hour, 1 << 30, file} })
	for i := range 20 {
		store(s, fmt.Sprintf("r%02d", i), "// kept\n", "printed")
	}
	for i := range 700 { // 22 MB
		source := make([]byte, 16<<10)
		_, _ = rand.Read(source)
		s.RecordSkill(operatorapi.SkillVersion{Skill: fmt.Sprint("s", i), By: operatorapi.ByTool}, hex.EncodeToString(source))
	}
	settle(t, s)
	db, err := openFile(s.cfg.Dir, database.Migrations)
	testkit.Must(t, err)
	defer db.Close()
	_, err = db.conn.ExecContext(t.Context(), `WITH RECURSIVE counter(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM counter WHERE i < $1)
		INSERT INTO alert (number, data, kind, run) SELECT $2 + i, '{"title":"a"}', 'new_pair', 'x' || i FROM counter`,
		maxAlerts+maxAlerts/10, time.Now().UnixMicro())
	testkit.Must(t, err)
	s.removeOld(db)
	st, err := s.Status(t.Context())
	testkit.Must(t, err)
	if st.Runs != 20 {
		t.Errorf("%d of 20 runs are left", st.Runs)
	}
	var versions, size, alerts int64
	testkit.Must(t, db.conn.QueryRowContext(t.Context(), `SELECT count(*), sum(length(source)) FROM skill_version`).Scan(&versions, &size))
	testkit.Must(t, db.conn.QueryRowContext(t.Context(), `SELECT count(*) FROM alert`).Scan(&alerts))
	if versions < 10 || size > file/tidyPart || alerts != maxAlerts {
		t.Errorf("%d versions of %d bytes and %d alerts are left", versions, size, alerts)
	}
}

// TestClockAhead: a clock that is a year ahead for some minutes removes nothing, also where CodeForge starts meanwhile.
// One that stays ahead is believed in the end.
// Promise: nothing-stays
func TestClockAhead(t *testing.T) {
	var ahead atomic.Int64
	dir := t.TempDir()
	start := func() *Store {
		return open(t, dir, func(c *Config) {
			c.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		})
	}
	tidy := func(s *Store) (runs int64, kept bool) {
		t.Helper()
		settle(t, s)
		db, err := openFile(dir, database.Migrations)
		testkit.Must(t, err)
		defer db.Close()
		s.removeOld(db)
		st, err := s.Status(t.Context())
		testkit.Must(t, err)
		d, err := s.FindRun(t.Context(), "raaaa")
		return st.Runs, err == nil && d.Kept
	}
	s := start()
	store(s, "raaaa", "x", "y")
	settle(t, s)
	const year = 365 * 24 * time.Hour
	ahead.Store(int64(year))
	if runs, kept := tidy(s); runs != 1 || !kept {
		t.Errorf("while it runs: %d runs, content %v", runs, kept)
	}
	shut(t, s)
	s = start()
	if runs, kept := tidy(s); runs != 1 || !kept {
		t.Errorf("at a start: %d runs, content %v", runs, kept)
	}
	s.reckoned = s.reckoned.Add(-8 * time.Hour) // as if it had run so long
	if runs, kept := tidy(s); runs != 1 || kept {
		t.Errorf("after eight hours: %d runs, content %v", runs, kept)
	}
	s.reckoned = s.reckoned.Add(-year / catchUp)
	if runs, _ := tidy(s); runs != 0 {
		t.Errorf("in the end: %d runs", runs)
	}
}

// TestRetention: content goes by age and by size, runs by age and by the file's size, the oldest first; what content is
// gone from is still listed, and not found by its words.
// Promise: nothing-stays
func TestRetention(t *testing.T) {
	fill := func(t *testing.T, l storeLimits) *Store {
		s := open(t, t.TempDir(), func(c *Config) { c.limits = l })
		for i := range 30 {
			store(s, fmt.Sprintf("r%02d", i), "// zebrawort\n", strings.Repeat(fmt.Sprint(i, time.Now()), 2000))
		}
		settle(t, s)
		db, err := openFile(s.cfg.Dir, database.Migrations)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		s.removeOld(db)
		return s
	}
	const long = 24 * time.Hour
	for name, c := range map[string]struct {
		limits            storeLimits
		runs, kept, found int
	}{
		"nothing":        {storeLimits{long, long, 1 << 30, 1 << 30}, 30, 30, 30},
		"content by age": {storeLimits{0, long, 1 << 30, 1 << 30}, 30, 0, 0},
		"runs by age":    {storeLimits{0, 0, 1 << 30, 1 << 30}, 0, 0, 0},
		"file by size":   {storeLimits{long, long, 1 << 30, 1}, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := fill(t, c.limits)
			st, err := s.Status(t.Context())
			kept := 0
			for i := range 30 {
				if d, err := s.FindRun(t.Context(), fmt.Sprintf("r%02d", i)); err == nil && d.Kept {
					kept++
				}
			}
			found, ferr := s.ListRuns(t.Context(), operatorapi.RunFilter{Grep: "zebrawort"}, "")
			byURL, uerr := s.ListRuns(t.Context(), operatorapi.RunFilter{Grep: "api.stripe.com"}, "")
			if err := errors.Join(err, ferr, uerr); err != nil || int(st.Runs) != c.runs || kept != c.kept || len(found.Runs) != c.found && c.kept > 0 || len(byURL.Runs) != c.runs {
				t.Errorf("%d runs, %d with content, %d found by words, %d by URL, %v; want %+v", st.Runs, kept, len(found.Runs), len(byURL.Runs), err, c)
			}
		})
	}
	s := fill(t, storeLimits{long, long, 20 << 10, 1 << 30})
	st, err := s.Status(t.Context())
	last, lerr := s.FindRun(t.Context(), "r29")
	first, ferr := s.FindRun(t.Context(), "r00")
	if err := errors.Join(err, lerr, ferr); err != nil || st.Content > 20<<10 || !last.Kept || first.Kept || st.Runs != 30 {
		t.Errorf("by size: %+v, first %v, last %v, %v", st, first.Kept, last.Kept, err)
	}
}

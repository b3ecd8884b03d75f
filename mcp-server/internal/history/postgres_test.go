package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// openDatabase, unless nil, has open use Postgres in place of a file.
var openDatabase func(testing.TB) *database.DB

// connect opens a Postgres until the end of the test.
func connect(t testing.TB, url string) *database.DB {
	t.Helper()
	db, err := database.OpenPostgres(secret.New(url))
	testkit.Must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// replica opens a store on a Postgres.
func replica(t *testing.T, p *testkit.Postgres, change func(*Config)) *Store {
	t.Helper()
	db := connect(t, p.URL())
	return open(t, "", func(c *Config) {
		c.Database = db
		if change != nil {
			change(c)
		}
	})
}

// TestOnPostgres: what holds of a file holds of Postgres.
// Promise: nothing-stays
func TestOnPostgres(t *testing.T) {
	p := testkit.NewPostgres(t)
	n := 0
	for name, test := range map[string]func(*testing.T){
		"without exit": TestEndedWithoutExit, "pages": TestPages, "ledger": TestLedger, "clean": TestClean,
		"skills": TestSkills, "many exchanges": TestManyExchanges, "follow": TestFollow, "alerts": TestAlertsOfOneCause,
		"frozen": TestFrozen, "files": TestFiles, "others stay": TestOthersStay,
	} {
		n++
		name := fmt.Sprint(name)
		openDatabase = func(tb testing.TB) *database.DB { return connect(tb, p.URL()) }
		ok := t.Run(name, test)
		openDatabase = nil
		if !ok {
			return
		}
		p.Query("DROP SCHEMA IF EXISTS codeforge CASCADE")
	}
}

// awaitRun waits until a store has a run in a state.
func awaitRun(t *testing.T, s *Store, id, state string) (d operatorapi.Detail) {
	t.Helper()
	testkit.WaitFor(t, func() bool {
		var err error
		d, err = s.FindRun(t.Context(), id)
		return err == nil && d.State == state
	})
	return d
}

// TestReplicas: a follower at another replica sees a run within 200 ms of its start, and its end; a search there finds
// it by words, and gives its files; removing it removes it everywhere.
// Promise: shared-runs
func TestReplicas(t *testing.T) {
	p := testkit.NewPostgres(t)
	var all []*Store
	for range 3 {
		all = append(all, replica(t, p, nil))
	}
	for _, s := range all {
		<-s.opened
	}
	testkit.WaitFor(t, func() bool { return p.Query("SELECT count(*) FROM replica") == "3" })
	numbers := map[int64]bool{}
	for _, s := range all {
		testkit.WaitFor(t, func() bool { return s.replica.Load() < maxReplicas/2 })
		numbers[s.nextNumber()%maxReplicas] = true
	}
	if len(numbers) != 3 {
		t.Fatalf("two replicas give the same numbers: %v", numbers)
	}
	testkit.WaitFor(t, func() bool { // until the others listen
		cursor := all[1].CurrentCursor()
		r := all[0].BeginRecording(operatorapi.Run{ID: fmt.Sprint("warm", time.Now().UnixNano())}, "1")
		r.RecordEnd(RunEnd{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := all[1].Follow(ctx, cursor)
		return err == nil
	})
	var delays []time.Duration
	for i := range 20 {
		id := fmt.Sprint("seen", i)
		cursors := []string{all[1].CurrentCursor(), all[2].CurrentCursor()}
		began := time.Now()
		r := all[0].BeginRecording(operatorapi.Run{ID: id}, "// walrus-number "+id+"\x00\xff\nfetch('https://api.example.com/v1/walrus')")
		for k, other := range all[1:] {
			for seen := false; !seen; {
				events, err := other.Follow(t.Context(), cursors[k])
				testkit.Must(t, err)
				for _, e := range events {
					cursors[k] = e.Cursor
					seen = seen || e.RunID == id
				}
			}
		}
		delays = append(delays, time.Since(began))
		r.RecordOutput("printed\x00 it", "")
		r.AddFile("report.csv", []byte("a,"+id))
		r.RecordEnd(RunEnd{})
	}
	// Half of the runs must be seen in time: a busy machine delays single ones. The poll alone would take 2 s.
	slices.Sort(delays)
	t.Logf("a run is seen elsewhere after %v at the median, %v at most", delays[10], delays[19])
	if delays[10] > 200*time.Millisecond {
		t.Errorf("half of the runs were seen after more than %v", delays[10])
	}
	d := awaitRun(t, all[2], "seen7", operatorapi.Failed)
	if !d.Kept || !strings.Contains(d.Output.Head[0].Text, "printed") {
		t.Errorf("%+v", d)
	}
	if f, err := all[2].ReadRunFile(t.Context(), "seen7", "report.csv", nil); err != nil || string(f.Data) != "a,seen7" || len(d.Files) != 1 {
		t.Errorf("its file: %q of %v, %v", f.Data, d.Files, err)
	}
	for _, words := range []string{"walrus-num", "example.com/v1", "seen7 printed"} {
		if found, err := all[1].ListRuns(t.Context(), operatorapi.RunFilter{Grep: words}, ""); err != nil || len(found.Runs) == 0 {
			t.Errorf("%q finds nothing: %v", words, err)
		}
	}
	if n, err := all[1].RemoveRuns(t.Context(), operatorapi.RunFilter{Run: "seen7"}); err != nil || n != 1 {
		t.Errorf("%d %v", n, err)
	}
	if _, err := all[0].FindRun(t.Context(), "seen7"); !errors.Is(err, ErrUnknown) {
		t.Errorf("removed, and there: %v", err)
	}
}

// TestReplicaKilled: of a replica that is killed, the runs whose ends it had stored are whole, and the others are marked
// as lost at the other replicas.
// Promise: shared-runs
func TestReplicaKilled(t *testing.T) {
	p := testkit.NewPostgres(t)
	s := replica(t, p, func(c *Config) { c.lost = 2 * time.Second })
	cmd, out := writer(t, p.URL())
	testkit.WaitFor(t, func() bool { return strings.Count(out.String(), "\n") > 20 })
	testkit.Must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	stored := strings.Fields(out.String())
	p.Query("INSERT INTO run SELECT number - 64, 'inflight', 'running', 0, '', '', '', " +
		"json_build_object('number', number - 64, 'run', 'inflight', 'state', 'running'), '[]' FROM run ORDER BY number LIMIT 1")
	awaitRun(t, s, "inflight", operatorapi.Lost)
	for _, id := range stored {
		if d, err := s.FindRun(t.Context(), id); err != nil || d.State == operatorapi.Lost || !d.Kept {
			t.Errorf("%s: %+v %v", id, d.Run, err)
		}
	}
	if n := p.Query("SELECT count(*) FROM replica"); n != "1" {
		t.Errorf("%s replicas", n)
	}
}

// TestReplicaReplaced: a replica whose number another one got while it was cut off takes a new one, and leaves that of
// the other alone when it ends.
// Promise: shared-runs
func TestReplicaReplaced(t *testing.T) {
	p := testkit.NewPostgres(t)
	registered := func(n int) {
		testkit.WaitFor(t, func() bool { return p.Query("SELECT count(*) FROM replica") == fmt.Sprint(n) })
	}
	one := replica(t, p, nil)
	store(one, "r1", "x", "y")
	awaitRun(t, one, "r1", operatorapi.OK) // the tables are there
	registered(1)
	p.Query("DELETE FROM replica")
	two := replica(t, p, nil)
	registered(2) // one notices with its next sign of life
	if one.replica.Load() == two.replica.Load() {
		t.Error("two replicas have one number")
	}
	p.Query("UPDATE replica SET number = %d, process = 'a third' WHERE number = %d", 20, one.replica.Load())
	one.replica.Store(20)
	shut(t, one)
	registered(2)
}

// TestPostgresAway: while Postgres is stopped, storing waits for nothing and the status names the problem, without the
// password, the user or the address. Afterwards the history has everything.
// Promise: shared-runs
func TestPostgresAway(t *testing.T) {
	p := testkit.NewPostgres(t)
	s := replica(t, p, nil)
	store(s, "r1", "x", "y")
	awaitRun(t, s, "r1", operatorapi.OK)
	p.Stop()
	began := time.Now()
	const runs = 300
	for i := range runs {
		store(s, fmt.Sprintf("away%04d", i), "x", "y")
	}
	if took := time.Since(began); took > testkit.Patience/2 {
		t.Errorf("runs waited for the database: %v", took)
	}
	var st operatorapi.Status
	testkit.WaitFor(t, func() bool {
		st, _ = s.Status(t.Context())
		return st.Problem != ""
	})
	for _, secret := range []string{p.Password, p.Address, "codeforge", "127.0.0.1"} {
		if strings.Contains(st.Problem, secret) {
			t.Errorf("the problem names %s: %s", secret, st.Problem)
		}
	}
	if st.Waiting == 0 {
		t.Errorf("%+v", st)
	}
	p.Start()
	began = time.Now()
	awaitRun(t, s, fmt.Sprintf("away%04d", runs-1), operatorapi.OK)
	t.Logf("caught up with %d runs after %v", runs, time.Since(began))
	st, err := s.Status(t.Context())
	if err != nil || st.Problem != "" || st.Runs != runs+1 || st.Dropped != 0 {
		t.Errorf("%+v %v", st, err)
	}
	l, err := s.SumTraffic(t.Context(), time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	if err != nil || l.Runs != runs+1 {
		t.Errorf("%d runs in the ledger, %v", l.Runs, err)
	}
}

// TestCheckpoints: Postgres has each checkpoint once, and refuses to change or remove one.
// Promise: shared-runs
func TestCheckpoints(t *testing.T) {
	p := testkit.NewPostgres(t)
	s := replica(t, p, nil)
	for i := range 3 {
		r := s.BeginRecording(operatorapi.Run{ID: fmt.Sprint("r", i)}, "x")
		e := RunEnd{}
		e.Receipt.Audit = fmt.Sprint("head", i/2)
		r.RecordEnd(e)
	}
	settle(t, s)
	if got := p.Query("SELECT string_agg(head, ' ' ORDER BY head) FROM checkpoint"); got != "head0 head1" {
		t.Errorf("%s", got)
	}
	for _, change := range []string{`DELETE FROM checkpoint`, `UPDATE checkpoint SET head = ''`, `TRUNCATE checkpoint`} {
		if _, err := s.cfg.Database.ExecContext(t.Context(), change); err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s: %v", change, err)
		}
	}
}

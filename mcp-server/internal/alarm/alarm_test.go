package alarm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog/tokenfile"
	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/alarm"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/tenant"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestBook: an alarm freezes its session until it is freed, also across a restart, and is told once.
// Promise: canaries
func TestBook(t *testing.T) {
	dir, log := t.TempDir(), logline.New(t.Output(), "text", nil)
	var told []operatorapi.Alarm
	open := func() *alarm.Set {
		b, err := alarm.Open(dir, nil, func(a operatorapi.Alarm) { told = append(told, a) }, log)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	b := open()
	mine, other := "session 1", "session 2"
	a := proxyapi.Alarm{At: time.Now().UTC(), Run: "r1", Kind: proxyapi.AlarmCanary, In: "body", Host: "thief.test"}
	for range 2 { // by the event, and by the receipt
		b.Add(a, &mine, "client 1")
	}
	b.Add(proxyapi.Alarm{At: time.Now().UTC(), Run: "server-x", Kind: proxyapi.AlarmCredential, In: "query"}, nil, "")
	if len(told) != 2 || len(b.List()) != 2 || b.List()[1].Client != "client 1" {
		t.Errorf("told %+v, kept %+v", told, b.List())
	}
	for _, b := range []*alarm.Set{b, open()} {
		if _, ok := b.FreezingAlarm(mine); !ok {
			t.Error("the session is not frozen")
		}
		for _, free := range []string{other, "", "server-x"} {
			if _, ok := b.FreezingAlarm(free); ok {
				t.Errorf("%q is frozen", free)
			}
		}
		if err := b.Unfreeze(mine); !errors.Is(err, operatorapi.ErrNotFrozen) {
			t.Errorf("freed by its id: %v", err)
		}
	}
	if err := b.Unfreeze(alarm.SessionDigest(mine)); err != nil {
		t.Error(err)
	}
	if _, ok := open().FreezingAlarm(mine); ok || len(open().List()) != 2 {
		t.Error("after it was freed")
	}
	info, err := os.Stat(filepath.Join(dir, ".alarms.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
}

// TestNotStored: what could not be stored is stored when a session next asks whether it is frozen.
func TestNotStored(t *testing.T) {
	dir, log := filepath.Join(t.TempDir(), "gone"), logline.New(t.Output(), "text", nil)
	b, err := alarm.Open(dir, nil, nil, log)
	testkit.Must(t, err)
	session := "session 1"
	b.Add(proxyapi.Alarm{At: time.Now().UTC(), Run: "r1", Kind: proxyapi.AlarmCanary}, &session, "client 1")
	testkit.Must(t, os.Mkdir(dir, 0o700))
	b.FreezingAlarm("another")
	again, err := alarm.Open(dir, nil, nil, log)
	testkit.Must(t, err)
	if _, ok := again.FreezingAlarm(session); !ok {
		t.Error("a restart has forgotten it")
	}
}

// TestBesidePins: the accepted tools of a server called alarms are another file of the same folder.
// Promise: canaries
func TestBesidePins(t *testing.T) {
	const pins = `{"server":"[]","tools":{"a":{}}}`
	dir, log := t.TempDir(), logline.New(t.Output(), "text", nil)
	path := filepath.Join(dir, "alarms.json") // as broker names the tools of a server
	if err := os.WriteFile(path, []byte(pins), 0o600); err != nil {
		t.Fatal(err)
	}
	session := "s"
	for _, frozen := range []bool{false, true} {
		b, err := alarm.Open(dir, nil, nil, log)
		if _, ok := b.FreezingAlarm(session); ok != frozen || err != nil {
			t.Errorf("frozen %t, %v, want %t", ok, err, frozen)
		}
		b.Add(proxyapi.Alarm{Run: "r"}, &session, "")
		if text, _ := os.ReadFile(path); string(text) != pins {
			t.Errorf("the tools of the server are %q", text)
		}
	}
}

// TestMany: alarms are bounded, and none of a frozen session is dropped.
func TestMany(t *testing.T) {
	b, err := alarm.Open("", nil, nil, logline.New(t.Output(), "text", nil))
	if err != nil {
		t.Fatal(err)
	}
	mine := "frozen"
	b.Add(proxyapi.Alarm{Run: "first"}, &mine, "")
	for i := range 500 {
		b.Add(proxyapi.Alarm{Run: fmt.Sprint("r", i)}, nil, "")
	}
	if _, ok := b.FreezingAlarm(mine); !ok || len(b.List()) != 100 || b.List()[0].Run != "r499" {
		t.Errorf("%d kept, frozen: %t", len(b.List()), ok)
	}
}

// TestManyFrozen: a frozen session takes the room of one alarm, and when there are too many, every session is frozen
// until one of them is freed.
func TestManyFrozen(t *testing.T) {
	b, err := alarm.Open("", nil, nil, logline.New(t.Output(), "text", nil))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	add := func(session string, n int) {
		b.Add(proxyapi.Alarm{Run: session, At: at.Add(time.Duration(n))}, &session, "")
	}
	for i := range 300 {
		add("again", i)
	}
	if n := len(b.List()); n != 100 {
		t.Errorf("one session takes the room of %d", n)
	}
	for i := range 999 {
		if _, ok := b.FreezingAlarm("innocent"); ok {
			t.Fatalf("frozen with the others after %d", i)
		}
		add(fmt.Sprint("s", i), 0)
	}
	if _, ok := b.FreezingAlarm("innocent"); !ok {
		t.Error("a thousand are frozen, and nothing else is")
	}
	if err := b.Unfreeze(alarm.SessionDigest("s7")); err != nil {
		t.Fatal(err)
	}
	_, innocent := b.FreezingAlarm("innocent")
	_, first := b.FreezingAlarm("again")
	if _, ok := b.FreezingAlarm("s7"); ok || innocent || !first {
		t.Errorf("after one was freed: it %t, one that never was %t, the first %t", ok, innocent, first)
	}
}

// TestFrozenOfTenant: what a tenant's many alarms freeze is that tenant's, and no other client learns of them.
// Promise: tenant-shares
func TestFrozenOfTenant(t *testing.T) {
	b, err := alarm.Open("", nil, nil, logline.New(t.Output(), "text", nil))
	if err != nil {
		t.Fatal(err)
	}
	of := func(name, id string) string {
		return (&tenant.Tenant{Tenant: tokenfile.Tenant{Name: name}}).SessionName(id)
	}
	for i := range 1000 {
		session := of("mallory", fmt.Sprint(i))
		b.Add(proxyapi.Alarm{Run: session, Tenant: "mallory", Host: "mallory.test"}, &session, "")
	}
	if _, ok := b.FreezingAlarm(of("mallory", "new")); !ok {
		t.Error("a tenant goes on after a thousand alarms")
	}
	for _, session := range []string{of("alice", "s"), "the operator's"} {
		if a, ok := b.FreezingAlarm(session); ok {
			t.Errorf("%q is frozen, and learns of %s", session, a.Host)
		}
	}
}

// TestDamaged: a book that cannot be read frees nobody: nothing starts, and it is said what to do.
func TestDamaged(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ".alarms.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := alarm.Open(dir, nil, nil, logline.New(t.Output(), "text", nil)); err == nil {
		t.Error("it is opened")
	}
}

// TestShared: a session that an alarm froze at one replica is frozen at all, also at one that starts later, until one
// of them frees it. A replica that has never read the list lets no session run.
// Promise: shared-runs
func TestShared(t *testing.T) {
	p := testkit.NewPostgres(t)
	openIn := func(dir string) *alarm.Set {
		db, err := database.OpenPostgres(secret.New(p.URL()))
		testkit.Must(t, err)
		_ = db.Migrate(t.Context(), database.Migrations) // it fails if Postgres is away
		b, err := alarm.Open(dir, db, nil, logline.New(t.Output(), "text", nil))
		testkit.Must(t, err)
		t.Cleanup(func() { _ = db.Close() })
		follow(t, b)
		return b
	}
	open := func() *alarm.Set { return openIn(t.TempDir()) }
	frozen := func(b *alarm.Set) func() bool {
		return func() bool { _, ok := b.FreezingAlarm("session"); return ok }
	}
	one, two, session := open(), open(), "session"
	if frozen(two)() {
		t.Fatal("it is frozen before the alarm")
	}
	one.Add(proxyapi.Alarm{At: time.Now().UTC(), Run: "r1"}, &session, "client")
	two.Add(proxyapi.Alarm{At: time.Now().UTC(), Run: "r2"}, nil, "")
	began := time.Now()
	testkit.WaitFor(t, frozen(two))
	t.Logf("frozen elsewhere after %v", time.Since(began))
	testkit.WaitFor(t, func() bool { return len(one.List()) == 2 && len(two.List()) == 2 })
	if three := open(); !frozen(three)() {
		t.Error("at a later replica it is not frozen")
	}
	p.Stop()
	other := "other"
	two.Add(proxyapi.Alarm{At: time.Now().UTC(), Run: "r3"}, &other, "client")
	if !frozen(open())() {
		t.Error("a replica that knows nothing lets sessions run")
	}
	old := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(old, alarm.File), []byte("[]"), 0o600))
	if !frozen(openIn(old))() {
		t.Error("a replica with a file from before the alarm lets the session run")
	}
	p.Start()
	testkit.WaitFor(t, func() bool { _, ok := one.FreezingAlarm(other); return ok })
	testkit.Must(t, two.Unfreeze(alarm.SessionDigest(session)))
	testkit.WaitFor(t, func() bool { return !frozen(one)() })
}

// TestFollow calls changed if another replica has changed the book. Without Postgres it returns at once.
func TestFollow(t *testing.T) {
	var none *alarm.Set
	none.Follow(t.Context(), nil)
	alone, err := alarm.Open(t.TempDir(), nil, nil, logline.New(t.Output(), "text", nil))
	testkit.Must(t, err)
	alone.Follow(t.Context(), nil)
	p := testkit.NewPostgres(t)
	open := func(changed func()) *alarm.Set {
		db, err := database.OpenPostgres(secret.New(p.URL()))
		testkit.Must(t, err)
		t.Cleanup(func() { _ = db.Close() })
		testkit.Must(t, db.Migrate(t.Context(), database.Migrations))
		b, err := alarm.Open("", db, nil, logline.New(t.Output(), "text", nil))
		testkit.Must(t, err)
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { defer close(ended); b.Follow(ctx, changed) }()
		t.Cleanup(func() { stop(); <-ended })
		return b
	}
	var calls atomic.Int32
	one, session := open(func() {}), "session"
	two := open(func() { calls.Add(1) })
	one.Add(proxyapi.Alarm{At: time.Now().UTC(), Run: "r1"}, &session, "client")
	testkit.WaitFor(t, func() bool { return calls.Load() > 0 && len(two.List()) == 1 })
}

// TestSeenByOthers: several replicas learn of one alarm from a shared proxy, and only one of them knows the session. All
// freeze it, whichever replica is first.
// Promise: shared-runs
func TestSeenByOthers(t *testing.T) {
	p := testkit.NewPostgres(t)
	var all []*alarm.Set
	for range 2 {
		db, err := database.OpenPostgres(secret.New(p.URL()))
		testkit.Must(t, err)
		t.Cleanup(func() { _ = db.Close() })
		testkit.Must(t, db.Migrate(t.Context(), database.Migrations))
		b, err := alarm.Open(t.TempDir(), db, nil, logline.New(t.Output(), "text", nil))
		testkit.Must(t, err)
		follow(t, b)
		all = append(all, b)
	}
	owner, other := all[0], all[1]
	isFrozen := func(b *alarm.Set, session string) bool { _, is := b.FreezingAlarm(session); return is }
	for i, waits := range []func(run string){
		func(string) {},
		func(run string) { // until the owner has it from Postgres
			testkit.WaitFor(t, func() bool { return len(owner.List()) == 2 && owner.List()[0].Run == run })
		},
	} {
		session, a := fmt.Sprint("s", i), proxyapi.Alarm{At: time.Now().UTC(), Run: fmt.Sprint("r", i)}
		other.Add(a, nil, "")
		waits(a.Run)
		owner.Add(a, &session, "client")
		testkit.WaitFor(t, func() bool { return isFrozen(other, session) })
		if !isFrozen(owner, session) || len(owner.List()) != i+1 || owner.List()[0].Client != "client" {
			t.Errorf("%d: %+v", i, owner.List())
		}
		testkit.Must(t, owner.Unfreeze(alarm.SessionDigest(session)))
		owner.Add(a, &session, "client") // by the receipt
		if isFrozen(owner, session) {
			t.Errorf("%d: a known alarm freezes the session again", i)
		}
	}
}

// TestOnlyInFile: a session that only the file has as frozen is frozen at all replicas: from the time before Postgres,
// or because the process ended while Postgres was away. One that another replica has freed stays free.
// Promise: shared-runs
func TestOnlyInFile(t *testing.T) {
	p := testkit.NewPostgres(t)
	open := func(dir string, shares bool) (*alarm.Set, *database.DB) {
		var db *database.DB
		if shares {
			var err error
			db, err = database.OpenPostgres(secret.New(p.URL()))
			testkit.Must(t, err)
			t.Cleanup(func() { _ = db.Close() })
			_ = db.Migrate(t.Context(), database.Migrations) // it fails if Postgres is away
		}
		b, err := alarm.Open(dir, db, nil, logline.New(t.Output(), "text", nil))
		testkit.Must(t, err)
		return b, db
	}
	frozen := func(b *alarm.Set, session string) bool { _, is := b.FreezingAlarm(session); return is }
	freeze := func(b *alarm.Set, run, session string) {
		b.Add(proxyapi.Alarm{At: time.Now().UTC(), Run: run}, &session, "client")
	}
	dir := t.TempDir()
	alone, _ := open(dir, false)
	freeze(alone, "r1", "before")
	if one, _ := open(dir, true); !frozen(one, "before") {
		t.Error("with the first use of Postgres it is free")
	}
	if two, _ := open(t.TempDir(), true); !frozen(two, "before") {
		t.Error("at another replica it is free")
	}
	p.Stop()
	away, db := open(dir, true)
	freeze(away, "r2", "away")
	_ = db.Close()
	p.Start()
	if one, _ := open(dir, true); !frozen(one, "before") || !frozen(one, "away") {
		t.Error("after the end of the process it is free")
	}
	copied, file := t.TempDir(), filepath.Join(dir, alarm.File)
	text, err := os.ReadFile(file)
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(filepath.Join(copied, alarm.File), text, 0o600))
	freer, _ := open(dir, true)
	testkit.Must(t, freer.Unfreeze(alarm.SessionDigest("away")))
	follow(t, freer)
	testkit.WaitFor(t, func() bool { other, _ := open(t.TempDir(), true); return !frozen(other, "away") })
	if late, _ := open(copied, true); frozen(late, "away") || !frozen(late, "before") {
		t.Error("a replica that comes back freezes what another has freed, or frees the rest")
	}
}

// follow keeps a book and Postgres alike until the end of the test.
func follow(t *testing.T, b *alarm.Set) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); b.Follow(ctx, func() {}) }()
	t.Cleanup(func() { stop(); <-ended })
}

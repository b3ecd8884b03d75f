package approval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/costtest"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
)

// sent is a Sender that notes what it is told to send.
type sent struct {
	mu     sync.Mutex
	bodies []string
	wait   chan struct{}
	status func(Step) int
}

func (s *sent) Send(_ context.Context, step Step, isRead bool, _ int) (approvalapi.Reply, []byte) {
	if isRead {
		return approvalapi.Reply{Status: 200}, []byte("{}")
	}
	if s.wait != nil {
		<-s.wait
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bodies = append(s.bodies, step.Shown.Body)
	if s.status != nil {
		return approvalapi.Reply{Status: s.status(step)}, nil
	}
	return approvalapi.Reply{Status: 200}, []byte("ok")
}

func (s *sent) Close() string { return "" }

func (s *sent) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.bodies)
}

func newBook(t *testing.T, s *sent) *Store {
	b := New(Config{Open: func(_, _, _, _ string, _ []string) Sender { return s }})
	t.Cleanup(b.Close)
	return b
}

// write is a step.
func write(t testing.TB, method, address, body string) Step {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	h, err := catalog.ParseHost(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	return Step{Host: h, TLS: true, Method: method, URL: u, Header: http.Header{}, Shown: approvalapi.Step{Method: method, Body: body, APIs: []string{"demo"}}}
}

// planOf is a plan with these bodies.
func planOf(t testing.TB, b *Store, bodies ...string) *approvalapi.Plan {
	t.Helper()
	return planBy(t, b, "", bodies...)
}

// planBy is a tenant's plan with these bodies.
func planBy(t testing.TB, b *Store, tenant string, bodies ...string) *approvalapi.Plan {
	t.Helper()
	d := b.NewDraft("run", tenant, nil)
	for _, body := range bodies {
		if _, err := d.AddStep(write(t, "POST", "https://demo.test/x", body), "v1"); err != nil {
			t.Fatal(err)
		}
	}
	return d.Seal()
}

func settled(t *testing.T, b *Store, id string) approvalapi.Plan {
	t.Helper()
	var p approvalapi.Plan
	testkit.WaitFor(t, func() bool {
		var err error
		p, err = b.GetPlan(id)
		return err != nil || p.State != approvalapi.StateRunning
	})
	return p
}

// TestPlanOnce: of many approvals at once, one counts, and each step is sent once.
// Promise: a-plan-is-what-was-shown
func TestPlanOnce(t *testing.T) {
	s := &sent{}
	b := newBook(t, s)
	p := planOf(t, b, "a", "b", "c")
	var yes atomic.Int32
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if _, err := b.DecidePlan(p.ID, approvalapi.Answer{Approve: true, Digest: p.Digest}, true); err == nil {
				yes.Add(1)
			}
		})
	}
	all.Wait()
	settled(t, b, p.ID)
	if yes.Load() != 1 || !slices.Equal(s.all(), []string{"a", "b", "c"}) {
		t.Errorf("%d approvals, sent %q", yes.Load(), s.all())
	}
	if _, err := b.DecidePlan(p.ID, approvalapi.Answer{Approve: true, Digest: p.Digest}, true); err == nil {
		t.Error("after it was sent")
	}
}

// TestBinding: an approval is for one plan as it was shown, under its catalog, for its time.
// Promise: a-plan-is-what-was-shown
func TestBinding(t *testing.T) {
	now := time.Now()
	s := &sent{}
	b := newBook(t, s)
	b.conf.Now = func() time.Time { return now }
	p, other := planOf(t, b, "a", "b"), planOf(t, b, "a", "b")
	if p.Digest == other.Digest {
		t.Error("two plans have one digest")
	}
	for name, a := range map[string]approvalapi.Answer{
		"of another plan": {Approve: true, Digest: other.Digest},
		"of none":         {Approve: true},
		"a step too many": {Approve: true, Digest: p.Digest, Steps: []int{3}},
		"no step":         {Approve: true, Digest: p.Digest, Steps: []int{0}},
	} {
		if _, err := b.DecidePlan(p.ID, a, true); err == nil {
			t.Errorf("%s: approved", name)
		}
	}
	b.findEntry(&b.plans, p.ID).plan.steps[1].Shown.Body = "c" // nobody can, and it would be found
	if _, err := b.DecidePlan(p.ID, approvalapi.Answer{Approve: true, Digest: p.Digest}, true); err == nil {
		t.Error("changed steps are approved")
	}
	b.DropStale(nil)
	if _, err := b.DecidePlan(other.ID, approvalapi.Answer{Approve: true, Digest: other.Digest}, true); err == nil || !strings.Contains(err.Error(), "configuration") {
		t.Errorf("under another catalog: %v", err)
	}
	late := planOf(t, b, "a")
	now = now.Add(16 * time.Minute)
	if _, err := b.DecidePlan(late.ID, approvalapi.Answer{Approve: true, Digest: late.Digest}, true); err == nil || len(b.ListPlans()) != 0 {
		t.Errorf("too late: %v", err)
	}
	if got := s.all(); len(got) != 0 {
		t.Errorf("sent %q", got)
	}
}

// TestDigest: everything that decides what is sent is in the digest.
// Promise: a-plan-is-what-was-shown
func TestDigest(t *testing.T) {
	base := func() Step { return write(t, "POST", "https://demo.test/x?a=1", "b") }
	seen := map[string]string{}
	hashed := func(id, run, version string, steps ...Step) string {
		p := plan{Plan: approvalapi.Plan{ID: id, Run: run}, version: version, steps: steps}
		return p.hashSteps()
	}
	for name, change := range map[string]func(*Step){
		"nothing": func(*Step) {}, "method": func(s *Step) { s.Method = "PUT" }, "query": func(s *Step) { s.URL.RawQuery = "a=2" },
		"path": func(s *Step) { s.URL.Path = "/y" }, "header": func(s *Step) { s.Header.Set("A", "b") }, "body": func(s *Step) { s.Shown.Body = "c" },
		"host": func(s *Step) { s.Host, _ = catalog.ParseHost("other.test") }, "tls": func(s *Step) { s.TLS = false },
		"server": func(s *Step) { s.Shown.Server = "x" }, "tool": func(s *Step) { s.Shown.Tool = "x" }, "session": func(s *Step) { s.Session = "x" },
		"two headers": func(s *Step) { s.Header["A"] = []string{"b", "c"} },
	} {
		s := base()
		change(&s)
		sum := hashed("id", "run", "v", s)
		if old, has := seen[sum]; has {
			t.Errorf("%s and %s have one digest", name, old)
		}
		seen[sum] = name
	}
	for name, sum := range map[string]string{"id": hashed("x", "run", "v", base()), "run": hashed("id", "x", "v", base()), "version": hashed("id", "run", "x", base()), "two": hashed("id", "run", "v", base(), base())} {
		if old, has := seen[sum]; has {
			t.Errorf("%s and %s have one digest", name, old)
		}
	}
}

// TestStops: steps are sent in order until one has no success, and those that were chosen.
// Promise: a-plan-is-what-was-shown
func TestStops(t *testing.T) {
	for _, c := range []struct {
		steps []int
		fails string
		want  string
		state approvalapi.State
	}{
		{nil, "", "abcd", approvalapi.StateDone},
		{nil, "c", "abc", approvalapi.StateStopped},
		{[]int{4, 2, 2}, "", "bd", approvalapi.StateDone},
		{[]int{2, 4}, "a", "bd", approvalapi.StateDone},
		{[]int{1, 4}, "a", "a", approvalapi.StateStopped},
	} {
		for _, status := range []int{301, 404, 500} {
			s := &sent{status: func(s Step) int {
				if s.Shown.Body == c.fails {
					return status
				}
				return 204
			}}
			b := newBook(t, s)
			p := planOf(t, b, "a", "b", "c", "d")
			if _, err := b.DecidePlan(p.ID, approvalapi.Answer{Approve: true, Digest: p.Digest, Steps: c.steps}, true); err != nil {
				t.Fatal(err)
			}
			if got := settled(t, b, p.ID); got.State != c.state || strings.Join(s.all(), "") != c.want {
				t.Errorf("%v, %q fails with %d: %s, sent %q", c.steps, c.fails, status, got.State, s.all())
			}
		}
	}
}

// readSender answers reads with a body.
type readSender struct {
	sent
	body []byte
}

func (s *readSender) Send(ctx context.Context, step Step, isRead bool, most int) (approvalapi.Reply, []byte) {
	if isRead && most == MaxRead {
		return approvalapi.Reply{Status: 200}, s.body
	}
	return s.sent.Send(ctx, step, isRead, most)
}

// TestTruncatedRead: an answer that fills the limit may be cut off, so the object counts as changed.
// Promise: a-plan-is-what-was-shown
func TestTruncatedRead(t *testing.T) {
	for size, want := range map[int]string{MaxRead - 1: "", MaxRead: CodeDrift} {
		body := []byte(`{"a":1}` + strings.Repeat(" ", size-len(`{"a":1}`)))
		step := write(t, "PATCH", "https://demo.test/x", `{"a":2}`)
		step.guard = &readGuard{read: write(t, "GET", "https://demo.test/x", ""), before: readObject([]byte(`{"a":1}`)), about: []string{"a"}}
		s := &readSender{body: body}
		if r := sendChecked(t.Context(), s, step, false); r.Code != want || (len(s.all()) == 1) != (want == "") {
			t.Errorf("%d bytes: %q, %q, sent %q", size, r.Code, r.Why, s.all())
		}
	}
}

// TestFormatCount: only one thing has no plural.
func TestFormatCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 writes", 1: "1 write", 2: "2 writes"} {
		if got := formatCount(n, "write"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestReadOfPlanned: a read that names the object of a step ends the plan, because writes after it would depend on the
// step's answer.
// Promise: a-plan-is-what-was-shown
func TestReadOfPlanned(t *testing.T) {
	for address, ends := range map[string]bool{
		"https://demo.test/jobs/planned:1": true, "https://demo.test/jobs/planned%3A1": true, "https://demo.test/jobs?id=planned%3A1": true,
		"https://demo.test/jobs/1": false, "https://demo.test/jobs?planned=1": false, "https://demo.test/jobs/unplanned:1": false,
	} {
		d := newBook(t, &sent{}).NewDraft("run", "", nil)
		d.NoteRead(write(t, "GET", address, ""), nil)
		if _, err := d.AddStep(write(t, "POST", "https://demo.test/jobs", "{}"), "v1"); err != nil {
			t.Fatalf("a read before the first step: %v", err)
		}
		d.NoteRead(write(t, "GET", address, ""), nil)
		_, err := d.AddStep(write(t, "POST", "https://demo.test/notes", "{}"), "v1")
		picture := strings.Join(d.Seal().Picture, "\n")
		if (err != nil) != ends || strings.Contains(picture, " A read depends on what step 1 answers; approve 1, or run without dry_run and be asked.") != ends {
			t.Errorf("%s: %v\n%s", address, err, picture)
		}
	}
}

// TestSealed: what a run still does after its end changes no plan.
// Promise: a-plan-is-what-was-shown
func TestSealed(t *testing.T) {
	b := newBook(t, &sent{})
	d := b.NewDraft("run", "", nil)
	if _, err := d.AddStep(write(t, "POST", "https://demo.test/x", "a"), "v1"); err != nil {
		t.Fatal(err)
	}
	p := d.Seal()
	before, err := b.GetPlan(p.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.AddStep(write(t, "POST", "https://demo.test/x", "b"), "v1"); err == nil {
		t.Error("a step is added")
	}
	d.NoteRead(write(t, "GET", "https://demo.test/planned:1", ""), []byte("{}"))
	d.SetIncomplete("It failed.")
	d.Discard()
	if after, err := b.GetPlan(p.ID); err != nil || !reflect.DeepEqual(before, after) || d.Seal() != nil {
		t.Errorf("%v: %+v became %+v", err, before, after)
	}
}

// TestBounds: a plan, and all of them, have bounds; what is over gives way, and what waits for a person does not.
// Promise: a-plan-is-what-was-shown
func TestBounds(t *testing.T) {
	s := &sent{}
	b := newBook(t, s)
	if _, err := b.NewDraft("r", "", nil).AddStep(write(t, "POST", "https://demo.test/", strings.Repeat("a", MaxBody+1)), "v1"); !errors.Is(err, ErrUnreadable) {
		t.Errorf("a long body: %v", err)
	}
	if _, err := b.NewDraft("r", "", nil).AddStep(write(t, "POST", "https://demo.test/", "\xff"), "v1"); !errors.Is(err, ErrUnreadable) {
		t.Errorf("no text: %v", err)
	}
	d := b.NewDraft("r", "", nil)
	var err error
	n := 0
	for ; err == nil; n++ {
		_, err = d.AddStep(write(t, "POST", "https://demo.test/", "x"), "v1")
	}
	if n != MaxSteps+1 || !errors.Is(err, ErrFull) {
		t.Errorf("%d steps: %v", n, err)
	}
	if p := d.Seal(); p.Writes != MaxSteps || p.Ended == "" || len(p.Picture) > maxLines+3 {
		t.Errorf("%+v", p)
	}
	drafts, large := 0, strings.Repeat("a", MaxBody)
	for full := false; !full && drafts < 1000; drafts++ {
		d := b.NewDraft("r", "", nil)
		for err = nil; err == nil; {
			_, err = d.AddStep(write(t, "POST", "https://demo.test/", large), "v1")
		}
		p := d.Seal()
		full = p == nil
		if !full && drafts == 0 && p.Writes > maxPlan/MaxBody {
			t.Errorf("a plan of %d large steps", p.Writes)
		}
	}
	if b.plans.used > maxPlanBytes || drafts > maxPlanBytes/maxPlan+3 {
		t.Errorf("%d plans, %d bytes", drafts, b.plans.used)
	}
	for _, p := range b.ListPlans() { // those that are over give way
		if _, err := b.DecidePlan(p.ID, approvalapi.Answer{Digest: p.Digest}, true); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.NewDraft("r", "", nil).AddStep(write(t, "POST", "https://demo.test/", large), "v1"); err != nil {
		t.Errorf("after all were refused: %v", err)
	}
	for err = nil; err == nil; { // a short plan takes room too
		d := b.NewDraft("r", "", nil)
		_, err = d.AddStep(write(t, "POST", "https://demo.test/", "x"), "v1")
		d.Seal()
	}
	if n := len(b.ListPlans()); n > maxPlanBytes/entrySize || b.plans.used > maxPlanBytes {
		t.Errorf("%d plans, %d bytes", n, b.plans.used)
	}
}

// TestPlanTenants: however many plans one tenant has open, and however long they are, those of others stay, and others have
// room.
// Promise: tenant-shares
func TestPlanTenants(t *testing.T) {
	for name, c := range map[string]struct {
		plans, steps, size int
	}{"many": {2 * maxPlanBytes / entrySize, 1, 1}, "long": {2 * maxPlanBytes / maxPlan, 15, MaxBody}} {
		b := newBook(t, &sent{})
		alice := planBy(t, b, "alice", "hers")
		flood := func() (denied int) {
			for range c.plans {
				d := b.NewDraft("run", "mallory", nil)
				for range c.steps {
					if _, err := d.AddStep(write(t, "POST", "https://demo.test/x", strings.Repeat("m", c.size)), "v1"); err != nil {
						denied++
					}
				}
				d.Seal()
			}
			return denied
		}
		denied := flood()
		bob := planBy(t, b, "bob", strings.Repeat("b", MaxBody))
		flood()
		for _, p := range []*approvalapi.Plan{alice, bob} {
			if _, err := b.GetPlan(p.ID); err != nil {
				t.Errorf("%s: a plan of another tenant: %v", name, err)
			}
		}
		if b.plans.used > maxPlanBytes || denied == 0 {
			t.Errorf("%s: %d plans of %d bytes, %d steps denied", name, len(b.plans.all), b.plans.used, denied)
		}
	}
}

// TestTenantDrafts: runs of one tenant that record at once take no plan of another, and leave room for others.
// Promise: tenant-shares
func TestTenantDrafts(t *testing.T) {
	b := newBook(t, &sent{})
	alice := planBy(t, b, "alice", strings.Repeat("a", MaxBody))
	var drafts []*Draft
	for range 2 * maxPlanBytes / maxPlan {
		d := b.NewDraft("run", "mallory", nil)
		for range maxPlan / MaxBody {
			_, _ = d.AddStep(write(t, "POST", "https://demo.test/x", strings.Repeat("m", MaxBody)), "v1")
		}
		drafts = append(drafts, d)
	}
	if _, err := b.GetPlan(alice.ID); err != nil {
		t.Errorf("a plan of another tenant: %v", err)
	}
	if _, err := b.NewDraft("run", "bob", nil).AddStep(write(t, "POST", "https://demo.test/x", strings.Repeat("b", MaxBody)), "v1"); err != nil {
		t.Errorf("a step of another tenant: %v", err)
	}
	for _, d := range drafts {
		d.Discard()
	}
	if len(b.plans.all) != 2 { // hers and bob's
		t.Errorf("%d entries after the drafts are over", len(b.plans.all))
	}
}

// TestAsleep: a plan that a person did not approve before the machine slept cannot be approved hours later.
// Promise: a-plan-is-what-was-shown
func TestAsleep(t *testing.T) {
	now := time.Now()
	b := newBook(t, &sent{})
	b.conf.Now = func() time.Time { return now }
	p := planOf(t, b, "a")
	now = testkit.AfterSleep(time.Now(), 8*time.Hour)
	if _, err := b.DecidePlan(p.ID, approvalapi.Answer{Approve: true, Digest: p.Digest}, true); err == nil {
		t.Errorf("approved, although it said that it ends at %v", p.Until)
	}
}

// TestMemory: what is reserved is given back, however a run ends.
// Promise: a-plan-is-what-was-shown
func TestMemory(t *testing.T) {
	now := time.Now()
	b := newBook(t, &sent{})
	b.conf.Now = func() time.Time { return now }
	d := b.NewDraft("r", "", nil)
	read := write(t, "GET", "https://demo.test/x", "")
	d.NoteRead(read, []byte(`{"a": 1}`))
	if _, err := d.AddStep(write(t, "PATCH", "https://demo.test/x", `{"a": 2}`), "v1"); err != nil || b.plans.used == 0 {
		t.Fatal(err)
	}
	d.Discard()
	d.Discard()
	if b.plans.used != 0 || d.Seal() != nil {
		t.Errorf("%d bytes after a run without an end", b.plans.used)
	}
	d = b.NewDraft("r", "", nil)
	d.NoteRead(read, []byte(`{"a": 1}`))
	if d.Seal() != nil || b.plans.used != 0 {
		t.Errorf("%d bytes after a run that only read", b.plans.used)
	}
	planOf(t, b, "x")
	now = now.Add(time.Hour)
	if len(b.ListPlans()) != 0 || b.plans.used != 0 {
		t.Errorf("%d bytes after the end", b.plans.used)
	}
	if _, err := d.AddStep(read, "v1"); err == nil {
		t.Error("a step after the end of the run")
	}
}

// TestEnding: a proxy that ends stops a plan at the step that it sends.
func TestEnding(t *testing.T) {
	s := &sent{wait: make(chan struct{})}
	b := New(Config{Open: func(_, _, _, _ string, _ []string) Sender { return s }})
	p := planOf(t, b, "a", "b")
	if _, err := b.DecidePlan(p.ID, approvalapi.Answer{Approve: true, Digest: p.Digest}, true); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { b.Close(); close(done) }()
	testkit.WaitFor(t, func() bool { return b.ctx.Err() != nil })
	close(s.wait)
	<-done
	if got, _ := b.GetPlan(p.ID); got.State != approvalapi.StateStopped || len(s.all()) > 1 {
		t.Errorf("%s, sent %q", got.State, s.all())
	}
	if _, err := b.DecidePlan(planOf(t, b, "a").ID, approvalapi.Answer{Approve: true}, true); err == nil {
		t.Error("approved after the end")
	}
}

// TestPicture: what is folded is the same in all that is not shown, and nothing of it reaches a terminal as it is.
// Promise: a-plan-is-what-was-shown
func TestPicture(t *testing.T) {
	show := func(steps ...approvalapi.Step) string {
		for i := range steps {
			steps[i].N = i + 1
		}
		return strings.Join(drawSteps(steps), "\n")
	}
	at := func(url, body string) approvalapi.Step {
		return approvalapi.Step{Method: "PATCH", URL: url, Body: body}
	}
	changed := func(url string) approvalapi.Step {
		return approvalapi.Step{Method: "PATCH", URL: url, Body: `{"s":1}`, Changes: []approvalapi.Change{{Field: "s", Before: "0", After: "1"}}}
	}
	with := func(s approvalapi.Step, header string) approvalapi.Step { s.Headers = []string{header}; return s }
	for _, c := range []struct{ got, want string }{
		{show(at("https://a.test/i/1", `{"s":1}`), at("https://a.test/i/2", `{"s":1}`)), " 1-2   2 x PATCH a.test/i/{1,2}  s 1"},
		{show(at("https://a.test/i/1", `{"s":1}`), at("https://a.test/i/2", `{"s":2}`)), " 1-2   2 x PATCH a.test/i/{1,2}  s {1,2}"},
		{show(at("https://a.test/x", `{"a":1,"s":"`+strings.Repeat("y", 70)+`1"}`), at("https://a.test/x", `{"a":1,"s":"`+strings.Repeat("y", 70)+`2"}`)),
			" 1-2   2 x PATCH a.test/x  s {\"" + strings.Repeat("y", 59) + "...,\"" + strings.Repeat("y", 59) + "...}, a 1"},
		{show(at("https://a.test/x", `{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1}`), at("https://a.test/x", `{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":2}`)), " 1-2   2 x PATCH a.test/x  g {1,2}, a 1, b 1, c 1, d 1, e 1, and 1 more"},
		{show(at("https://a.test/x", `{"a":1}`), at("https://a.test/x", `{"b":1}`)), " 1     PATCH a.test/x  a 1\n 2     PATCH a.test/x  b 1"},
		{show(approvalapi.Step{Method: "PATCH", URL: "https://a.test/x", Body: `{"a":1,"b":1}`, Changes: []approvalapi.Change{{Field: "a", Before: "0", After: "1"}}}, approvalapi.Step{Method: "PATCH", URL: "https://a.test/x", Body: `{"a":1,"b":2}`, Changes: []approvalapi.Change{{Field: "a", Before: "0", After: "1"}}}),
			" 1     PATCH a.test/x\n       a 0 -> 1\n 2     PATCH a.test/x\n       a 0 -> 1"},
		{show(at("https://a.test/i/1", ``), at("https://b.test/i/1", ``)), " 1     PATCH a.test/i/1\n 2     PATCH b.test/i/1"},
		{show(at("https://a.test/i/1?x=1", ``), at("https://a.test/i/2?x=2", ``)), " 1     PATCH a.test/i/1?x=1\n 2     PATCH a.test/i/2?x=2"},
		{show(at("https://a.test/1/2", ``), at("https://a.test/3/2", ``), at("https://a.test/1/4", ``)), " 1-2   2 x PATCH a.test/{1,3}/2\n 3     PATCH a.test/1/4"},
		{show(at("https://a.test/1", ``), at("https://a.test/2", ``), at("https://a.test/3", ``), at("https://a.test/4", ``)), " 1-4   4 x PATCH a.test/{1,2,... 2 more}"},
		{show(at("https://a.test/x", `{"amount": 1, "amount": 1000}`)), " 1     PATCH a.test/x  29 bytes"},
		{show(at("https://a.test/x", "{\"a\": \"\u202e\u001b[2J\"}")), " 1     PATCH a.test/x  16 bytes"},
		{show(at("https://a.test/x", `{"a": "\u202e"}`)), ` 1     PATCH a.test/x  a "\"\u202e\""`},
		{show(with(at("https://a.test/x", `{"amount 5, to": "alice", "": 1, "{": 2, "amount": 900, "to": "mallory", "n;": 3, "more": 1}`), "Content-Type: application/json")),
			" 1     PATCH a.test/x  \"amount 5, to\" \"alice\", \"\" 1, \"{\" 2, amount 900, to \"mallory\", \"n;\" 3, and 1 more"},
		{show(with(at("https://a.test/x", "abc"), "A: 1}, amount 5, x {2"), with(at("https://a.test/x", "abc"), "A: 3")),
			" 1-2   2 x PATCH a.test/x  A {\"1}, amount 5, x {2\",3}, 3 bytes"},
		{show(at("http://a.test/x", "plain")), " 1     PATCH http://a.test/x  5 bytes"},
		{show(at("https://a.test/i/1", `{"s":1}`), at("https://a.test/n", `{"i":1}`), at("https://a.test/i/2", `{"s":1}`), at("https://a.test/n", `{"i":2}`)),
			" 1,3   2 x PATCH a.test/i/{1,2}  s 1\n 2,4   2 x PATCH a.test/n  i {1,2}"},
		{show(slices.Concat([]approvalapi.Step{at("https://a.test/x", "")}, slices.Repeat([]approvalapi.Step{at("https://a.test/i", `{"s":1}`), at("https://b.test/n", `{"i":1}`)}, 4), []approvalapi.Step{at("https://a.test/i", `{"s":1}`)})...),
			" 1     PATCH a.test/x\n 2,4,...8 4 x PATCH a.test/i  s 1\n 3,5,...9 4 x PATCH b.test/n  i 1\n 10    PATCH a.test/i  s 1"},
		{show(with(at("https://a.test/i/1", `{"s":1}`), "Idempotency-Key: a"), with(at("https://a.test/i/2", `{"s":1}`), "Idempotency-Key: b\u202e")),
			` 1-2   2 x PATCH a.test/i/{1,2}  Idempotency-Key {a,"b\u202e"}, s 1`},
		{show(with(at("https://a.test/x", "abc"), "A: 1"), with(at("https://a.test/x", "abc"), "A: 2")), " 1-2   2 x PATCH a.test/x  A {1,2}, 3 bytes"},
		{show(with(at("https://a.test/x", ""), "A: 1"), with(at("https://a.test/x", ""), "A: 2")), " 1-2   2 x PATCH a.test/x  A {1,2}"},
		{show(with(changed("https://a.test/1"), "If-Match: a"), with(changed("https://a.test/2"), "If-Match: b"), with(changed("https://a.test/3"), "If-Match: b")),
			" 1-3   3 x PATCH a.test/{1,2,3}\n       If-Match {a,b}; s 0 -> 1"},
		{show(with(at("https://a.test/x", ""), "A: 1"), with(at("https://a.test/x", ""), "B: 1")), " 1     PATCH a.test/x\n 2     PATCH a.test/x"},
		{show(approvalapi.Step{Server: "notes", Tool: "write\n2", Body: `{"text":"x"}`}), ` 1     CALL  "notes.write\n2"  text "x"`},
		{formatChanges([]approvalapi.Change{{Field: `n 1 -> 2; l`, Before: "3", After: "4"}}), `"n 1 -> 2; l" 3 -> 4`},
		{formatChanges([]approvalapi.Change{{Field: "n", Before: "1", After: "2"}, {Field: "l", Before: `["a","b"]`, After: `["b","c"]`}, {Field: "new", After: "true"}, {Field: "old", Before: "1"}, {Field: "o", Before: `["a","b"]`, After: `["b","a"]`}}),
			`n 1 -> 2; l + "c" - "a"; new + true; old - 1; o ["a","b"] -> ["b","a"]`},
		// One element is new, and others moved, or occur once more or less: the new one alone would hide that.
		{formatChanges([]approvalapi.Change{{Field: "to", Before: `["a","b","c"]`, After: `["c","b","d"]`}, {Field: "items", Before: `[1,1,2,3]`, After: `[1,2,2,4]`}}),
			`to ["a","b","c"] -> ["c","b","d"]; items [1,1,2,3] -> [1,2,2,4]`},
	} {
		if c.got != c.want {
			t.Errorf("got:\n%s\nwant:\n%s", c.got, c.want)
		}
	}
}

// TestPlanOfTenant: the ledger's record of a decision about a plan names the tenant.
// Promise: ledger
func TestPlanOfTenant(t *testing.T) {
	var got []ledger.Decision
	b := New(Config{Open: func(_, _, _, _ string, _ []string) Sender { return &sent{} }, Decided: func(d ledger.Decision) { got = append(got, d) }})
	t.Cleanup(b.Close)
	d := b.NewDraft("run", "alice", nil)
	if _, err := d.AddStep(write(t, "POST", "https://demo.test/", "a"), "v1"); err != nil {
		t.Fatal(err)
	}
	p := d.Seal()
	if _, err := b.DecidePlan(p.ID, approvalapi.Answer{Digest: p.Digest}, true); err != nil || len(got) != 1 || got[0].Tenant != "alice" || got[0].Plan != p.ID {
		t.Errorf("recorded %+v, %v", got, err)
	}
}

// TestPictureType: a picture shows the fields of a body as its type says. If servers may read the body as a form, no field
// of a JSON object is shown, and none counts as changed.
// Promise: a-plan-is-what-was-shown
func TestPictureType(t *testing.T) {
	const both = `{"to":"alice","amount":5,"note":"&amount=900&to=mallory&x="}`
	for types, want := range map[string]string{
		"application/json": `to "alice", amount 5, note "&amount=900&to=mallory&x="`,
		"application/merge-patch+json; charset=utf-8":         `to "alice", amount 5, note "&amount=900&to=mallory&x="`,
		"application/x-www-form-urlencoded":                   `"{\"to\":\"alice\",\"amount\":5,\"note\":\"" "", amount "900", to "mallory", x "\"}"`,
		"APPLICATION/X-WWW-FORM-URLENCODED ; charset=utf-8":   `"{\"to\":\"alice\",\"amount\":5,\"note\":\"" "", amount "900", to "mallory", x "\"}"`,
		"application/json\napplication/x-www-form-urlencoded": "60 bytes",
		"application/x-www-form-urlencoded, application/json": "60 bytes",
		"multipart/form-data; boundary=b":                     "60 bytes", "text/plain": "60 bytes", "": "60 bytes",
	} {
		s := approvalapi.Step{N: 1, Method: "POST", URL: "https://a.test/x", Body: both}
		for _, value := range strings.Split(types, "\n") {
			if value != "" {
				s.Headers = append(s.Headers, "content-type: "+value)
			}
		}
		if got := drawSteps([]approvalapi.Step{s})[0]; !strings.HasSuffix(got, "a.test/x  "+want) {
			t.Errorf("%q: %s", types, got)
		}
	}
	call := approvalapi.Step{N: 1, Server: "bank", Tool: "pay", Body: both}
	if got := drawSteps([]approvalapi.Step{call})[0]; !strings.Contains(got, "amount 5") {
		t.Error(got)
	}
	for body, media := range map[string]string{
		`{"role":"user","memo":"a&b"}`: "text/plain;charset=UTF-8", `{"role":"user"}`: "application/json",
		"role=admin&address[city]=x": formType, `{"role":"guest"}`: formType, `{"memo":"&role=admin&x="}`: formType,
	} {
		if s := stepAfterRead(t, "POST", media, body); s.guard == nil || !slices.Contains(s.guard.about, "role") {
			t.Errorf("%s: the read is not repeated before the step: %+v", media, s.guard)
		}
	}
	if got := stepAfterRead(t, "PATCH", "application/x-www-form-urlencoded", `{"role":"guest","note":"&role=admin&x="}`).Shown.Changes; len(got) > 0 {
		t.Errorf("%+v", got)
	}
}

// stepAfterRead returns a step of a plan whose run has read the object at the step's URL.
func stepAfterRead(t *testing.T, method, media, body string) Step {
	t.Helper()
	s := New(Config{})
	t.Cleanup(s.Close)
	d := s.NewDraft("run", "", nil)
	address := &url.URL{Scheme: "https", Host: "a.test", Path: "/x"}
	d.NoteRead(Step{Method: "GET", URL: address}, []byte(`{"role":"user","note":"&role=admin&x="}`))
	step := Step{Method: method, URL: address, Shown: approvalapi.Step{Method: method, Headers: []string{"Content-Type: " + media}, Body: body}}
	if _, err := d.AddStep(step, "v"); err != nil {
		t.Fatal(err)
	}
	return d.plan.steps[0]
}

// TestPictureOfPost: a POST to the URL of an object that the run has read shows all fields, also those with the object's
// values: it may act on them.
// Promise: a-plan-is-what-was-shown
func TestPictureOfPost(t *testing.T) {
	for method, want := range map[string]string{"POST": `to "mallory", amount 900, memo "x"`, "PATCH": `memo + "x"`} {
		s := New(Config{})
		t.Cleanup(s.Close)
		d := s.NewDraft("run", "", nil)
		address := &url.URL{Scheme: "https", Host: "a.test", Path: "/x"}
		d.NoteRead(Step{Method: "GET", URL: address}, []byte(`{"to":"mallory","amount":900}`))
		step := Step{Method: method, URL: address, Shown: approvalapi.Step{Method: method, Body: `{"to":"mallory","amount":900,"memo":"x"}`}}
		if _, err := d.AddStep(step, "v"); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(drawSteps([]approvalapi.Step{d.plan.steps[0].Shown}), "\n"); !strings.HasSuffix(got, " "+want) {
			t.Errorf("%s: %s", method, got)
		}
	}
}

// TestPictureBounded: a line of a picture has a bound, also if all fields of its steps differ.
// Promise: bounded-work
func TestPictureBounded(t *testing.T) {
	steps := make([]approvalapi.Step, 2)
	for i := range steps {
		var b strings.Builder
		for f := range 10_000 {
			fmt.Fprintf(&b, `,"f%d":%d`, f, i)
		}
		steps[i] = approvalapi.Step{N: i + 1, Method: "POST", URL: "https://a.test/x", Body: "{" + b.String()[1:] + "}"}
	}
	lines := drawSteps(steps)
	for _, line := range lines {
		if len(line) > 5<<10 {
			t.Errorf("a line has %d bytes", len(line))
		}
	}
	if !strings.Contains(strings.Join(lines, "\n"), "NOT ALL SHOWN") {
		t.Error("the picture hides fields that differ")
	}
}

// TestUnreadableChange: the picture of a body that is not a JSON object shows the body. It shows no changes of the
// object that the run read.
// Promise: a-plan-is-what-was-shown
func TestUnreadableChange(t *testing.T) {
	const form = "Content-Type: application/x-www-form-urlencoded"
	for _, c := range []struct{ method, body, header, want string }{
		{"PUT", "enabled=true&admin=true", form, ` 1     PUT   demo.test/x  enabled "true", admin "true"`},
		{"PUT", `{"a": 1, "a": 2}`, "", " 1     PUT   demo.test/x  16 bytes"},
		{"PATCH", "[1]", "", " 1     PATCH demo.test/x  3 bytes"},
		{"DELETE", "", "", " 1     DELETE demo.test/x"},
	} {
		d := newBook(t, &sent{}).NewDraft("run", "", nil)
		d.NoteRead(write(t, "GET", "https://demo.test/x", ""), []byte(`{"enabled": true}`))
		s := write(t, c.method, "https://demo.test/x", c.body)
		s.Shown.Headers = []string{c.header}
		if _, err := d.AddStep(s, "v1"); err != nil {
			t.Fatal(err)
		}
		if len(d.plan.steps[0].guard.about) != 1 {
			t.Errorf("%s %s: guards %v", c.method, c.body, d.plan.steps[0].guard.about)
		}
		if got := strings.Join(d.Seal().Picture[1:], "\n"); got != c.want {
			t.Errorf("%s %s: got\n%s\nwant\n%s", c.method, c.body, got, c.want)
		}
	}
}

// TestPictureLinear: a picture takes time in proportion to its steps, whatever their bodies and URLs are.
// Promise: bounded-work
func TestPictureLinear(t *testing.T) {
	numbers := func(from, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, ",%d", from+i)
		}
		return "[" + strings.TrimPrefix(b.String(), ",") + "]"
	}
	keys := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"k%d":0`, i)
		}
		return "{" + strings.TrimPrefix(b.String(), ",") + "}"
	}
	for name, c := range map[string]struct {
		n     int
		steps func(n int) []approvalapi.Step
	}{
		"lists without a common element": {4000, func(n int) []approvalapi.Step {
			return []approvalapi.Step{{Changes: []approvalapi.Change{{Field: "a", Before: numbers(0, n), After: numbers(n, n)}}}}
		}},
		"bodies with many fields": {2000, func(n int) []approvalapi.Step {
			return []approvalapi.Step{{Body: keys(n)}, {Body: keys(n)}, {Body: keys(n)}}
		}},
		"steps with long paths": {125, func(n int) []approvalapi.Step {
			var out []approvalapi.Step
			for i := range n {
				out = append(out, approvalapi.Step{URL: fmt.Sprintf("https://a.test%s/%d", strings.Repeat("/a", 1000), i)})
			}
			return out
		}},
		"steps with different values": {2000, func(n int) []approvalapi.Step {
			var out []approvalapi.Step
			for i := range n {
				out = append(out, approvalapi.Step{URL: "https://a.test/x", Body: fmt.Sprintf(`{"a":%d}`, i)})
			}
			return out
		}},
	} {
		t.Run(name, func(t *testing.T) {
			costtest.RequireLinear(t, c.n, func(n int) func() {
				steps := c.steps(n)
				return func() { drawSteps(steps) }
			})
		})
	}
}

// TestCut: the plan of code that did not reach its end says so, unless it had ended before.
// Promise: a-plan-is-what-was-shown
func TestCut(t *testing.T) {
	b := newBook(t, &sent{})
	for _, c := range []struct {
		bodies []string
		why    string
		ended  string
	}{
		{[]string{"{}"}, "The code failed.", "The code failed."}, {[]string{"{}"}, "", ""},
		{[]string{"{}", `{"a":"undefined"}`}, "The code failed.", "Step 2 depends on what step 1 answers; approve 1, or run without dry_run and be asked."},
	} {
		d := b.NewDraft("run", "", nil)
		for _, body := range c.bodies {
			_, _ = d.AddStep(write(t, "POST", "https://demo.test/x", body), "v1")
		}
		d.SetIncomplete(c.why)
		p := d.Seal()
		if text := strings.Join(p.Picture, "\n"); p.Ended != c.ended || strings.Contains(text, "INCOMPLETE") != (c.ended != "") || !strings.Contains(text, c.ended) {
			t.Errorf("%q: %q\n%s", c.why, p.Ended, text)
		}
	}
}

// TestOperator: a plan is the operator's, unless each step waits by a rule that leaves it to anyone.
// Promise: a-plan-is-what-was-shown
func TestOperator(t *testing.T) {
	b := newBook(t, &sent{})
	for _, c := range []struct {
		rules []string
		any   []bool
		want  bool
	}{{[]string{""}, []bool{false}, true}, {[]string{"r"}, []bool{true}, false}, {[]string{"r", ""}, []bool{true, true}, true}, {[]string{"r", "r"}, []bool{true, false}, true}} {
		d := b.NewDraft("r", "", nil)
		for i, rule := range c.rules {
			s := write(t, "POST", "https://demo.test/", fmt.Sprint(i))
			s.Shown.Rule, s.ByAny = rule, c.any[i]
			if _, err := d.AddStep(s, "v1"); err != nil {
				t.Fatal(err)
			}
		}
		if p := d.Seal(); p.Operator != c.want {
			t.Errorf("%v %v: %v", c.rules, c.any, p.Operator)
		}
	}
}

// FuzzChanges: bodies of others never break the comparison, and equal objects have no change.
func FuzzChanges(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":null}]}`), []byte(`{"a":[1]}`))
	f.Add([]byte(`{"a":1,"a":2}`), []byte(`[]`))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		a := readObject(before)
		if a == nil {
			return
		}
		list, _ := listChanges(http.MethodPut, a, after)
		for _, c := range list {
			if c.Before == c.After || c.Before != "" && !json.Valid([]byte(c.Before)) || c.After != "" && !json.Valid([]byte(c.After)) {
				t.Errorf("%+v", c)
			}
		}
		if same, about := listChanges(http.MethodPut, a, before); len(same) != 0 || describeDrift(a, readObject(before), about) != "" {
			t.Errorf("%s differs from itself: %+v", before, same)
		}
		_ = formatChanges(list)
	})
}

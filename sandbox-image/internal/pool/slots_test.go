package pool

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/generation"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/interp"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/jail"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// brokenJail starts no interpreter.
type brokenJail struct{ jail.Jail }

var errJail = errors.New("no namespaces")

func (brokenJail) Start(jail.InterpreterSpec, jail.Stdio) (jail.Process, error) { return nil, errJail }

// newPool returns a pool of slots without interpreters.
func newPool(slots int) *Pool {
	p := &Pool{
		cfg:  Config{Slots: slots, LeaseIdle: defaultLeaseIdle, Jail: brokenJail{}, Generations: &generation.Counter{}, Log: slog.New(slog.DiscardHandler)},
		stop: make(chan struct{}), leases: map[uint64]*slotState{},
	}
	for n := range slots {
		p.slots = append(p.slots, &slotState{id: slot.ID(n)})
	}
	return p
}

// TestFailed: an interpreter of Python that does not start leaves runs of TypeScript alone, and each has its own pause
// before the next try.
func TestFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(1)
		p.noteFailure(true, errJail)
		if p.problem != nil || !p.retryAt.IsZero() || !errors.Is(p.lastStartError(true), errJail) || errors.Is(p.lastStartError(false), errJail) {
			t.Errorf("after Python: %v, %v, %v", p.problem, p.retryAt, p.python)
		}
		if p.python.retryAt != time.Now().Add(maxBackoff) {
			t.Errorf("Python is tried again at %v", p.python.retryAt)
		}
		p = newPool(1)
		for _, want := range []time.Duration{100, 200, 400, 800, 1600, 3200, 5000, 5000} {
			p.noteFailure(false, errJail)
			if got := time.Until(p.retryAt); got != want*time.Millisecond {
				t.Errorf("the next try is after %v, want %v ms", got, want)
			}
		}
		if p.python.problem != nil || !errors.Is(p.lastStartError(false), errJail) || p.Health().Problem == "" {
			t.Errorf("after TypeScript: %v, %v", p.python, p.Health())
		}
	})
}

// TestSeatForPython: it is a free slot without an interpreter, else one whose interpreter is ending, else a prepared one.
func TestSeatForPython(t *testing.T) {
	ending, prepared, started := func(s *slotState) { s.running = make(chan struct{}) }, func(s *slotState) { s.warm = &warmInterpreter{} }, func(s *slotState) { s.warm = &warmInterpreter{started: true} }
	leased, broken, quarantined := func(s *slotState) { s.lease = 1 }, func(s *slotState) { s.broken = errJail }, func(s *slotState) { s.quarantine = true }
	empty := func(*slotState) {}
	for _, c := range []struct {
		slots []func(*slotState)
		want  int // -1: none
	}{
		{[]func(*slotState){leased, broken, quarantined, started}, -1},
		{[]func(*slotState){leased, prepared, ending, empty, empty}, 3},
		{[]func(*slotState){prepared, ending, ending, started}, 1},
		{[]func(*slotState){started, leased, prepared}, 2},
	} {
		p := newPool(len(c.slots))
		for i, set := range c.slots {
			set(p.slots[i])
		}
		got := -1
		if s := p.slotForPython(); s != nil {
			got = int(s.id)
		}
		if got != c.want {
			t.Errorf("slot %d, want %d", got, c.want)
		}
	}
}

// TestChoose: a lease never gets a slot that is leased, in quarantine or out of use.
func TestChoose(t *testing.T) {
	p := newPool(6)
	p.ca = "ca"
	p.slots[0].lease = 1
	p.slots[1].broken = errJail
	p.slots[2].quarantine = true
	if s, _ := p.chooseSlot(false); s != p.slots[3] || p.countTaken() != 3 || !p.hasOtherVacant(s) {
		t.Errorf("%+v, %d taken", s, p.countTaken())
	}
	p.slots[3].warm = &warmInterpreter{python: true, started: true}
	p.slots[4].running = make(chan struct{})
	p.slots[5].warm = &warmInterpreter{key: "outdated"}
	if s, ready := p.chooseSlot(false); ready || s.id != 4 {
		t.Errorf("slot %d, want the one whose interpreter is ending", s.id)
	}
	p.slots[5].warm = nil
	if s, _ := p.chooseSlot(false); s.id != 5 {
		t.Errorf("slot %d, want the empty one", s.id)
	}
	key := p.interpreterKey(p.slots[4], false)
	for i, want := range []int{3, 4} { // starting interpreters are better than prepared ones
		p.slots[3].warm, p.slots[4].running = &warmInterpreter{Interpreter: &interp.Interpreter{}, key: key, started: i == 0}, nil
		p.slots[4].warm = &warmInterpreter{Interpreter: &interp.Interpreter{}, key: key, started: i == 1}
		if s, ready := p.chooseSlot(false); ready || int(s.id) != want {
			t.Errorf("slot %d, want %d, whose interpreter is starting", s.id, want)
		}
	}
	for _, s := range p.slots[3:5] {
		s.lease = 1
	}
	if p.hasOtherVacant(p.slots[5]) || !p.hasOtherVacant(p.slots[0]) {
		t.Error("the last slot that is vacant is another than itself, or is not vacant")
	}
}

// TestStatsOfLeases counts slots by their leases.
func TestStatsOfLeases(t *testing.T) {
	p := newPool(5)
	p.slots[1].lease = 1
	p.slots[2].lease, p.slots[2].ahead = 2, true
	p.slots[3].quarantine = true
	p.slots[4].broken = errJail
	p.servers = []*slotState{{id: slot.Max, lease: 3}, {id: slot.Max + 1}}
	got := p.Stats()
	want := sandboxapi.Stats{Slots: 5, Leased: 1, Ahead: 1, Quarantined: 2, Servers: 2, ServersLeased: 1}
	got.Generation = want.Generation
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestHealthOfSlots: the pool is not ready while it is closed, has no CA or no usable slot.
func TestHealthOfSlots(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Pool)
		ready  bool
	}{
		"all is well":        {func(*Pool) {}, true},
		"closed":             {func(p *Pool) { p.closed = true }, false},
		"no CA":              {func(p *Pool) { p.ca = "" }, false},
		"one slot is broken": {func(p *Pool) { p.slots[0].broken = errJail }, true},
		"all are broken":     {func(p *Pool) { p.slots[0].broken, p.slots[1].broken = errJail, errJail }, false},
		"none has started":   {func(p *Pool) { p.problem = errFirst }, false},
	} {
		p := newPool(2)
		p.ca = "ca"
		c.change(p)
		if h := p.Health(); h.Ready != c.ready || (h.Problem == "") != c.ready {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

// TestLeaseGone: what names a lease that has ended is refused, and holds up nothing.
func TestLeaseGone(t *testing.T) {
	p := newPool(1)
	p.leases[2] = p.slots[0] // it has no run and no interpreter
	p.slots[0].lease = 2
	run := func(g uint64) error {
		_, err := p.Run(t.Context(), sandboxapi.RunRequest{Generation: g, Run: "r", Language: sandboxapi.LanguageTypeScript, TimeoutMS: 1}, nil)
		return err
	}
	for name, err := range map[string]error{
		"release": p.Release(1), "pause": p.Pause(1, sandboxapi.Pause{Paused: true}), "up": p.AwaitUp(t.Context(), 1), "run": run(1),
		"pause without a run": p.Pause(2, sandboxapi.Pause{}), "up without an interpreter": p.AwaitUp(t.Context(), 2),
	} {
		if !errors.Is(err, sandboxapi.ErrLeaseGone) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if st := p.Stats(); st.Leased != 1 { // nothing has kept the lock
		t.Errorf("%+v", st)
	}
}

// TestClaim: a lease has one run, of its kind, with the permissions in force.
func TestClaim(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Pool, *slotState, *sandboxapi.RunRequest)
		want   error
	}{
		"no lease":           {func(_ *Pool, _ *slotState, r *sandboxapi.RunRequest) { r.Generation++ }, sandboxapi.ErrLeaseGone},
		"of a server":        {func(_ *Pool, s *slotState, _ *sandboxapi.RunRequest) { s.id = slot.Max }, sandboxapi.ErrBadRequest},
		"used":               {func(_ *Pool, s *slotState, _ *sandboxapi.RunRequest) { s.used = true }, sandboxapi.ErrLeaseGone},
		"private run":        {func(_ *Pool, _ *slotState, r *sandboxapi.RunRequest) { r.Private = true }, sandboxapi.ErrBadRequest},
		"private lease":      {func(_ *Pool, s *slotState, _ *sandboxapi.RunRequest) { s.kind.private = true }, sandboxapi.ErrBadRequest},
		"other permissions":  {func(_ *Pool, _ *slotState, r *sandboxapi.RunRequest) { r.Permissions = "x" }, sandboxapi.ErrPermissions},
		"out of use":         {func(_ *Pool, s *slotState, _ *sandboxapi.RunRequest) { s.broken = errJail }, sandboxapi.ErrUnready},
		"nothing starts":     {func(*Pool, *slotState, *sandboxapi.RunRequest) {}, errJail},
		"one is ending here": {func(_ *Pool, s *slotState, _ *sandboxapi.RunRequest) { s.running = make(chan struct{}) }, nil},
	} {
		p := newPool(1)
		s := p.slots[0]
		s.lease, p.leases[7] = 7, s
		r := sandboxapi.RunRequest{Generation: 7, Permissions: p.set.HashHosts(), Language: sandboxapi.LanguageTypeScript}
		c.change(p, s, &r)
		got, err := p.claimSlot(r)
		if !errors.Is(err, c.want) || (err == nil) != (got == s) || c.want == nil && err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// TestQuarantine: a slot whose lease expired is in quarantine for a second, one that was released is free.
func TestQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(2)
		owner, leave := context.WithCancel(t.Context())
		p.mu.Lock()
		p.grantLease(p.slots[0], 1, owner)
		p.watchIdle(p.slots[0])
		p.grantLease(p.slots[1], 2, t.Context())
		p.slots[1].ahead = true
		p.watchIdle(p.slots[1])
		p.mu.Unlock()
		is := func(what string, vacant ...bool) {
			t.Helper()
			synctest.Wait()
			p.mu.Lock()
			defer p.mu.Unlock()
			for i, want := range vacant {
				if p.slots[i].isVacant() != want {
					t.Errorf("%s: slot %d is vacant: %t", what, i, !want)
				}
			}
		}
		is("leased", false, false)
		leave()
		is("its connection has ended", false, false)
		time.Sleep(quarantine - time.Millisecond)
		is("in quarantine", false, false)
		time.Sleep(2 * time.Millisecond)
		is("after it", true, false)
		if err := p.Release(2); err != nil {
			t.Error(err)
		}
		is("released", true, true)
		p.mu.Lock()
		p.grantLease(p.slots[0], 3, t.Context())
		p.watchIdle(p.slots[0])
		p.mu.Unlock()
		time.Sleep(defaultLeaseIdle - time.Millisecond)
		is("not used yet", false)
		time.Sleep(2*time.Millisecond + quarantine)
		is("unused for too long", true)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestValid: requests that can never work are refused at their bounds.
func TestValid(t *testing.T) {
	day := (24 * time.Hour).Milliseconds()
	for name, c := range map[string]struct {
		change func(*sandboxapi.RunRequest)
		ok     bool
	}{
		"good":                 {func(*sandboxapi.RunRequest) {}, true},
		"run of 64":            {func(r *sandboxapi.RunRequest) { r.Run = strings.Repeat("a", 64) }, true},
		"run of 65":            {func(r *sandboxapi.RunRequest) { r.Run = strings.Repeat("a", 65) }, false},
		"no run":               {func(r *sandboxapi.RunRequest) { r.Run = "" }, false},
		"run at the edges":     {func(r *sandboxapi.RunRequest) { r.Run = "az09-" }, true},
		"run with a capital":   {func(r *sandboxapi.RunRequest) { r.Run = "A" }, false},
		"run below 0":          {func(r *sandboxapi.RunRequest) { r.Run = "/" }, false},
		"run above 9":          {func(r *sandboxapi.RunRequest) { r.Run = ":" }, false},
		"run below a":          {func(r *sandboxapi.RunRequest) { r.Run = "`" }, false},
		"run above z":          {func(r *sandboxapi.RunRequest) { r.Run = "{" }, false},
		"Python":               {func(r *sandboxapi.RunRequest) { r.Language = sandboxapi.LanguagePython }, true},
		"another language":     {func(r *sandboxapi.RunRequest) { r.Language = "ruby" }, false},
		"most code":            {func(r *sandboxapi.RunRequest) { r.Code = strings.Repeat("x", sandboxapi.MaxCode) }, true},
		"more code":            {func(r *sandboxapi.RunRequest) { r.Code = strings.Repeat("x", sandboxapi.MaxCode+1) }, false},
		"no time":              {func(r *sandboxapi.RunRequest) { r.TimeoutMS = 0 }, false},
		"a day":                {func(r *sandboxapi.RunRequest) { r.TimeoutMS = day }, true},
		"more than a day":      {func(r *sandboxapi.RunRequest) { r.TimeoutMS = day + 1 }, false},
		"skills":               {func(r *sandboxapi.RunRequest) { r.Skills = map[string]string{"A_b-1.ts": "", "b.py": ""} }, true},
		"a skill that is none": {func(r *sandboxapi.RunRequest) { r.Skills = map[string]string{"a": ""} }, false},
		"a skill of both":      {func(r *sandboxapi.RunRequest) { r.Skills = map[string]string{"a.py.ts": ""} }, false},
		"a skill elsewhere":    {func(r *sandboxapi.RunRequest) { r.Skills = map[string]string{"../a.ts": ""} }, false},
		"modules":              {func(r *sandboxapi.RunRequest) { r.Modules = []sandboxapi.Module{{Name: "a_b"}, {Name: "c"}} }, true},
		"a module twice":       {func(r *sandboxapi.RunRequest) { r.Modules = []sandboxapi.Module{{Name: "a"}, {Name: "a"}} }, false},
		"a module elsewhere":   {func(r *sandboxapi.RunRequest) { r.Modules = []sandboxapi.Module{{Name: "a/b"}} }, false},
	} {
		r := sandboxapi.RunRequest{Run: "r", Language: sandboxapi.LanguageTypeScript, TimeoutMS: 1}
		c.change(&r)
		if err := checkRequest(r); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// generations counts in a file of the test's.
func generations(t *testing.T) *generation.Counter {
	t.Helper()
	c, err := generation.OpenCounter(filepath.Join(t.TempDir(), "generation"), 0)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestAcquireRefused: what a lease needs, and which slots a lease ahead leaves to others.
func TestAcquireRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Pool)
		ahead  bool
		want   error
	}{
		"closed":                   {func(p *Pool) { p.closed = true }, true, sandboxapi.ErrUnready},
		"no CA":                    {func(p *Pool) { p.ca = "" }, true, sandboxapi.ErrUnready},
		"nothing starts":           {func(*Pool) {}, false, errJail},
		"all taken":                {func(p *Pool) { p.slots[0].lease, p.slots[1].quarantine = 1, true }, false, sandboxapi.ErrBusy},
		"draining":                 {func(p *Pool) { p.draining = true }, false, sandboxapi.ErrBusy},
		"ahead":                    {func(*Pool) {}, true, nil},
		"ahead, the last one":      {func(p *Pool) { p.slots[0].lease = 1 }, true, sandboxapi.ErrBusy},
		"ahead, nothing kept warm": {func(p *Pool) { p.cfg.Warm = 0 }, true, sandboxapi.ErrBusy},
		"ahead, draining":          {func(p *Pool) { p.draining = true }, true, sandboxapi.ErrBusy},
	} {
		p := newPool(2)
		p.ca, p.cfg.Warm, p.cfg.Generations = "ca", 1, generations(t)
		c.change(p)
		l, err := p.Acquire(t.Context(), sandboxapi.LeaseRequest{Ahead: c.ahead})
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || (err == nil) != (l.Generation != 0) {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
}

// TestServerSlots: a lease for an MCP server gets a slot whose processes have ended, and has one program.
func TestServerSlots(t *testing.T) {
	p := newPool(1)
	p.ca, p.cfg.Generations = "ca", generations(t)
	acquire := func() (sandboxapi.Lease, error) { return p.Acquire(t.Context(), sandboxapi.LeaseRequest{Server: true}) }
	if _, err := acquire(); !errors.Is(err, sandboxapi.ErrUnready) || !strings.Contains(err.Error(), "SANDBOX_SERVERS=0") {
		t.Errorf("without slots: %v", err)
	}
	p.cfg.Servers = Servers{Slots: 2, Problem: "no bridge"}
	if _, err := acquire(); !errors.Is(err, sandboxapi.ErrUnready) || !strings.Contains(err.Error(), "no bridge") {
		t.Errorf("with a problem: %v", err)
	}
	p.cfg.Servers.Problem = ""
	p.servers = []*slotState{{id: slot.Max, running: make(chan struct{})}, {id: slot.Max + 1}}
	l, err := acquire()
	if err != nil || l.Slot != slot.Max+1 || l.Generation == 0 || p.servers[1].idle != nil {
		t.Fatalf("%+v, %v", l, err)
	}
	if l, err := acquire(); !errors.Is(err, sandboxapi.ErrBusy) {
		t.Errorf("a slot whose program is ending: %+v, %v", l, err)
	}
	s, done, err := p.claimServer(l.Generation, func() {})
	if err != nil || s != p.servers[1] || s.running != done || s.cancel == nil {
		t.Errorf("%+v, %v", s, err)
	}
	p.slots[0].lease, p.leases[77] = 77, p.slots[0]
	for g, want := range map[uint64]error{l.Generation: sandboxapi.ErrLeaseGone, 76: sandboxapi.ErrLeaseGone, 77: sandboxapi.ErrBadRequest} {
		if s, _, err := p.claimServer(g, nil); !errors.Is(err, want) || s != nil {
			t.Errorf("generation %d: %v, %v", g, s, err)
		}
	}
	const good = "npm:a@1.0.0"
	for name, h := range map[string]sandboxapi.ServerHead{
		"a package": {Package: "a"}, "a registry": {Registry: "https://r.test"}, "an installation of none": {Install: true, Registry: "https://r.test"},
		"an installation from nowhere": {Install: true, Package: good}, "an installation over HTTP": {Install: true, Package: good, Registry: "http://r.test"},
	} {
		if _, err := p.Server(t.Context(), l.Generation, h, nil); !errors.Is(err, sandboxapi.ErrBadRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if spec, err := p.newServerSpec(sandboxapi.ServerHead{Install: true, Package: good, Registry: "https://r.test"}); err != nil || spec.Package != good || !spec.Install {
		t.Errorf("%+v, %v", spec, err)
	}
	if got, err := p.Tidy(sandboxapi.Packages{Keep: []string{good}}); err != nil || len(got.Removed) > 0 {
		t.Errorf("without packages: %+v, %v", got, err)
	}
}

// TestDrainWaits: Drain ends leases ahead and waits for the others, as long as its context.
func TestDrainWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(3)
		p.ca, p.closed = "ca", true // so that no interpreter starts
		p.mu.Lock()
		for n := range 2 {
			p.grantLease(p.slots[n], uint64(n+1), t.Context())
		}
		p.slots[0].ahead = true
		p.mu.Unlock()
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if p.Drain(short); time.Since(began) != time.Minute || p.slots[0].lease != 0 || p.slots[1].lease == 0 {
			t.Errorf("after %v: %+v", time.Since(began), p.Stats())
		}
		done := make(chan struct{})
		go func() { defer close(done); p.Drain(t.Context()) }()
		if err := p.Release(2); err != nil {
			t.Error(err)
		}
		<-done
		if time.Since(began) > time.Minute+drainPoll {
			t.Errorf("after %v", time.Since(began))
		}
	})
}

// TestPause reaches a run, or finds that it has ended.
func TestPause(t *testing.T) {
	p := newPool(1)
	s := p.slots[0]
	s.lease, p.leases[7] = 7, s
	s.running, s.pauses = make(chan struct{}), make(chan bool, 1)
	if err := p.Pause(7, sandboxapi.Pause{Paused: true}); err != nil || !<-s.pauses {
		t.Errorf("a run: %v", err)
	}
	s.pauses = make(chan bool)
	close(s.running)
	if err := p.Pause(7, sandboxapi.Pause{}); !errors.Is(err, sandboxapi.ErrLeaseGone) {
		t.Errorf("a run that has ended: %v", err)
	}
}

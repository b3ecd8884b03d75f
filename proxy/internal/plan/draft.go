package plan

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/proxy/planapi"
)

// The bounds of one plan.
const (
	MaxSteps = 500
	// MaxBody bounds the body of a step, in bytes. It equals the limit for held requests that a person reads.
	MaxBody = 256 << 10
	// maxBytes bounds the memory of a plan's steps.
	maxBytes = 4 << 20
	// maxSeen and maxSeenBytes bound the answers that the draft keeps for comparison.
	maxSeen      = 1000
	maxSeenBytes = 2 << 20
	// MaxRead bounds one such answer, in bytes.
	MaxRead = 256 << 10
)

var (
	// ErrFull is for a step beyond the bounds of a plan.
	ErrFull = errors.New("the plan has no room for the request")
	// ErrUnreadable is for a request that a person cannot read.
	ErrUnreadable = errors.New("the request cannot be shown")
)

// EndedError is for a step that depends on the answer to an earlier step, and for every step after it.
type EndedError struct {
	Sentence string
}

func (e *EndedError) Error() string { return e.Sentence }

// Draft is the plan of a run in progress. It is safe for concurrent use.
type Draft struct {
	book   *Book
	id     string
	run    string
	tenant string   // the run's tenant
	apis   []string // the run's APIs; nil means every active one

	mu      sync.Mutex
	version string // the catalog's version
	steps   []step
	size    int
	seen    map[string]seen // by URL
	kept    int             // the memory of seen, in bytes
	reads   int
	ended   string
	over    bool
}

// step is a Step with the data for a comparison before it is sent.
type step struct {
	Step
	changes []planapi.Change
	guard   *guard // nil if the run has not read the object that the step changes
}

// guard is a read of the run, with the values of the fields that a step concerns.
type guard struct {
	read   Step
	before object
	about  []string
}

// seen is an answer that the run has read. now is nil if a step left the object in an unknown state.
type seen struct {
	read Step
	now  object
	// was is the answer as the run read it, without the changes of steps.
	was object
}

// ID returns the id of the plan that the draft becomes.
func (d *Draft) ID() string { return d.id }

// Add records a request under the catalog's version, and returns the step's number. After an EndedError or ErrFull
// every further Add fails.
func (d *Draft) Add(s Step, version string) (int, error) {
	if _, ok := s.text(); !ok || len(s.Body) > MaxBody {
		return 0, ErrUnreadable
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.over:
		return 0, ErrFull
	case d.ended != "":
		return 0, &EndedError{d.ended}
	// A plan is sent under one version of the catalog only.
	case len(d.steps) > 0 && d.version != version:
		d.ended = "The configuration changed during the run."
		return 0, &EndedError{d.ended}
	}
	// The first step cannot depend on another, even if its text looks like a placeholder.
	if on, is := depends(s); is && len(d.steps) > 0 {
		d.ended = d.sentence(on)
		return 0, &EndedError{d.ended}
	}
	s.N = len(d.steps) + 1
	// The comparison itself takes memory, so it counts too.
	one := d.compare(s)
	size := s.size()
	for _, c := range one.changes {
		size += len(c.Field) + len(c.Before) + len(c.After)
	}
	if one.guard != nil {
		size += one.guard.read.size()
		for name, v := range one.guard.before {
			size += len(name) + len(v)
		}
	}
	// End the plan here: a later, smaller step must not follow a missing one.
	if len(d.steps) >= MaxSteps || d.size+size > maxBytes || !d.book.take(d.tenant, size) {
		d.ended = fmt.Sprintf("The plan has no room for more than these %d writes.", len(d.steps))
		return 0, ErrFull
	}
	d.version, d.size = version, d.size+size
	d.steps = append(d.steps, one)
	return len(d.steps), nil
}

// sentence names the step on which the next step depends. The caller holds mu.
func (d *Draft) sentence(on int) string {
	last := len(d.steps)
	if on < 1 || on > last {
		on = last
	}
	all := "1"
	if last > 1 {
		all = fmt.Sprintf("1-%d", last)
	}
	return fmt.Sprintf("Step %d depends on what step %d answers; approve %s, or run without dry_run and be asked.",
		last+1, on, all)
}

// compare finds the changes of a step to an object that the run has read. The caller holds mu.
func (d *Draft) compare(s Step) step {
	out := step{Step: s}
	before, known := d.seen[s.URL.String()]
	if s.Server != "" || !known {
		return out
	}
	// Drift is measured against the read value; the picture shows the changes since the previous step.
	_, about := changes(s.Method, before.was, s.Body)
	if len(about) > 0 {
		out.guard = &guard{read: before.read, before: object{}, about: about}
	}
	for _, name := range about {
		if v, has := before.was[name]; has {
			out.guard.before[name] = v
		}
	}
	if before.now != nil {
		out.changes, _ = changes(s.Method, before.now, s.Body)
		before.now = merge(s.Method, before.now, s.Body)
		d.seen[s.URL.String()] = before
	}
	return out
}

// Read notes a request that was sent, and the beginning of its answer if that is a JSON object.
func (d *Draft) Read(s Step, body []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reads++
	o := readObject(body)
	if s.Method != http.MethodGet || o == nil || d.over || len(d.seen) >= maxSeen {
		return
	}
	size := len(body) + s.size()
	if d.kept+size > maxSeenBytes || !d.book.take(d.tenant, size) {
		return
	}
	if d.seen == nil {
		d.seen = map[string]seen{}
	}
	d.kept += size
	d.seen[s.URL.String()] = seen{read: s, now: o, was: o}
}

// Cut sets the sentence that says why the plan may lack writes. It is empty if the code reached its end.
func (d *Draft) Cut(sentence string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended == "" { // an earlier reason names the cause
		d.ended = sentence
	}
}

// Seal ends the draft and makes it a plan that a person may approve. It returns nil if the run recorded no writes.
func (d *Draft) Seal() *planapi.Plan {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return nil
	}
	d.over = true
	// A plan needs only the guards of its steps, not all reads.
	d.book.give(d.tenant, d.kept)
	d.seen, d.kept = nil, 0
	if len(d.steps) == 0 {
		return nil
	}
	p := &entry{
		id: d.id, run: d.run, tenant: d.tenant, apis: d.apis, version: d.version, steps: d.steps, size: d.size,
		state: planapi.Open, digest: digest(d.id, d.run, d.version, d.steps), reads: d.reads, ended: d.ended,
		since: time.Now().UTC(), replies: make([]*planapi.Reply, len(d.steps)),
	}
	p.until = p.since.Add(lifeTime)
	// One step that only the operator may approve makes the whole plan the operator's.
	for _, s := range d.steps {
		p.operator = p.operator || s.Rule == "" || !s.ByAny
	}
	p.picture = p.draw()
	return d.book.add(p)
}

// Discard drops the draft.
func (d *Draft) Discard() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.over {
		d.over = true
		d.book.give(d.tenant, d.size+d.kept)
		d.steps, d.seen = nil, nil
	}
}

// draw returns the picture with a first line, and with the reason for an early end.
func (e *entry) draw() []string {
	apis := map[string]bool{}
	var steps []planapi.Step
	for i, s := range e.steps {
		steps = append(steps, s.shown(i+1, s.changes))
		for _, a := range s.APIs {
			apis[a] = true
		}
	}
	head := []string{
		"Plan " + e.id, count(len(steps), "write") + ", " + count(len(apis), "API"), count(e.reads, "read") + " done",
		"until " + e.until.UTC().Format("15:04 UTC"),
	}
	if e.ended != "" {
		head = slices.Insert(head, 1, "INCOMPLETE")
	}
	out := append([]string{strings.Join(head, " · ")}, picture(steps)...)
	if e.ended != "" {
		out = append(out, " "+e.ended)
	}
	return out
}

// count returns a number with its noun.
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

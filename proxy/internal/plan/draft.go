package plan

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
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
	store  *Store
	id     string
	run    string
	tenant string   // the run's tenant
	apis   []string // the run's APIs; nil means every active one

	mu      sync.Mutex
	version string // the catalog's version
	steps   []draftStep
	size    int
	seen    map[string]seenAnswer // by URL
	kept    int                   // the memory of seen, in bytes
	reads   int
	ended   string
	over    bool
}

// draftStep is a Step with the data for a comparison before it is sent.
type draftStep struct {
	Step
	changes []approvalapi.Change
	guard   *readGuard // nil if the run has not read the object that the step changes
}

// readGuard is a read of the run, with the values of the fields that a step concerns.
type readGuard struct {
	read   Step
	before jsonObject
	about  []string
}

// seenAnswer is an answer that the run has read. now is nil if a step left the object in an unknown state.
type seenAnswer struct {
	read Step
	now  jsonObject
	// was is the answer as the run read it, without the changes of steps.
	was jsonObject
}

// ID returns the id of the plan that the draft becomes.
func (d *Draft) ID() string { return d.id }

// AddStep records a request under the catalog's version, and returns the step's number. After an EndedError or ErrFull
// every further Add fails.
func (d *Draft) AddStep(s Step, version string) (int, error) {
	if _, ok := s.bodyText(); !ok || len(s.Body) > MaxBody {
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
	if on, is := findDependency(s); is && len(d.steps) > 0 {
		d.ended = d.explainDependency(fmt.Sprint("Step ", len(d.steps)+1), on)
		return 0, &EndedError{d.ended}
	}
	s.N = len(d.steps) + 1
	// The comparison itself takes memory, so it counts too.
	one := d.compareStep(s)
	size := s.memorySize()
	for _, c := range one.changes {
		size += len(c.Field) + len(c.Before) + len(c.After)
	}
	if one.guard != nil {
		size += one.guard.read.memorySize()
		for name, v := range one.guard.before {
			size += len(name) + len(v)
		}
	}
	// End the plan here: a later, smaller step must not follow a missing one.
	if len(d.steps) >= MaxSteps || d.size+size > maxBytes || !d.store.takeBytes(d.tenant, size) {
		d.ended = fmt.Sprintf("The plan has no room for more than these %d writes.", len(d.steps))
		return 0, ErrFull
	}
	d.version, d.size = version, d.size+size
	d.steps = append(d.steps, one)
	return len(d.steps), nil
}

// explainDependency names the step on which a read or the next step depends. The caller holds mu.
func (d *Draft) explainDependency(what string, on int) string {
	last := len(d.steps)
	if on < 1 || on > last {
		on = last
	}
	all := "1"
	if last > 1 {
		all = fmt.Sprintf("1-%d", last)
	}
	return fmt.Sprintf("%s depends on what step %d answers; approve %s, or run without dry_run and be asked.",
		what, on, all)
}

// compareStep finds the changes of a step to an object that the run has read. The caller holds mu.
func (d *Draft) compareStep(s Step) draftStep {
	out := draftStep{Step: s}
	before, known := d.seen[s.URL.String()]
	if s.Server != "" || !known {
		return out
	}
	// Drift is measured against the read value; the picture shows the changes since the previous step.
	_, about := listChanges(s.Method, before.was, s.Body)
	if len(about) > 0 {
		out.guard = &readGuard{read: before.read, before: jsonObject{}, about: about}
	}
	for _, name := range about {
		if v, has := before.was[name]; has {
			out.guard.before[name] = v
		}
	}
	if before.now != nil {
		out.changes, _ = listChanges(s.Method, before.now, s.Body)
		before.now = applyChanges(s.Method, before.now, s.Body)
		d.seen[s.URL.String()] = before
	}
	return out
}

// NoteRead notes a request that was sent, and the beginning of its answer if that is a JSON object.
func (d *Draft) NoteRead(s Step, body []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reads++
	// Later writes would depend on an answer about an object that does not exist.
	if s.URL != nil && len(d.steps) > 0 && d.ended == "" {
		if on := findReadDependency(s.URL); on > 0 {
			d.ended = d.explainDependency("A read", on)
		}
	}
	o := readObject(body)
	if s.Method != http.MethodGet || o == nil || d.over || len(d.seen) >= maxSeen {
		return
	}
	size := len(body) + s.memorySize()
	// Without room the plan only lacks a comparison, so the read of the run does not fail.
	if d.kept+size > maxSeenBytes || !d.store.takeBytes(d.tenant, size) {
		return
	}
	if d.seen == nil {
		d.seen = map[string]seenAnswer{}
	}
	d.kept += size
	d.seen[s.URL.String()] = seenAnswer{read: s, now: o, was: o}
}

// SetIncomplete sets the sentence that says why the plan may lack writes. It is empty if the code reached its end.
func (d *Draft) SetIncomplete(sentence string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended == "" { // an earlier reason names the cause
		d.ended = sentence
	}
}

// Seal ends the draft and makes it a plan that a person may approve. It returns nil if the run recorded no writes.
func (d *Draft) Seal() *approvalapi.Plan {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return nil
	}
	d.over = true
	// A plan needs only the guards of its steps, not all reads.
	d.store.giveBytes(d.tenant, d.kept)
	d.seen, d.kept = nil, 0
	if len(d.steps) == 0 {
		return nil
	}
	p := &storedPlan{
		id: d.id, run: d.run, tenant: d.tenant, apis: d.apis, version: d.version, steps: d.steps, size: d.size,
		state: approvalapi.StateOpen, digest: digestSteps(d.id, d.run, d.version, d.steps), reads: d.reads, ended: d.ended,
		since: time.Now().UTC(), replies: make([]*approvalapi.Reply, len(d.steps)),
	}
	p.until = p.since.Add(lifeTime)
	// One step that only the operator may approve makes the whole plan the operator's.
	for _, s := range d.steps {
		p.operator = p.operator || s.Rule == "" || !s.ByAny
	}
	p.picture = p.drawPicture()
	return d.store.addPlan(p)
}

// Discard drops the draft.
func (d *Draft) Discard() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.over {
		d.over = true
		d.store.giveBytes(d.tenant, d.size+d.kept)
		d.steps, d.seen = nil, nil
	}
}

// drawPicture returns the picture with a first line, and with the reason for an early end.
func (e *storedPlan) drawPicture() []string {
	apis := map[string]bool{}
	var steps []approvalapi.Step
	for i, s := range e.steps {
		steps = append(steps, s.toShown(i+1, s.changes))
		for _, a := range s.APIs {
			apis[a] = true
		}
	}
	head := []string{
		"Plan " + e.id, formatCount(len(steps), "write") + ", " + formatCount(len(apis), "API"),
		formatCount(e.reads, "read") + " done",
		"until " + e.until.UTC().Format("15:04 UTC"),
	}
	if e.ended != "" {
		head = slices.Insert(head, 1, "INCOMPLETE")
	}
	out := append([]string{strings.Join(head, " · ")}, drawSteps(steps)...)
	if e.ended != "" {
		out = append(out, " "+e.ended)
	}
	return out
}

// formatCount returns a number with its noun.
func formatCount(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

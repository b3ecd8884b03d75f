package approval

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// The bounds of one plan.
const (
	MaxSteps = 500
	// MaxBody bounds the body of a step, in bytes. It equals the limit for held requests that a person reads.
	MaxBody = 256 << 10
	// maxPlan bounds the memory of a plan's steps.
	maxPlan = 4 << 20
	// maxSeen and maxSeenBytes bound the answers that the draft keeps for comparison.
	maxSeen      = 1000
	maxSeenBytes = 2 << 20
	// MaxRead bounds one such answer, in bytes.
	MaxRead = 256 << 10
)

// ErrUnreadable is for a request that a person cannot read.
var ErrUnreadable = errors.New("the request cannot be shown")

// EndedError is for a step that depends on the answer to an earlier step, and for every step after it.
type EndedError struct {
	Sentence string
}

func (e *EndedError) Error() string { return e.Sentence }

// Draft is the plan of a run in progress. It is safe for concurrent use.
type Draft struct {
	store *Store
	entry *entry

	mu   sync.Mutex
	plan *plan
	size int                   // the memory of the steps, in bytes
	seen map[string]seenAnswer // by URL
	kept int                   // the memory of seen, in bytes
	over bool
}

// NewDraft begins the plan of a tenant's run that may use these APIs. A nil list means all APIs. The run's end calls
// Seal or Discard.
func (s *Store) NewDraft(run, tenant string, apis []string) *Draft {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &entry{id: newID(), tenant: tenant, state: stateDraft}
	s.plans.all = append(s.plans.all, e)
	return &Draft{store: s, entry: e, plan: &plan{Plan: approvalapi.Plan{ID: e.id, Run: run}, apis: apis}}
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
func (d *Draft) ID() string { return d.entry.id }

// takeBytes takes memory from the store.
func (d *Draft) takeBytes(n int) bool {
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	return d.store.plans.takeBytes(d.entry, n)
}

// AddStep records a request under the catalog's version, and returns the step's number. After an EndedError or ErrFull
// every further AddStep fails.
func (d *Draft) AddStep(s Step, version string) (int, error) {
	if !utf8.ValidString(s.Shown.Body) || len(s.Shown.Body) > MaxBody {
		return 0, ErrUnreadable
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.over:
		return 0, ErrFull
	case d.plan.Ended != "":
		return 0, &EndedError{d.plan.Ended}
	// A plan is sent under one version of the catalog only.
	case len(d.plan.steps) > 0 && d.plan.version != version:
		d.plan.Ended = "The configuration changed during the run."
		return 0, &EndedError{d.plan.Ended}
	}
	// The first step cannot depend on another, even if its text looks like a placeholder.
	if on, is := findDependency(s); is && len(d.plan.steps) > 0 {
		d.plan.Ended = d.explainDependency(fmt.Sprint("Step ", len(d.plan.steps)+1), on)
		return 0, &EndedError{d.plan.Ended}
	}
	s.Shown.N = len(d.plan.steps) + 1
	if s.Shown.Server == "" {
		s.Shown.URL = s.URL.String()
		d.compareStep(&s)
	}
	size := s.memorySize()
	// End the plan here: a later, smaller step must not follow a missing one.
	if len(d.plan.steps) >= MaxSteps || d.size+size > maxPlan || !d.takeBytes(size) {
		d.plan.Ended = fmt.Sprintf("The plan has no room for more than these %d writes.", len(d.plan.steps))
		return 0, ErrFull
	}
	d.plan.version, d.size = version, d.size+size
	d.plan.steps = append(d.plan.steps, s)
	return len(d.plan.steps), nil
}

// explainDependency names the step on which a read or the next step depends. The caller holds mu.
func (d *Draft) explainDependency(what string, on int) string {
	last := len(d.plan.steps)
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
func (d *Draft) compareStep(s *Step) {
	before, known := d.seen[s.Shown.URL]
	if !known {
		return
	}
	body := objectBody(s.Shown)
	named := body
	// Without a body that it can read, listChanges takes a POST to concern no field, and the read would not be repeated.
	if s.Method == http.MethodPost {
		named = nameFields(s.Shown)
	}
	// Drift is measured against the read value; the picture shows the changes since the previous step.
	_, about := listChanges(s.Method, before.was, named)
	if len(about) > 0 {
		s.guard = &readGuard{read: before.read, before: jsonObject{}, about: about}
	}
	for _, name := range about {
		if v, has := before.was[name]; has {
			s.guard.before[name] = v
		}
	}
	if before.now != nil {
		// A POST may act on all of its fields, such as the amount of a transfer, so a picture leaves out none of them.
		if s.Method != http.MethodPost {
			s.Shown.Changes, _ = listChanges(s.Method, before.now, body)
		}
		before.now = applyChanges(s.Method, before.now, body)
		d.seen[s.Shown.URL] = before
	}
}

// NoteRead notes a request that was sent, and the beginning of its answer if that is a JSON object.
func (d *Draft) NoteRead(s Step, body []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	// After Seal, the plan never changes.
	if d.over {
		return
	}
	d.plan.Reads++
	// Later writes would depend on an answer about an object that does not exist.
	if s.URL != nil && len(d.plan.steps) > 0 && d.plan.Ended == "" {
		if on := findReadDependency(s.URL); on > 0 {
			d.plan.Ended = d.explainDependency("A read", on)
		}
	}
	o := readObject(body)
	if s.Method != http.MethodGet || o == nil || len(d.seen) >= maxSeen {
		return
	}
	size := len(body) + s.memorySize()
	// Without room the plan only lacks a comparison, so the read of the run does not fail.
	if d.kept+size > maxSeenBytes || !d.takeBytes(size) {
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
	if !d.over && d.plan.Ended == "" { // an earlier reason names the cause
		d.plan.Ended = sentence
	}
}

// Seal ends the draft and makes it a plan that a person may approve. It returns nil if the run recorded no writes.
func (d *Draft) Seal() *approvalapi.Plan {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over || len(d.plan.steps) == 0 {
		d.discardLocked()
		return nil
	}
	d.over = true
	s, e, p := d.store, d.entry, d.plan
	s.mu.Lock()
	defer s.mu.Unlock()
	// A plan needs only the guards of its steps, not all reads.
	s.plans.giveBytes(e, d.kept)
	d.seen = nil
	p.Since, p.Writes, p.Digest = s.conf.Now().UTC(), len(p.steps), p.hashSteps()
	e.plan, e.state, e.until = p, approvalapi.StateOpen, p.Since.Add(lifeTime)
	for _, step := range p.steps {
		p.Steps = append(p.Steps, step.Shown)
		// One step that only the operator may approve makes the whole plan the operator's.
		p.Operator = p.Operator || step.Shown.Rule == "" || !step.ByAny
	}
	p.Picture = drawPlan(p.Plan, e.until)
	// The oldest plan is the one whose run ended first.
	s.plans.all = append(slices.DeleteFunc(s.plans.all, func(other *entry) bool { return other == e }), e)
	out := e.toBrief()
	return &out
}

// Discard drops the draft.
func (d *Draft) Discard() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.discardLocked()
}

// discardLocked drops the draft, unless it is over. The caller holds mu.
func (d *Draft) discardLocked() {
	if d.over {
		return
	}
	d.over, d.plan.steps, d.seen = true, nil, nil
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	d.store.plans.dropEntry(d.entry)
}

// drawPlan returns the picture of a plan with a first line, and with the reason for an early end.
func drawPlan(p approvalapi.Plan, until time.Time) []string {
	apis := map[string]bool{}
	for _, s := range p.Steps {
		for _, a := range s.APIs {
			apis[a] = true
		}
	}
	head := []string{
		"Plan " + p.ID, formatCount(p.Writes, "write") + ", " + formatCount(len(apis), "API"),
		formatCount(p.Reads, "read") + " done",
		"until " + until.Format("15:04 UTC"),
	}
	if p.Ended != "" {
		head = slices.Insert(head, 1, "INCOMPLETE")
	}
	out := append([]string{strings.Join(head, " · ")}, drawSteps(p.Steps)...)
	if p.Ended != "" {
		out = append(out, " "+p.Ended)
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

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
	// MaxBody bounds the body of a step, in bytes: as much as a person is shown of a held request.
	MaxBody = 256 << 10
	// maxBytes bounds what the steps of a plan take.
	maxBytes = 4 << 20
	// maxSeen and maxSeenBytes bound the answers that are remembered to be compared.
	maxSeen      = 1000
	maxSeenBytes = 2 << 20
	// MaxRead bounds one of them.
	MaxRead = 256 << 10
)

var (
	// ErrFull is for one step too many.
	ErrFull = errors.New("the plan has no room for the request")
	// ErrUnreadable is for a request that a person cannot be shown.
	ErrUnreadable = errors.New("the request cannot be shown")
)

// EndedError is for a step that depends on what an earlier one would answer, and for every step after it.
type EndedError struct {
	Sentence string
}

func (e *EndedError) Error() string { return e.Sentence }

// Draft is the plan of a run under way. Its methods may be called by many goroutines.
type Draft struct {
	book   *Book
	id     string
	run    string
	tenant string   // whose run it is
	apis   []string // of the run; nil: every active one

	mu      sync.Mutex
	version string // of the catalog
	steps   []step
	size    int
	seen    map[string]seen // by URL
	kept    int             // bytes of seen
	reads   int
	ended   string
	over    bool
}

// step is a Step with what is compared before it is sent.
type step struct {
	Step
	changes []planapi.Change
	guard   *guard // nil: the run has not read what it writes
}

// guard is a request that the run has sent, and what the answer said of the fields that a step is about.
type guard struct {
	read   Step
	before object
	about  []string
}

// seen is an answer that the run has read. The object is nil where a step has left unknown what there is.
type seen struct {
	read Step
	now  object
	// was is the answer itself, which the steps did not change.
	was object
}

// ID is that of the plan which it becomes.
func (d *Draft) ID() string { return d.id }

// Add records a request, under the catalog's version, and returns its number.
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
	case len(d.steps) > 0 && d.version != version:
		d.ended = "The configuration changed during the run."
		return 0, &EndedError{d.ended}
	}
	if on, is := depends(s); is && len(d.steps) > 0 {
		d.ended = d.sentence(on)
		return 0, &EndedError{d.ended}
	}
	s.N = len(d.steps) + 1
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
	if len(d.steps) >= MaxSteps || d.size+size > maxBytes || !d.book.take(d.tenant, size) {
		d.ended = fmt.Sprintf("The plan has no room for more than these %d writes.", len(d.steps))
		return 0, ErrFull
	}
	d.version, d.size = version, d.size+size
	d.steps = append(d.steps, one)
	return len(d.steps), nil
}

// sentence says on which step the next one depends. The caller holds the lock.
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

// compare finds what a step changes of what the run has read. The caller holds the lock.
func (d *Draft) compare(s Step) step {
	out := step{Step: s}
	before, known := d.seen[s.URL.String()]
	if s.Server != "" || !known {
		return out
	}
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

// Cut notes why the plan may lack writes, a sentence. Empty: the code reached its end.
func (d *Draft) Cut(sentence string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended == "" { // an earlier reason names the cause
		d.ended = sentence
	}
}

// Seal ends the draft: what it has recorded becomes a plan that a person may approve. It is nil if the run would have
// changed nothing.
func (d *Draft) Seal() *planapi.Plan {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return nil
	}
	d.over = true
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
	for _, s := range d.steps {
		p.operator = p.operator || s.Rule == "" || !s.ByAny
	}
	p.picture = p.draw()
	return d.book.add(p)
}

// Discard forgets the draft.
func (d *Draft) Discard() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.over {
		d.over = true
		d.book.give(d.tenant, d.size+d.kept)
		d.steps, d.seen = nil, nil
	}
}

// draw is the picture with its head and its end.
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

// count is a number of things.
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

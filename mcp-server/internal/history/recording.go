package history

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

const (
	// maxTitle bounds a title, and maxField a field from the client, in bytes.
	maxTitle = 120
	maxField = 200
	// maxOfRun bounds the stored exchanges of one run.
	maxOfRun = 2000
)

// Recording stores one run while it is in progress. A nil Recording stores no data.
type Recording struct {
	store *Store
	code  string
	line  string // the first line of the code, for the title; empty if the run gets none
	began time.Time

	mu      sync.Mutex
	run     operatorapi.Run
	started bool
	output  outputCapture
	kept    int // exchanges
	count   proxyapi.Count

	// number is the run's number in the database, and 0 before the first write. Only the writer uses it.
	number int64
	// stored are the IDs of exchanges that the writer has stored, and texts are their searchable texts. Only the writer
	// uses them, and only if failed is unchanged: a failed transaction may have rolled some back.
	stored map[string]bool
	texts  []string
	failed int64
}

// noteExchange records that an exchange of the run is stored.
func (r *Recording) noteExchange(x proxyapi.Exchange) {
	r.stored[x.ID] = true
	if len(r.texts) < 2*maxTexts {
		r.texts = append(r.texts, x.URL, x.Code)
	}
}

// BeginRecording starts to store a run. run has the fields that are known at its start. The Recording is nil if the
// store is off.
func (s *Store) BeginRecording(run operatorapi.Run, code string) *Recording {
	if s.isOff() {
		return nil
	}
	now := time.Now()
	sum := sha256.Sum256([]byte(code))
	run.Number, run.Began, run.State = s.nextNumber(), now.UTC(), operatorapi.Waiting
	run.CodeSHA, run.CodeBytes = hex.EncodeToString(sum[:]), len(code)
	run.Client, run.ClientVersion = s.cleanField(run.Client), s.cleanField(run.ClientVersion)
	run.Skills = listImportedSkills(code)
	run.APIs = []string{}
	r := &Recording{store: s, code: code, began: now, stored: map[string]bool{}, failed: s.failed.Load()}
	if s.cfg.Mode == Full {
		r.line = firstLine(code)
		run.Title = s.cleanTitle(r.line)
	}
	r.run = run
	// This precedes putState, because tidyEnds marks a stored run as lost if it is not live.
	s.mu.Lock()
	s.live[run.ID] = r
	s.mu.Unlock()
	r.putState(run)
	return r
}

// putState stores the present state of the run, and notifies followers.
func (r *Recording) putState(run operatorapi.Run) {
	e := operatorapi.HistoryEvent{Kind: operatorapi.EventRun, RunID: run.ID, Run: &run}
	r.store.feed.publishEvent(e)
	r.store.queueJob(writeJob{run: run.Number, do: func(ctx context.Context, tx *writeTransaction) error {
		// Here and not in Begin: the proxy may be slow, and a run must not wait for it.
		line, _, err := r.store.scrubByProxy(ctx, r.line, nil)
		if err != nil {
			r.store.logUnscrubbed(err)
		}
		run.Title = r.store.cleanTitle(line)
		e.Run = &run
		tx.events = append(tx.events, e)
		return r.putRun(ctx, tx, &run, "[]")
	}})
}

// putRun stores the run under its number in the database.
func (r *Recording) putRun(ctx context.Context, tx *writeTransaction, run *operatorapi.Run, hints string) error {
	run.Number = cmp.Or(r.number, run.Number)
	err := putRun(ctx, tx, run, hints)
	r.number = run.Number
	return err
}

// RecordSlot records that the run has its slot.
func (r *Recording) RecordSlot(slot int, generation uint64) {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.started = true
	r.run.State, r.run.Slot, r.run.Generation = operatorapi.Running, slot, generation
	r.run.WaitedMS = time.Since(r.began).Milliseconds()
	run := r.run
	r.mu.Unlock()
	r.putState(run)
}

// RecordOutput stores output of the code.
func (r *Recording) RecordOutput(stdout, stderr string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.run.StdoutBytes += int64(len(stdout))
	r.run.StderrBytes += int64(len(stderr))
	r.mu.Unlock()
	if r.store.cfg.Mode != Full {
		return
	}
	ms := time.Since(r.began).Milliseconds()
	for _, p := range []operatorapi.Print{{MS: ms, Text: stdout}, {MS: ms, Err: true, Text: stderr}} {
		if p.Text == "" {
			continue
		}
		r.mu.Lock()
		r.output.addPiece(p)
		r.mu.Unlock()
		// Followers see the piece at once, so it is cleaned alone; the stored output is cleaned as a whole at the end.
		p.Text = r.store.cfg.Clean(p.Text)
		r.store.feed.publishEvent(operatorapi.HistoryEvent{Kind: operatorapi.EventPrint, RunID: r.run.ID, Print: &p})
	}
}

// RunEnd is the result of a run.
type RunEnd struct {
	// Exit has a Reason if the code was started. Otherwise Reason says why it was not.
	Exit    sandboxapi.Exit
	Reason  string
	Stopped bool // by its client, or by mcp-server's end
	Frozen  bool // by an alarm of its session
	Receipt proxyapi.Receipt
	Lost    bool // the receipt was lost
	// Answer is the text that the model got. Detail is the reason why there was no exit.
	Answer, Detail string
}

// RecordEnd stores the end of the run.
func (r *Recording) RecordEnd(e RunEnd) {
	if r == nil {
		return
	}
	s := r.store
	now := time.Now()
	r.mu.Lock()
	// Copied under the lock: Exchange and Print may still be called from other goroutines.
	run, seen, started := r.run, r.count, r.started
	output := r.output.collectedOutput()
	r.mu.Unlock()
	run.Ended, run.State, run.Reason = now.UTC(), endState(e), cmp.Or(string(e.Exit.Reason), e.Reason)
	run.ExitCode, run.Warm, run.CPUMS, run.MaxRSS = e.Exit.Code, e.Exit.Warm, e.Exit.CPUMS, e.Exit.MaxRSS
	switch {
	case e.Exit.Reason != "":
		run.WallMS, run.StdoutBytes, run.StderrBytes = e.Exit.WallMS, e.Exit.StdoutBytes, e.Exit.StderrBytes
	case started: // its exit is unknown
		run.WallMS = now.Sub(r.began).Milliseconds() - run.WaitedMS
	}
	run.Shown, run.Count, run.ReceiptLost = int64(len(e.Answer)), e.Receipt.Count, e.Lost
	if seen.Exchanges > run.Count.Exchanges { // the receipt is lost
		run.Count = seen
	}
	run.Audit = e.Receipt.Audit
	run.APIs = listUsedAPIs(e.Receipt.Exchanges)
	s.mu.Lock()
	delete(s.live, run.ID)
	s.mu.Unlock()
	s.feed.publishEvent(operatorapi.HistoryEvent{Kind: operatorapi.EventRun, RunID: run.ID, Run: &run})
	done := writeJob{run: run.Number, do: func(ctx context.Context, tx *writeTransaction) error {
		return r.writeEnd(ctx, tx, run, e.Receipt, nil)
	}}
	// If the queue is crowded, code and output are dropped first: they are larger than the receipts.
	if s.cfg.Mode == Full && !s.isCrowded() {
		c := runContent{
			Code: cutMiddle(r.code), Output: output, Answer: cutMiddle(e.Answer), Exit: cmp.Or(e.Exit.Detail, e.Detail),
		}
		done.size = c.storedSize()
		done.do = func(ctx context.Context, tx *writeTransaction) error { return r.writeEnd(ctx, tx, run, e.Receipt, &c) }
	}
	s.queueJob(done)
}

func endState(e RunEnd) string {
	switch {
	case e.Frozen || e.Receipt.Alarm != nil:
		return operatorapi.Frozen
	case e.Stopped || e.Exit.Reason == sandboxapi.Cancelled:
		return operatorapi.Stopped
	case e.Exit.Reason == sandboxapi.Exited && e.Exit.Code == 0:
		return operatorapi.OK
	}
	return operatorapi.Failed
}

// listUsedAPIs returns the APIs of exchanges, sorted.
func listUsedAPIs(list []proxyapi.Exchange) []string {
	out := []string{}
	for _, x := range list {
		out = append(out, x.APIs...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// RecordExchange stores an exchange that the proxy reports: of a run, an MCP server or an installation. The further
// data of the run's receipt is stored at the run's end.
func (s *Store) RecordExchange(x proxyapi.Exchange) {
	if s.isOff() {
		return
	}
	s.mu.Lock()
	r := s.live[x.Run]
	s.mu.Unlock()
	full := false
	if r != nil {
		// Counted here and not in the writer, so that an open page sees the numbers at once.
		r.mu.Lock()
		r.kept++
		r.count.AddExchange(x)
		full = r.kept > maxOfRun
		r.mu.Unlock()
	}
	e := operatorapi.Exchange{Number: s.nextNumber(), Exchange: x}
	s.feed.publishEvent(operatorapi.HistoryEvent{Kind: operatorapi.EventExchange, RunID: x.Run, Exchange: &e})
	if full {
		return // the receipt counts it, and so does an open page
	}
	s.queueJob(writeJob{do: func(ctx context.Context, tx *writeTransaction) error {
		err := putExchange(ctx, tx, e)
		if err == nil && r != nil {
			r.noteExchange(e.Exchange)
		}
		return err
	}})
}

// RecordSent stores the exchanges of a receipt that the proxy has not reported, of an MCP server or an installation.
func (s *Store) RecordSent(list []proxyapi.Exchange) {
	s.queueJob(writeJob{do: func(ctx context.Context, tx *writeTransaction) error {
		for _, x := range list {
			if err := putExchange(ctx, tx, operatorapi.Exchange{Number: s.nextNumber(), Exchange: x}); err != nil {
				return err
			}
		}
		return nil
	}})
}

// NotifyGap notifies followers that they may have missed exchanges.
func (s *Store) NotifyGap() {
	if !s.isOff() {
		s.feed.publishEvent(operatorapi.HistoryEvent{Kind: operatorapi.EventGap})
	}
}

// writeEnd stores a finished run, with its content unless that is nil.
func (r *Recording) writeEnd(
	ctx context.Context, tx *writeTransaction, run operatorapi.Run, rec proxyapi.Receipt, c *runContent,
) error {
	s := r.store
	if tx.again {
		var stored bool
		err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM words WHERE rowid = $1)`, r.number).Scan(&stored)
		if err != nil || stored { // the sums must not count it twice
			return err
		}
	}
	sure := s.failed.Load() == r.failed
	// After a rollback the cache may name exchanges that are not in the database.
	if !sure {
		clear(r.stored)
	}
	for _, x := range rec.Exchanges {
		for _, one := range append([]proxyapi.Exchange{x}, x.Caused...) {
			// The receipt may add causes to an exchange that was stored without them.
			if r.stored[one.ID] && one.Among == 0 {
				continue
			}
			if err := putExchange(ctx, tx, operatorapi.Exchange{Number: s.nextNumber(), Exchange: one}); err != nil {
				return err
			}
			if one.Run == run.ID {
				r.noteExchange(one)
			}
		}
	}
	kept, texts := len(r.stored), r.texts
	if !sure {
		err := tx.QueryRowContext(ctx, `SELECT count(*) FROM exchange WHERE run = $1`, run.ID).Scan(&kept)
		if err != nil {
			return err
		}
		if texts, err = exchangeTexts(ctx, tx, run.ID); err != nil {
			return err
		}
	}
	run.Omitted = max(0, run.Count.Exchanges-kept)
	hints, err := json.Marshal(rec.Hints)
	if err != nil {
		return err
	}
	line, c, err := s.scrubByProxy(ctx, r.line, c)
	if err != nil {
		s.logUnscrubbed(err)
	}
	run.Title = s.cleanTitle(line)
	if err := r.putRun(ctx, tx, &run, string(hints)); err != nil {
		return err
	}
	if err := putFacts(ctx, tx, run, rec.Exchanges); err != nil {
		return err
	}
	if c != nil {
		kept := c.cleanTexts(s.cfg.Clean).cutMargins()
		c = &kept
		if err := putContent(ctx, tx, run.Number, kept); err != nil {
			return err
		}
	}
	tx.last = append(tx.last, func() error { return putWords(ctx, tx, run, texts, c) })
	if err := putCheckpoint(ctx, tx, run); err != nil {
		return err
	}
	tx.events = append(tx.events, operatorapi.HistoryEvent{Kind: operatorapi.EventRun, RunID: run.ID, Run: &run})
	return s.addRunTotals(ctx, tx, run, rec.Exchanges, s.AddAlert)
}

// cleanField bounds and cleans a text from outside.
func (s *Store) cleanField(text string) string {
	return safetext.CutText(strings.ToValidUTF8(s.cfg.Clean(text), "\uFFFD"), maxField, "")
}

// importedSkill matches an import of a skill in code.
var importedSkill = regexp.MustCompile(`["'](?:file://)?/skills/([\w-]{1,64})\.ts["']|` +
	`(?m)^\s*(?:from|import)\s+skills\.(\w{1,64})`)

// listImportedSkills returns the skills that code appears to import, sorted.
func listImportedSkills(code string) []string {
	if !strings.Contains(code, "skills") { // much cheaper than the expression
		return nil
	}
	var out []string
	for _, m := range importedSkill.FindAllStringSubmatch(code, 100) {
		if m[2] != "" {
			m[1] = m[2] + ".py"
		}
		out = append(out, m[1])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// maxLine bounds the line from which a title is cut, in bytes. The whole line is scrubbed before the cut, because half
// of a credential would not be found.
const maxLine = 64 << 10

// cleanTitle returns the title of a run whose code has this first line.
func (s *Store) cleanTitle(line string) string {
	return s.cleanField(safetext.CutText(line, maxTitle, ""))
}

// firstLine returns the first line of the comment at the start of the code, or else of the code.
func firstLine(code string) string {
	first := ""
	for line := range strings.Lines(code) {
		line = strings.TrimSpace(line)
		text := strings.TrimSpace(strings.TrimLeft(line, "/*#!\"'"))
		switch {
		case text == "":
			continue
		case text != line:
			return safetext.CutText(text, maxLine, "")
		case first == "":
			first = line
		}
		break
	}
	return safetext.CutText(first, maxLine, "")
}

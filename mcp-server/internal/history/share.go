package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/mcp-server/historyapi"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bucket"
)

const (
	// gatherTime is the wait for more runs to end before they are put in the bucket.
	gatherTime = 250 * time.Millisecond
	// lookTime is the time between two looks at the bucket, retryTime the pause after a failure to put something there.
	lookTime  = 3 * time.Second
	retryTime = 5 * time.Second
	// overlap is how far each look goes back before the one before it: for clocks that differ, and objects under way.
	// wideOverlap is that of one every tidyTime, for those that differ more.
	overlap     = 45 * time.Second
	wideOverlap = 24 * time.Hour
	// flushTime bounds the wait of a person who removes runs.
	flushTime = 15 * time.Second
	// requests is how many requests there are at a time.
	requests = 8
	// maxPassed bounds the names of objects that need not be read again.
	maxPassed = 10_000
)

// share keeps a store and a bucket the same, as far as both keep things: what ends here is put there, and what others
// put there comes into the store, also from before this one's time.
//
// Contract: no run, and no writer of the store, waits for the bucket. What is still to be put there is a list in the
// store's file, so it outlives this process as long as the file does, and is bounded as runs are. The nil share does
// nothing.
//
// Threat: whoever may write to the bucket. An object is bounded before it is read, checked, and else skipped and
// counted; none changes a run that is known. They can make up runs, and remove any.
type share struct {
	store          *Store
	of             *bucket.Bucket
	runs, contents *bucket.Bucket

	poke    chan struct{}
	asked   chan chan error
	loads   chan struct{}
	stop    context.CancelFunc
	stopped context.Context
	parts   sync.WaitGroup
	once    sync.Once

	// passed are the keys of objects that need not be read again though no run has them. Only the looker uses it.
	passed map[string]bool

	// sums is how many more rows of sums runs of others may add, as counted at a time. Only the writer uses them.
	sums, mostSums int64
	counted        time.Time

	mu            sync.Mutex
	problems      [2]string // of putting, of looking
	loading       bool
	skipped, lost int64
}

// The indices of share.problems.
const (
	putting = iota
	looking
)

func newShare(s *Store, of *bucket.Bucket) *share {
	under := of.Under("history")
	h := &share{
		store: s, of: of, runs: under.Under(runsFolder), contents: under.Under(contentFolder), loading: true,
		poke: make(chan struct{}, 1), asked: make(chan chan error), loads: make(chan struct{}, 1), passed: map[string]bool{},
		mostSums: maxSums,
	}
	h.stopped, h.stop = context.WithCancel(context.Background())
	return h
}

func (h *share) start() {
	if h == nil {
		return
	}
	h.parts.Go(func() { h.putAlways(h.stopped) })
	h.parts.Go(func() { h.lookAlways(h.stopped) })
}

// close puts what is left into the bucket, as long as two thirds of ctx allow, and ends.
func (h *share) close(ctx context.Context) {
	if h == nil {
		return
	}
	h.once.Do(func() {
		h.stop()
		h.parts.Wait()
		if end, ok := ctx.Deadline(); ok {
			short, cancel := context.WithTimeout(ctx, time.Until(end)*2/3)
			defer cancel()
			ctx = short
		}
		if err := h.putAll(ctx); err != nil {
			h.store.cfg.Log.Error("the latest runs are not in the bucket, and may be lost with this store",
				logline.Tag("history"), slog.String("error", err.Error()))
		}
	})
}

// wake tells that a run which has ended is in the file.
func (h *share) wake() {
	if h == nil {
		return
	}
	select {
	case h.poke <- struct{}{}:
	default:
	}
}

// reload tells that the file was replaced by a new one.
func (h *share) reload() {
	if h == nil {
		return
	}
	select {
	case h.loads <- struct{}{}:
	default:
	}
}

// flush waits until the bucket has been told what is gone.
func (h *share) flush(ctx context.Context) error {
	if h == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	err := h.told(ctx)
	if err != nil {
		return fmt.Errorf("removed here; the bucket has not confirmed it, and is told again until it does: %w", err)
	}
	return nil
}

func (h *share) told(ctx context.Context) error {
	done := make(chan error, 1)
	for asked := h.asked; ; {
		select {
		case asked <- done:
			asked = nil
		case err := <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-h.stopped.Done():
			return h.stopped.Err()
		}
	}
}

// putAlways puts what ends here into the bucket.
func (h *share) putAlways(ctx context.Context) {
	again := time.NewTimer(0) // what an earlier process has left
	defer again.Stop()
	for {
		var asked chan error
		select {
		case <-ctx.Done():
			return
		case asked = <-h.asked:
		case <-again.C:
		case <-h.poke:
			select {
			case <-ctx.Done():
				return
			case asked = <-h.asked:
			case <-time.After(gatherTime):
			}
		}
		err := h.putAll(ctx)
		if asked != nil {
			asked <- err
		}
		h.say(ctx, putting, err)
		if err != nil {
			again.Reset(retryTime)
		}
	}
}

// lookAlways brings what others put into the bucket into the store, and removes from the bucket what is too old.
func (h *share) lookAlways(ctx context.Context) {
	tick := time.NewTicker(lookTime)
	defer tick.Stop()
	since := time.Now()
	var wide time.Time // the last wide look
	loaded := false
	for {
		began := time.Now()
		err := h.look(ctx, since.Add(-overlap))
		if err == nil {
			since = began
		}
		if err == nil && !loaded {
			if err = h.load(ctx); err == nil {
				loaded, wide = true, began
				h.setLoading(false)
			}
		}
		if err == nil && time.Since(wide) > tidyTime {
			wide = began
			err = errors.Join(h.look(ctx, began.Add(-wideOverlap)), h.tidy(ctx))
		}
		h.say(ctx, looking, err)
		select {
		case <-ctx.Done():
			return
		case <-h.loads:
			loaded = false
			h.setLoading(true)
		case <-tick.C:
		}
	}
}

func (h *share) setLoading(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loading = on
}

// say logs a problem when it begins and when it is over.
func (h *share) say(ctx context.Context, which int, err error) {
	if ctx.Err() != nil {
		return
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	h.mu.Lock()
	was := h.problems[which]
	h.problems[which] = text
	h.mu.Unlock()
	what := [2][2]string{
		{"runs cannot be put in the bucket, and wait", "runs are put in the bucket again"},
		{"the runs of others cannot be read from the bucket", "the runs of others are read from the bucket again"},
	}[which]
	switch {
	case text != "" && was == "":
		h.store.cfg.Log.Error(what[0], logline.Tag("history"), slog.String("error", text))
	case text == "" && was != "":
		h.store.cfg.Log.Info(what[1], logline.Tag("history"))
	}
}

// skip counts an object that is left out.
func (h *share) skip(key string, err error) {
	h.pass(key)
	h.mu.Lock()
	h.skipped++
	first := h.skipped == 1
	h.mu.Unlock()
	if first {
		h.store.cfg.Log.Warn("an object in the bucket of runs is skipped, and so will be others like it",
			logline.Tag("history"), slog.String("object", key), slog.String("error", err.Error()))
	}
}

// pass remembers that an object need not be read again.
func (h *share) pass(key string) {
	if len(h.passed) >= maxPassed {
		clear(h.passed)
	}
	h.passed[key] = true
}

// status says how far this store has kept up.
func (h *share) status(ctx context.Context, db row) (*historyapi.Bucket, error) {
	out := &historyapi.Bucket{Address: h.of.String()}
	err := db.QueryRowContext(ctx, `SELECT count(*) FROM shared WHERE sent = 0`).Scan(&out.Waiting)
	h.mu.Lock()
	defer h.mu.Unlock()
	out.Skipped, out.Lost, out.Loading = h.skipped, h.lost, h.loading
	if out.Problem = h.problems[putting]; out.Problem == "" {
		out.Problem = h.problems[looking]
	}
	return out, err
}

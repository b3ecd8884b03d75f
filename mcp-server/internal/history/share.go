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
	// gatherDelay is how long an ended run waits for others, so that they are uploaded together.
	gatherDelay = 250 * time.Millisecond
	// pollInterval is the time between two polls of the bucket, retryDelay the pause after a failed upload.
	pollInterval = 3 * time.Second
	retryDelay   = 5 * time.Second
	// overlap is how far each poll reaches back before the previous one, for clock skew and for uploads in flight. Every
	// tidyTime a poll reaches back by wideOverlap, for larger skew.
	overlap     = 45 * time.Second
	wideOverlap = 24 * time.Hour
	// flushTime bounds how long a person who removes runs waits for the bucket.
	flushTime = 15 * time.Second
	// requests is how many requests are made at a time.
	requests = 8
	// maxIgnored bounds the names of objects that need not be read again.
	maxIgnored = 10_000
)

// share synchronises a store with a bucket: runs that end here are uploaded, and runs that others uploaded are
// imported, including those from before this store existed.
//
// Contract: neither a run nor the store's writer waits for the bucket. The upload queue is a table in the store's file,
// so it survives this process as long as the file does, and it is bounded as runs are. The nil share does nothing.
//
// Threat: whoever may write to the bucket. An object's size is bounded before it is read; one that fails a check is
// skipped and counted, and none changes a run that is known. They can make up runs, and remove any.
type share struct {
	store          *Store
	of             *bucket.Bucket
	runs, contents *bucket.Bucket

	ended   chan struct{}
	flushes chan chan error
	reloads chan struct{}
	stop    context.CancelFunc
	stopped context.Context
	parts   sync.WaitGroup
	once    sync.Once

	// ignored are the keys of objects that need not be read again though no run has them. Only pollLoop uses it.
	ignored map[string]bool

	// sums is how many more rows of sums runs of others may add, as counted at a time. Only the writer uses them.
	sums, mostSums int64
	counted        time.Time

	mu            sync.Mutex
	problems      [2]string // of uploading, of polling
	loading       bool
	skipped, lost int64
}

// The indices of share.problems.
const (
	uploading = iota
	polling
)

func newShare(s *Store, of *bucket.Bucket) *share {
	under := of.Under("history")
	h := &share{
		store: s, of: of, runs: under.Under(runsFolder), contents: under.Under(contentFolder), loading: true,
		ended: make(chan struct{}, 1), flushes: make(chan chan error), reloads: make(chan struct{}, 1),
		ignored: map[string]bool{}, mostSums: maxSums,
	}
	h.stopped, h.stop = context.WithCancel(context.Background())
	return h
}

func (h *share) start() {
	if h == nil {
		return
	}
	h.parts.Go(func() { h.uploadLoop(h.stopped) })
	h.parts.Go(func() { h.pollLoop(h.stopped) })
}

// close uploads what is left, within two thirds of the time that ctx has, and stops.
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
		err := h.store.ask(ctx, func(context.Context, *transaction) error { return nil }) // for what is queued
		if err = errors.Join(err, h.uploadAll(ctx)); err != nil {
			h.store.cfg.Log.Error("the latest runs are not in the bucket: they are lost if this store is",
				logline.Tag("history"), slog.String("error", err.Error()))
		}
	})
}

// wake notifies uploadLoop that an ended run is in the file.
func (h *share) wake() {
	if h == nil {
		return
	}
	select {
	case h.ended <- struct{}{}:
	default:
	}
}

// reload notifies pollLoop that the file was replaced by a new one.
func (h *share) reload() {
	if h == nil {
		return
	}
	select {
	case h.reloads <- struct{}{}:
	default:
	}
}

// flush waits until all removals are in the bucket.
func (h *share) flush(ctx context.Context) error {
	if h == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	err := h.requestUpload(ctx)
	if err != nil {
		return fmt.Errorf("removed here; the bucket has not confirmed it, and CodeForge retries until it does: %w", err)
	}
	return nil
}

// requestUpload has uploadLoop upload everything now, and returns its error.
func (h *share) requestUpload(ctx context.Context) error {
	done := make(chan error, 1)
	for asked := h.flushes; ; {
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

// uploadLoop uploads the runs and removals of this store.
func (h *share) uploadLoop(ctx context.Context) {
	again := time.NewTimer(0) // for what an earlier process left
	defer again.Stop()
	for {
		var asked chan error
		select {
		case <-ctx.Done():
			return
		case asked = <-h.flushes:
		case <-again.C:
		case <-h.ended:
			select {
			case <-ctx.Done():
				return
			case asked = <-h.flushes:
			case <-time.After(gatherDelay):
			}
		}
		err := h.uploadAll(ctx)
		if asked != nil {
			asked <- err
		}
		h.report(ctx, uploading, err)
		if err != nil {
			again.Reset(retryDelay)
		}
	}
}

// pollLoop imports what others uploaded, and removes from the bucket what is too old.
func (h *share) pollLoop(ctx context.Context) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	since := time.Now()
	var wide time.Time // the last poll with wideOverlap
	loaded := false
	for {
		began := time.Now()
		err := h.poll(ctx, since.Add(-overlap))
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
			err = errors.Join(h.poll(ctx, began.Add(-wideOverlap)), h.tidy(ctx))
		}
		h.report(ctx, polling, err)
		select {
		case <-ctx.Done():
			return
		case <-h.reloads:
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

// report logs a problem once when it begins and once when it is over.
func (h *share) report(ctx context.Context, which int, err error) {
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
		{"runs cannot be uploaded to the bucket, and are queued", "runs are uploaded to the bucket again"},
		{"the runs of others cannot be read from the bucket", "the runs of others are read from the bucket again"},
	}[which]
	switch {
	case text != "" && was == "":
		h.store.cfg.Log.Error(what[0], logline.Tag("history"), slog.String("error", text))
	case text == "" && was != "":
		h.store.cfg.Log.Info(what[1], logline.Tag("history"))
	}
}

// skip counts an object that cannot be imported.
func (h *share) skip(key string, err error) {
	h.ignore(key)
	h.mu.Lock()
	h.skipped++
	first := h.skipped == 1
	h.mu.Unlock()
	if first {
		h.store.cfg.Log.Warn("an object in the bucket is skipped, and later ones like it are skipped without a warning",
			logline.Tag("history"), slog.String("object", key), slog.String("error", err.Error()))
	}
}

// ignore records that an object need not be read again.
func (h *share) ignore(key string) {
	if len(h.ignored) >= maxIgnored {
		clear(h.ignored)
	}
	h.ignored[key] = true
}

// status reports how far the store and the bucket are in step.
func (h *share) status(ctx context.Context, db row) (*historyapi.Bucket, error) {
	out := &historyapi.Bucket{Address: h.of.String()}
	err := db.QueryRowContext(ctx, `SELECT count(*) FROM shared WHERE sent = 0`).Scan(&out.Waiting)
	h.mu.Lock()
	defer h.mu.Unlock()
	out.Skipped, out.Lost, out.Loading = h.skipped, h.lost, h.loading
	if out.Problem = h.problems[uploading]; out.Problem == "" {
		out.Problem = h.problems[polling]
	}
	return out, err
}

package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/codeforge-mcp/codeforge/mcp-server/historyapi"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// replayAll stores objects, and returns the runs that are new. One that cannot be stored is skipped.
func (h *share) replayAll(ctx context.Context, list []*replay) ([]historyapi.Run, error) {
	added, err := h.replaySome(ctx, list)
	if !faulty(err) {
		return added, err
	}
	for _, o := range list {
		one, err := h.replaySome(ctx, []*replay{o})
		if faulty(err) {
			h.skip(o.key, err)
			continue
		}
		if err != nil {
			return added, err
		}
		added = append(added, one...)
	}
	return added, nil
}

// replaySome stores objects, all or none. Afterwards it ignores those whose keys are not in the store: removals, and
// second objects of known runs.
func (h *share) replaySome(ctx context.Context, list []*replay) ([]historyapi.Run, error) {
	var added []historyapi.Run
	err := h.store.ask(ctx, func(ctx context.Context, tx *transaction) error {
		for _, o := range list {
			run, err := h.replayOne(ctx, tx, o)
			if err != nil {
				return err
			}
			if run != nil {
				added = append(added, *run)
			}
		}
		return nil
	})
	if err != nil { // the writer may still be working on it
		return nil, err
	}
	for _, o := range list {
		if len(o.gone) > 0 || o.known {
			h.ignore(o.key)
		}
	}
	return added, nil
}

// replayOne stores an object. The run is nil if the object is a removal, or if its run is known.
func (h *share) replayOne(ctx context.Context, tx *transaction, o *replay) (*historyapi.Run, error) {
	if len(o.gone) > 0 {
		return nil, h.removeAll(ctx, tx, o.gone)
	}
	s := h.store
	err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM run WHERE id = ?1) OR
		EXISTS (SELECT 1 FROM gone WHERE id = ?1)`, o.run.ID).Scan(&o.known)
	if err != nil || o.known {
		return nil, err
	}
	if tx.room, err = h.roomForSums(ctx, tx); err != nil {
		return nil, err
	}
	defer func() { tx.room = nil }()
	run := h.localise(o.run)
	run.Number, err = free(ctx, tx, `SELECT EXISTS (SELECT 1 FROM run WHERE number = ?)`, run.Began.UnixMicro())
	if err != nil {
		return nil, err
	}
	for i := range o.hints {
		o.hints[i].Text, o.hints[i].Person = s.cfg.Clean(o.hints[i].Text), s.cfg.Clean(o.hints[i].Person)
	}
	for i := range o.exchanges {
		h.cleanExchange(&o.exchanges[i].Exchange)
	}
	hints, err := json.Marshal(o.hints)
	if err != nil {
		return nil, err
	}
	if err := putRun(ctx, tx, run, string(hints)); err != nil {
		return nil, err
	}
	list, texts, err := replayExchanges(ctx, tx, o.exchanges)
	if err == nil {
		err = putFacts(ctx, tx, run, list)
	}
	c := o.content
	if err == nil && c != nil {
		cleaned := c.clean(s.cfg.Clean)
		c = &cleaned
		err = putContent(ctx, tx, run.Number, cleaned)
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, `INSERT INTO shared VALUES (?, ?, 1)`, run.Number, o.key)
	}
	if err != nil {
		return nil, fmt.Errorf("storing run %s: %w", run.ID, err)
	}
	tx.last = append(tx.last, func() error { return putWords(ctx, tx, run, texts, c) })
	if run.Ended.IsZero() {
		return &run, nil
	}
	if countAPIs(list) > maxAPIs {
		list = nil // the run is kept; the pairs would be too many to be true
	}
	quiet := func(historyapi.Alert) {} // the store that ran it has raised its alerts
	return &run, s.sum(ctx, tx, run, list, quiet)
}

const (
	// maxAPIs is how many APIs a run from the bucket may have for its pairs of them to be summed up.
	maxAPIs = 100
	// maxRemoved bounds the tombstones from the bucket. Beyond it the oldest are dropped.
	maxRemoved = 200_000
	// maxSums is how many rows of sums there may be for runs of others to add some. Beyond it those of a time share one:
	// others could make up any number of hosts and names, and nothing removes sums before their time.
	maxSums = 2_000_000
)

// roomForSums returns how many more rows runs from the bucket may add to the sums.
func (h *share) roomForSums(ctx context.Context, tx *transaction) (*int64, error) {
	if time.Since(h.counted) > tidyTime {
		var n int64
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM hour`).Scan(&n); err != nil {
			return nil, err
		}
		h.sums, h.counted = h.mostSums-n, time.Now()
	}
	return &h.sums, nil
}

// countAPIs returns how many APIs there are in a list.
func countAPIs(list []controlapi.Exchange) int {
	seen := map[string]bool{}
	for _, x := range list {
		if len(x.APIs) > 0 {
			seen[x.APIs[0]] = true
		}
	}
	return len(seen)
}

// replayExchanges stores the exchanges of a run, except those that the proxy has already reported.
func replayExchanges(
	ctx context.Context, tx *transaction, exchanges []historyapi.Exchange,
) (list []controlapi.Exchange, texts []string, err error) {
	number := int64(0)
	for _, x := range exchanges {
		list = append(list, x.Exchange)
		if len(texts) < 2*maxTexts {
			texts = append(texts, x.URL, x.Code)
		}
		number, err = free(ctx, tx, `SELECT EXISTS (SELECT 1 FROM exchange WHERE number = ?)`,
			max(number+2, x.At.UnixMicro()))
		if err != nil {
			return nil, nil, err
		}
		x.Number = number
		if err := putExchange(ctx, tx, x); err != nil {
			return nil, nil, err
		}
	}
	return list, texts, nil
}

// cleanExchange redacts what the code of another store's run chose of an exchange.
func (h *share) cleanExchange(x *controlapi.Exchange) {
	x.URL, x.Host = h.store.cfg.Clean(x.URL), h.store.cfg.Clean(x.Host)
	for i := range x.Caused {
		h.cleanExchange(&x.Caused[i])
	}
}

// localise applies this store's settings to a run of another store.
func (h *share) localise(run historyapi.Run) historyapi.Run {
	s := h.store
	run.Client, run.ClientVersion = s.field(run.Client), s.field(run.ClientVersion)
	if run.Title = s.field(run.Title); s.cfg.Mode != Full {
		run.Title = ""
	}
	run.Spans = nil
	return run
}

// removeAll removes runs that a person removed in another store, except those still under way here.
func (h *share) removeAll(ctx context.Context, tx *transaction, ids []string) error {
	for _, id := range ids {
		h.store.mu.Lock()
		live := h.store.live[id] != nil
		h.store.mu.Unlock()
		if live {
			continue
		}
		if err := removeRun(ctx, tx, id); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO gone VALUES (?, ?, '', 1)`, id, h.store.number())
		if err != nil {
			return err
		}
	}
	var n int
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM gone`).Scan(&n); err != nil || n <= maxRemoved {
		return err
	}
	_, err := tx.ExecContext(ctx, `DELETE FROM gone WHERE told = 1 AND at < (SELECT at FROM gone ORDER BY at DESC
		LIMIT 1 OFFSET ?)`, maxRemoved/2)
	return err
}

// free returns an odd number, at least from, that the query taken does not find. The steps grow, because many made-up
// runs may claim the same time.
func free(ctx context.Context, tx *transaction, taken string, from int64) (int64, error) {
	n := from | 1
	for step := int64(2); ; n, step = n+step, 2*step {
		var is bool
		if err := tx.QueryRowContext(ctx, taken, n).Scan(&is); err != nil || !is {
			return n, err
		}
	}
}

// faulty reports whether an error is the fault of the data, not of the file.
func faulty(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && slices.Contains(
		[]int{lib.SQLITE_ERROR, lib.SQLITE_CONSTRAINT, lib.SQLITE_MISMATCH, lib.SQLITE_TOOBIG}, e.Code()&0xff)
}

package history

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/historyapi"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bucket"
)

const (
	// listed is how many keys are listed at a time, takeBatch how many runs come into the store in one transaction.
	listed    = 1000
	takeBatch = 16
	// maxDay bounds the keys of a day that are loaded: the newest ones.
	maxDay = 200_000
	// maxTold is how many runs of a look followers are told one by one.
	maxTold = 50
)

// look brings what was put since a time into the store.
func (h *share) look(ctx context.Context, since time.Time) error {
	after := since.UTC().Format(keyTime)
	last := time.Now().Add(maxSkew).UTC().Format(keyTime)
	for {
		keys, err := list(ctx, h.runs, "", after)
		if err != nil || len(keys) == 0 {
			return err
		}
		after = keys[len(keys)-1]
		more := len(keys) == listed && after < last
		keys = slices.DeleteFunc(keys, func(key string) bool { return key > last })
		if err := h.take(ctx, keys); err != nil || !more {
			return err
		}
	}
}

// load brings what the bucket has into the store, the newest first, until the file is nearly full.
func (h *share) load(ctx context.Context) error {
	oldest := time.Now().Add(-h.store.cfg.limits.receiptAge)
	const day = 24 * time.Hour
	looked := time.Now()
	for at := time.Now().UTC().Truncate(day); at.After(oldest.Add(-day)); at = at.Add(-day) {
		var keys []string
		for after := ""; ; after = keys[len(keys)-1] {
			more, err := list(ctx, h.runs, at.Format(keyDay), after)
			if err != nil {
				return err
			}
			keys = append(keys, more...)
			keys = keys[max(0, len(keys)-maxDay):]
			if len(more) < listed {
				break
			}
		}
		slices.Reverse(keys)
		for part := range slices.Chunk(keys, listed) {
			if full, err := h.full(ctx); err != nil || full {
				return err
			}
			if err := h.take(ctx, part); err != nil {
				return err
			}
			if time.Since(looked) > lookTime { // what happens now does not wait
				since := looked
				looked = time.Now()
				if err := h.look(ctx, since.Add(-overlap)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// full reports whether there is no more room in the file for what is old.
func (h *share) full(ctx context.Context) (bool, error) {
	db, err := h.store.db(ctx)
	if err != nil {
		return false, err
	}
	var bytes int64
	err = db.QueryRowContext(ctx, `SELECT (page_count - freelist_count) * page_size
		FROM pragma_page_count, pragma_freelist_count, pragma_page_size`).Scan(&bytes)
	return bytes > h.store.cfg.limits.file/4*3, err
}

// tidy removes from the bucket what is too old.
func (h *share) tidy(ctx context.Context) error {
	limits := h.store.cfg.limits
	return errors.Join(expire(ctx, h, h.contents, limits.contentAge), expire(ctx, h, h.runs, limits.receiptAge))
}

// expire removes what was put so long ago.
func expire(ctx context.Context, h *share, of *bucket.Bucket, age time.Duration) error {
	before := time.Now().Add(-age)
	for after := ""; ; {
		keys, err := list(ctx, of, "", after)
		if err != nil || len(keys) == 0 {
			return err
		}
		after = keys[len(keys)-1]
		more := len(keys) == listed && after < before.UTC().Format(keyTime)
		keys = slices.DeleteFunc(keys, func(key string) bool {
			at, _, ok := parseKey(key)
			return !ok || !at.Before(before)
		})
		err = cmp.Or(h.parallel(len(keys), func(i int) error { return of.Remove(ctx, keys[i], bucket.Any) })...)
		if err != nil && !errors.Is(err, bucket.ErrNotFound) || !more {
			return err
		}
	}
}

// list lists keys.
func list(ctx context.Context, of *bucket.Bucket, begin, after string) ([]string, error) {
	objects, err := of.ListPart(ctx, begin, after, listed)
	keys := make([]string, len(objects))
	for i, o := range objects {
		keys[i] = o.Name
	}
	return keys, err
}

// take brings the objects of keys into the store, in their order, removals before runs.
func (h *share) take(ctx context.Context, keys []string) error {
	keys, err := h.unknown(ctx, h.wanted(keys))
	if err != nil {
		return err
	}
	isRun := func(key string) bool { return !strings.HasSuffix(key, goneSuffix) }
	removals := slices.DeleteFunc(slices.Clone(keys), isRun)
	if err := h.takeUnknown(ctx, removals); err != nil {
		return err
	}
	if len(removals) > 0 {
		if err := h.store.sweepNow(ctx); err != nil {
			return err
		}
	}
	return h.takeUnknown(ctx, slices.DeleteFunc(keys, func(key string) bool { return !isRun(key) }))
}

// wanted are the keys of what may be kept and is not known to be of no use.
func (h *share) wanted(keys []string) []string {
	now := time.Now()
	oldest := now.Add(-h.store.cfg.limits.receiptAge)
	if floor := time.UnixMicro(h.store.floor.Load()); floor.After(oldest) {
		oldest = floor
	}
	return slices.DeleteFunc(keys, func(key string) bool {
		at, _, ok := parseKey(key)
		if h.passed[key] {
			return true
		}
		if !ok {
			h.skip(key, errors.New("its name is not that of a run"))
		}
		return !ok || at.Before(oldest) || at.After(now.Add(maxSkew)) // of a clock that is ahead: it comes when it is time
	})
}

// unknown are the keys of what is not in the store. Runs that a person has removed are removed from the bucket: they
// were put there at the same time.
func (h *share) unknown(ctx context.Context, keys []string) ([]string, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	data, err := json.Marshal(keys)
	if err != nil {
		return nil, err
	}
	var out, removed []string
	err = h.store.each(ctx, func(row *sql.Rows) error {
		var key string
		var gone bool
		err := row.Scan(&key, &gone)
		if gone {
			removed = append(removed, key)
		} else {
			out = append(out, key)
		}
		return err
	}, `SELECT value, EXISTS (SELECT 1 FROM gone WHERE id = substr(value, ?)) FROM json_each(?)
		WHERE NOT EXISTS (SELECT 1 FROM shared WHERE key = value)`, len(keyTime)+2, string(data))
	if err != nil {
		return nil, err
	}
	return out, cmp.Or(h.parallel(len(removed), func(i int) error { return h.remove(ctx, removed[i]) })...)
}

// takeUnknown reads objects, and brings them into the store.
func (h *share) takeUnknown(ctx context.Context, keys []string) error {
	var told []historyapi.Run
	n := 0
	for part := range slices.Chunk(keys, takeBatch) {
		objects := make([]*replay, len(part))
		failed := h.parallel(len(part), func(i int) (err error) {
			objects[i], err = h.fetch(ctx, part[i])
			return err
		})
		var good []*replay
		for i, err := range failed {
			var away *bucket.UnreachableError
			switch {
			case err == nil:
				good = append(good, objects[i])
			case errors.As(err, &away), ctx.Err() != nil:
				return err
			case !errors.Is(err, bucket.ErrNotFound): // else it was removed in the meantime
				h.skip(part[i], err)
			}
		}
		added, err := h.replayAll(ctx, good)
		if err != nil {
			return err
		}
		if n += len(added); n <= maxTold {
			told = append(told, added...)
		}
	}
	h.announce(told, n)
	return nil
}

// announce tells followers of runs: each, or that there are many.
func (h *share) announce(runs []historyapi.Run, n int) {
	if n > maxTold {
		h.store.feed.publish(historyapi.Event{Kind: historyapi.EventGap})
		return
	}
	for _, run := range runs {
		h.store.feed.publish(historyapi.Event{Kind: historyapi.EventRun, RunID: run.ID, Run: &run})
	}
}

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
	// pageSize is how many keys are listed at a time, importBatch how many runs are imported in one transaction.
	pageSize    = 1000
	importBatch = 16
	// maxDay bounds how many keys of one day are loaded; the newest ones are.
	maxDay = 200_000
	// maxAnnounced is how many runs of one poll are announced to followers one by one.
	maxAnnounced = 50
)

// poll imports what was uploaded since a time.
func (h *share) poll(ctx context.Context, since time.Time) error {
	after := since.UTC().Format(keyTime)
	last := time.Now().Add(maxSkew).UTC().Format(keyTime)
	for {
		keys, err := list(ctx, h.runs, "", after)
		if err != nil || len(keys) == 0 {
			return err
		}
		after = keys[len(keys)-1]
		more := len(keys) == pageSize && after < last
		keys = slices.DeleteFunc(keys, func(key string) bool { return key > last })
		if err := h.importKeys(ctx, keys); err != nil || !more {
			return err
		}
	}
}

// load imports all that the bucket has, the newest first, until the file is nearly full.
func (h *share) load(ctx context.Context) error {
	oldest := time.Now().Add(-h.store.cfg.limits.receiptAge)
	const day = 24 * time.Hour
	polled := time.Now()
	for at := time.Now().UTC().Truncate(day); at.After(oldest.Add(-day)); at = at.Add(-day) {
		var keys []string
		for after := ""; ; after = keys[len(keys)-1] {
			more, err := list(ctx, h.runs, at.Format(keyDay), after)
			if err != nil {
				return err
			}
			keys = append(keys, more...)
			keys = keys[max(0, len(keys)-maxDay):]
			if len(more) < pageSize {
				break
			}
		}
		slices.Reverse(keys)
		for part := range slices.Chunk(keys, pageSize) {
			if full, err := h.full(ctx); err != nil || full {
				return err
			}
			if err := h.importKeys(ctx, part); err != nil {
				return err
			}
			if time.Since(polled) > pollInterval { // new runs do not wait for the old ones
				since := polled
				polled = time.Now()
				if err := h.poll(ctx, since.Add(-overlap)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// full reports whether the file has no more room for old runs.
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

// tidy removes from the bucket what is past its retention.
func (h *share) tidy(ctx context.Context) error {
	limits := h.store.cfg.limits
	return errors.Join(expire(ctx, h, h.contents, limits.contentAge), expire(ctx, h, h.runs, limits.receiptAge))
}

// expire removes what was uploaded longer ago than age.
func expire(ctx context.Context, h *share, of *bucket.Bucket, age time.Duration) error {
	before := time.UnixMicro(h.store.oldest(age)) // 1970 until the file was tidied
	for after := ""; ; {
		keys, err := list(ctx, of, "", after)
		if err != nil || len(keys) == 0 {
			return err
		}
		after = keys[len(keys)-1]
		more := len(keys) == pageSize && after < before.UTC().Format(keyTime)
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

// list returns a page of keys.
func list(ctx context.Context, of *bucket.Bucket, begin, after string) ([]string, error) {
	objects, err := of.ListPart(ctx, begin, after, pageSize)
	keys := make([]string, len(objects))
	for i, o := range objects {
		keys[i] = o.Name
	}
	return keys, err
}

// importKeys imports the objects of keys, in their order, removals before runs.
func (h *share) importKeys(ctx context.Context, keys []string) error {
	keys, err := h.unknown(ctx, h.wanted(keys))
	if err != nil {
		return err
	}
	isRun := func(key string) bool { return !strings.HasSuffix(key, goneSuffix) }
	removals := slices.DeleteFunc(slices.Clone(keys), isRun)
	if err := h.importObjects(ctx, removals); err != nil {
		return err
	}
	if len(removals) > 0 {
		if err := h.store.sweepNow(ctx); err != nil {
			return err
		}
	}
	return h.importObjects(ctx, slices.DeleteFunc(keys, func(key string) bool { return !isRun(key) }))
}

// wanted are the keys whose objects may be kept and are not ignored.
func (h *share) wanted(keys []string) []string {
	now := time.Now()
	oldest := now.Add(-h.store.cfg.limits.receiptAge)
	if floor := time.UnixMicro(h.store.floor.Load()); floor.After(oldest) {
		oldest = floor
	}
	return slices.DeleteFunc(keys, func(key string) bool {
		at, _, ok := parseKey(key)
		if h.ignored[key] {
			return true
		}
		if !ok {
			h.skip(key, errors.New("its name is not a run's"))
		}
		return !ok || at.Before(oldest) || at.After(now.Add(maxSkew)) // a clock is ahead: a later poll imports it
	})
}

// unknown are the keys of objects that the store does not have. Objects of removed runs are removed from the bucket:
// they were uploaded while their runs were removed.
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

// importObjects fetches the objects of keys and imports them.
func (h *share) importObjects(ctx context.Context, keys []string) error {
	var told []historyapi.Run
	n := 0
	defer func() { h.announce(told, n) }() // after an error too: a later poll imports only the others
	for part := range slices.Chunk(keys, importBatch) {
		objects := make([]*replay, len(part))
		failed := h.parallel(len(part), func(i int) (err error) {
			objects[i], err = h.fetch(ctx, part[i])
			return err
		})
		var good []*replay
		for i, err := range failed {
			var unreachable *bucket.UnreachableError
			switch {
			case err == nil:
				good = append(good, objects[i])
			case errors.As(err, &unreachable), ctx.Err() != nil:
				return err
			case !errors.Is(err, bucket.ErrNotFound): // one that is not found was removed in the meantime
				h.skip(part[i], err)
			}
		}
		added, err := h.replayAll(ctx, good)
		if err != nil {
			return err
		}
		if n += len(added); n <= maxAnnounced {
			told = append(told, added...)
		}
	}
	return nil
}

// announce notifies followers of imported runs: of each, or of a gap if there are many.
func (h *share) announce(runs []historyapi.Run, n int) {
	if n > maxAnnounced {
		h.store.feed.publish(historyapi.Event{Kind: historyapi.EventGap})
		return
	}
	for _, run := range runs {
		h.store.feed.publish(historyapi.Event{Kind: historyapi.EventRun, RunID: run.ID, Run: &run})
	}
}

package history

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/mcp-server/historyapi"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bucket"
)

const (
	// uploadBatchSize is how many runs are uploaded before the store records that they are.
	uploadBatchSize = 64
	// keyAge is how old a key may be when the upload of its run begins. An upload takes two requests, and others poll
	// further back (overlap) than keyAge and both requests together.
	keyAge = 15 * time.Second
)

// errLate is for a run whose key is too old when its turn comes. It gets another key.
var errLate = errors.New("its key is too old")

// queue adds a run to the upload queue, in the transaction that stores it.
func (h *share) queue(ctx context.Context, tx *transaction, number int64) error {
	if h == nil {
		return nil
	}
	tx.shares = true
	_, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO shared VALUES (?, '', 0)`, number)
	return err
}

// queueAll queues all runs in the file that are over and not in the bucket: those of an earlier process.
func (h *share) queueAll(db *file) error {
	if h == nil {
		return nil
	}
	_, err := db.ExecContext(context.Background(), `INSERT OR IGNORE INTO shared SELECT number, '', 0 FROM run
		WHERE state NOT IN (?, ?)`, historyapi.Waiting, historyapi.Running)
	return err
}

// countLost counts the runs up to a number that are about to be removed and were not uploaded.
func (h *share) countLost(ctx context.Context, tx *transaction, number int64) error {
	if h == nil {
		return nil
	}
	var n int64
	err := tx.QueryRowContext(ctx, `SELECT count(*) FROM shared WHERE sent = 0 AND number <= ?`, number).Scan(&n)
	h.mu.Lock()
	first := h.lost == 0 && n > 0
	h.lost += n
	h.mu.Unlock()
	if first {
		h.store.cfg.Log.Error("runs were removed before their upload to the bucket: they were too old, or the file was full",
			logline.Tag("history"))
	}
	return err
}

// recordRemoval writes the tombstone of a run that a person removes, before the run is removed.
func (h *share) recordRemoval(ctx context.Context, tx *transaction, id string) error {
	if h == nil {
		return nil
	}
	_, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO gone SELECT id, ?, coalesce(key, ''), 0
		FROM run LEFT JOIN shared USING (number) WHERE id = ?`, h.store.number(), id)
	return err
}

// uploadAll uploads all queued removals and runs.
func (h *share) uploadAll(ctx context.Context) error {
	for {
		n, err := h.publishRemovals(ctx)
		if err == nil {
			var m int
			m, err = h.uploadBatch(ctx)
			n += m
		}
		if err != nil || n == 0 {
			return err
		}
	}
}

// unsent is a queued run.
type unsent struct {
	number  int64
	id, key string
}

// uploadBatch uploads the oldest queued runs. Each is given its key before the upload, so that it has one object even
// if this process dies in between.
func (h *share) uploadBatch(ctx context.Context) (int, error) {
	var list []unsent
	err := h.store.each(ctx, func(row *sql.Rows) error {
		var u unsent
		err := row.Scan(&u.number, &u.id, &u.key)
		list = append(list, u)
		return err
	}, `SELECT number, id, key FROM shared JOIN run USING (number) WHERE sent = 0 ORDER BY number LIMIT ?`,
		uploadBatchSize)
	if err != nil || len(list) == 0 {
		return 0, err
	}
	if err := h.assignKeys(ctx, list); err != nil {
		return 0, err
	}
	failed := h.parallel(len(list), func(i int) error {
		if at, _, _ := parseKey(list[i].key); time.Since(at) > keyAge {
			return errLate
		}
		return h.uploadOne(ctx, list[i])
	})
	err = h.store.ask(ctx, func(ctx context.Context, tx *transaction) error {
		for i, u := range list {
			if failed[i] != nil {
				continue
			}
			_, err := tx.ExecContext(ctx, `UPDATE shared SET sent = 1 WHERE number = ? AND key = ?`, u.number, u.key)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return len(list), errors.Join(err, cmp.Or(slices.DeleteFunc(failed, func(err error) bool {
		return errors.Is(err, errLate)
	})...))
}

// assignKeys gives runs keys with the current time. An object that an earlier attempt may have left is removed: others
// may have polled past its key.
func (h *share) assignKeys(ctx context.Context, list []unsent) error {
	for i, u := range list {
		if u.key != "" {
			if at, _, _ := parseKey(u.key); time.Since(at) < keyAge/2 {
				continue
			}
			if err := h.remove(ctx, u.key); err != nil {
				return err
			}
		}
		list[i].key = newKey(u.id)
	}
	return h.store.ask(ctx, func(ctx context.Context, tx *transaction) error {
		for _, u := range list {
			_, err := tx.ExecContext(ctx, `UPDATE shared SET key = ? WHERE number = ?`, u.key, u.number)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// uploadOne uploads one run: its content first, so that it is there when others see the run.
func (h *share) uploadOne(ctx context.Context, u unsent) error {
	db, err := h.store.db(ctx)
	if err != nil {
		return err
	}
	var data, hints string
	var packed []byte
	err = db.QueryRowContext(ctx, `SELECT run.data, hints, content.data FROM run LEFT JOIN content USING (number)
		WHERE number = ?`, u.number).Scan(&data, &hints, &packed)
	if errors.Is(err, sql.ErrNoRows) {
		return nil // removed in the meantime
	}
	if err != nil {
		return h.store.checked(err)
	}
	exchanges, err := read[json.RawMessage](ctx, db,
		"SELECT data FROM exchange WHERE run = ? ORDER BY number LIMIT ?", u.id, maxOfRun)
	if err != nil {
		return h.store.checked(err)
	}
	object, err := packRun(data, hints, exchanges, packed != nil)
	if err != nil {
		return err
	}
	if packed != nil {
		if _, err := h.contents.Put(ctx, u.key, packed, bucket.Any); err != nil {
			return err
		}
	}
	_, err = h.runs.Put(ctx, u.key, object, bucket.Any)
	return err
}

// publishRemovals uploads the tombstones of runs that a person removed, and removes the runs from the bucket.
func (h *share) publishRemovals(ctx context.Context) (int, error) {
	var ids, keys []string
	err := h.store.each(ctx, func(row *sql.Rows) error {
		var id, key string
		err := row.Scan(&id, &key)
		ids = append(ids, id)
		if key != "" {
			keys = append(keys, key)
		}
		return err
	}, `SELECT id, key FROM gone WHERE told = 0 LIMIT ?`, maxGone)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	data, err := pack(object{Schema: objectSchema, Gone: ids})
	if err != nil {
		return 0, err
	}
	if _, err := h.runs.Put(ctx, newKey(ids[0]+goneSuffix), data, bucket.Any); err != nil {
		return 0, err
	}
	if err := cmp.Or(h.parallel(len(keys), func(i int) error { return h.remove(ctx, keys[i]) })...); err != nil {
		return 0, err
	}
	return len(ids), h.store.ask(ctx, func(ctx context.Context, tx *transaction) error {
		list, err := json.Marshal(ids)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE gone SET told = 1 WHERE id IN (SELECT value FROM json_each(?))`, string(list))
		return err
	})
}

// remove removes the objects of a key, if they exist.
func (h *share) remove(ctx context.Context, key string) error {
	for _, of := range []*bucket.Bucket{h.contents, h.runs} {
		if err := of.Remove(ctx, key, bucket.Any); err != nil && !errors.Is(err, bucket.ErrNotFound) {
			return err
		}
	}
	return nil
}

// parallel calls do n times, requests at a time, and returns each call's error. Once the bucket does not answer, the
// remaining calls are not made and have that error.
func (h *share) parallel(n int, do func(i int) error) []error {
	var parts errgroup.Group
	parts.SetLimit(requests)
	var mu sync.Mutex
	var unreachable error
	failed := make([]error, n)
	for i := range n {
		parts.Go(func() error {
			mu.Lock()
			err := unreachable
			mu.Unlock()
			if err == nil {
				err = do(i)
			}
			failed[i] = err
			var u *bucket.UnreachableError
			if errors.As(err, &u) {
				mu.Lock()
				unreachable = err
				mu.Unlock()
			}
			return nil
		})
	}
	_ = parts.Wait()
	return failed
}

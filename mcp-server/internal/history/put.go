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
	// putBatch is how many runs are put before that is noted.
	putBatch = 64
	// keyAge is how old a key may be when its run begins to be put. That takes two requests, and others look back further
	// than both together.
	keyAge = 15 * time.Second
)

// errLate is for a run whose key is too old by the time it has its turn. It gets another one.
var errLate = errors.New("its key is too old")

// queue notes in a run's transaction that it is to be put in the bucket.
func (h *share) queue(ctx context.Context, tx *transaction, number int64) error {
	if h == nil {
		return nil
	}
	tx.shares = true
	_, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO shared VALUES (?, '', 0)`, number)
	return err
}

// queueAll notes that of all runs in the file that are over and are not in the bucket: those of an earlier process.
func (h *share) queueAll(db *file) error {
	if h == nil {
		return nil
	}
	_, err := db.ExecContext(context.Background(), `INSERT OR IGNORE INTO shared SELECT number, '', 0 FROM run
		WHERE state NOT IN (?, ?)`, historyapi.Waiting, historyapi.Running)
	return err
}

// giveUp counts runs up to a number that go before they were put in the bucket.
func (h *share) giveUp(ctx context.Context, tx *transaction, number int64) error {
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
		h.store.cfg.Log.Error("runs went before they were put in the bucket: they were too old, or there was no room",
			logline.Tag("history"))
	}
	return err
}

// forget notes that a person removes a run, before it is removed.
func (h *share) forget(ctx context.Context, tx *transaction, id string) error {
	if h == nil {
		return nil
	}
	_, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO gone SELECT id, ?, coalesce(key, ''), 0
		FROM run LEFT JOIN shared USING (number) WHERE id = ?`, h.store.number(), id)
	return err
}

// putAll puts all that waits into the bucket.
func (h *share) putAll(ctx context.Context) error {
	for {
		n, err := h.tell(ctx)
		if err == nil {
			var m int
			m, err = h.putSome(ctx)
			n += m
		}
		if err != nil || n == 0 {
			return err
		}
	}
}

// unsent is a run that is to be put in the bucket.
type unsent struct {
	number  int64
	id, key string
}

// putSome puts some runs, the oldest first. Each gets its key before it is put, so that whatever ends this process, the
// object has no second one.
func (h *share) putSome(ctx context.Context) (int, error) {
	var list []unsent
	err := h.store.each(ctx, func(row *sql.Rows) error {
		var u unsent
		err := row.Scan(&u.number, &u.id, &u.key)
		list = append(list, u)
		return err
	}, `SELECT number, id, key FROM shared JOIN run USING (number) WHERE sent = 0 ORDER BY number LIMIT ?`, putBatch)
	if err != nil || len(list) == 0 {
		return 0, err
	}
	if err := h.nameAll(ctx, list); err != nil {
		return 0, err
	}
	failed := h.parallel(len(list), func(i int) error {
		if at, _, _ := parseKey(list[i].key); time.Since(at) > keyAge {
			return errLate
		}
		return h.putOne(ctx, list[i])
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

// nameAll gives runs keys of now. An object that an earlier attempt may have left is removed: others may be past its
// key.
func (h *share) nameAll(ctx context.Context, list []unsent) error {
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

// putOne puts one run: its content first, so that it is there when others see the run.
func (h *share) putOne(ctx context.Context, u unsent) error {
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

// tell tells others of runs that a person has removed, and removes them from the bucket.
func (h *share) tell(ctx context.Context) (int, error) {
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

// remove removes the objects of a key, whether or not they are there.
func (h *share) remove(ctx context.Context, key string) error {
	for _, of := range []*bucket.Bucket{h.contents, h.runs} {
		if err := of.Remove(ctx, key, bucket.Any); err != nil && !errors.Is(err, bucket.ErrNotFound) {
			return err
		}
	}
	return nil
}

// parallel does something so many times, some at a time, until one says that the bucket does not answer.
func (h *share) parallel(n int, do func(i int) error) []error {
	var parts errgroup.Group
	parts.SetLimit(requests)
	var mu sync.Mutex
	var away error
	failed := make([]error, n)
	for i := range n {
		parts.Go(func() error {
			mu.Lock()
			err := away
			mu.Unlock()
			if err == nil {
				err = do(i)
			}
			failed[i] = err
			var u *bucket.UnreachableError
			if errors.As(err, &u) {
				mu.Lock()
				away = err
				mu.Unlock()
			}
			return nil
		})
	}
	_ = parts.Wait()
	return failed
}

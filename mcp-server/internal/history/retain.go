package history

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

const (
	// maxFile bounds the file: beyond it, the oldest runs are removed regardless of age.
	maxFile = 1 << 30
	// sweepTime is how long the words of removed runs may stay in the full-text index.
	sweepTime = 12 * time.Hour
	// tidyBatch bounds the runs, and othersBatch the exchanges without a run, that one transaction removes.
	tidyBatch   = 100
	othersBatch = 2000
	// maxOthers is the number of newest exchanges without a run that stay in a file that is too large. Such exchanges
	// belong to MCP servers, to installations, and to runs of another mcp-server with the same proxies.
	maxOthers = 5000
	// maxAlerts and maxTotals bound the alerts and the sums.
	maxAlerts = 10_000
	maxTotals = 1_000_000
	// tidyPart is the part of maxFile by which the file may grow before removeOld, and leastGrowth is the least growth, in
	// bytes. Without it, the requests of code and servers within tidyTime could fill the disk. The versions of skills also
	// have this part of maxFile.
	tidyPart    = 16
	leastGrowth = 1 << 20
	// catchUp bounds the speed at which the time for removal follows a clock that is ahead. startAhead bounds its start
	// ahead of the newest run.
	catchUp    = 24
	startAhead = 24 * time.Hour
)

// removeOld removes old and excess data in small steps. It writes waiting jobs between the steps.
func (s *Store) removeOld(db *writeTarget) {
	if db == nil {
		return
	}
	// Reset first: jobs written between the steps count for the next time.
	db.grown = 0
	removed := 0
	for _, step := range []func(context.Context, *writeTransaction) (int, error){
		s.updateToday, s.tidyEnds, s.tidyContent, s.tidyFiles, s.tidyOthers, s.tidyRest, s.tidyRuns,
	} {
		for {
			select {
			case <-s.closed:
				return
			default:
			}
			// Each step is a short transaction, so that the disk can take the runs' jobs in between.
			var n int
			err := s.doJobs(db, []writeJob{{do: func(ctx context.Context, tx *writeTransaction) (err error) {
				if mine, err := tx.mayTidy(ctx); err != nil || !mine {
					return err
				}
				n, err = step(ctx, tx)
				return err
			}}}, false)
			if err != nil {
				s.reportProblem(err.Error())
				return
			}
			if removed += n; n == 0 {
				break
			}
			select {
			case j := <-s.queue:
				_ = s.writeBatch(db, j)
			default:
			}
		}
	}
	if removed == 0 || time.Since(s.swept) < sweepTime {
		return
	}
	s.swept = time.Now()
	if err := overwriteRemoved(db); err != nil {
		s.reportProblem(err.Error())
	}
}

// updateToday finds the time for removal by age. It follows a clock that is ahead only slowly. So a clock that is a
// year ahead for some minutes removes only data that would be removed within hours. It follows a clock that is behind
// at once.
func (s *Store) updateToday(ctx context.Context, tx *writeTransaction) (int, error) {
	now := s.cfg.now().UnixMicro()
	if s.reckoned.IsZero() {
		var newest sql.NullInt64
		err := tx.QueryRowContext(ctx, `SELECT max(number) FROM run WHERE number <= $1`, now).Scan(&newest)
		if err != nil {
			return 0, err
		}
		if s.reached = now; newest.Valid {
			s.reached = min(now, newest.Int64+startAhead.Microseconds())
		}
	} else {
		// It never goes back, so that a clock that jumps does not stop the removal.
		s.reached = max(s.reached, min(now, s.reached+catchUp*time.Since(s.reckoned).Microseconds()))
	}
	s.reckoned = time.Now()
	s.today.Store(min(now, s.reached))
	return 0, nil
}

// oldestKept returns the number of the oldest entry that is kept for this age.
func (s *Store) oldestKept(age time.Duration) int64 { return s.today.Load() - age.Microseconds() }

// tidyEnds marks finished runs of this process as lost if their ends could not be stored. They would otherwise look
// running until the next start. The queue may still have the end of a run that ended just now, which then replaces this
// state.
func (s *Store) tidyEnds(ctx context.Context, tx *writeTransaction) (int, error) {
	s.mu.Lock()
	dropped, live := s.dropped, slices.Collect(maps.Keys(s.live))
	s.mu.Unlock()
	if dropped == s.ends {
		return 0, nil
	}
	n, err := markLost(ctx, tx, func(run operatorapi.Run) bool {
		return run.Number >= s.first && (!tx.target.Postgres || run.Number%maxReplicas == s.replica.Load()) &&
			!slices.Contains(live, run.ID)
	})
	if n == 0 && err == nil { // the changes of the step before are stored, too
		s.ends = dropped
	}
	return n, err
}

// markLost marks unfinished runs as lost if choose returns true. It returns their number.
func markLost(ctx context.Context, tx *writeTransaction, choose func(operatorapi.Run) bool) (n int, err error) {
	list, err := readRows[operatorapi.Run](ctx, tx, `SELECT data FROM run WHERE state IN ('waiting', 'running')`)
	for _, run := range list {
		if err != nil || !choose(run) {
			continue
		}
		run.State = operatorapi.Lost
		var data []byte
		if data, err = json.Marshal(run); err == nil {
			_, err = tx.ExecContext(ctx, `UPDATE run SET state = $1, data = $2 WHERE number = $3`, run.State, string(data),
				run.Number)
		}
		tx.events = append(tx.events, operatorapi.HistoryEvent{Kind: operatorapi.EventRun, RunID: run.ID, Run: &run})
		n++
	}
	return n, err
}

// tidyContent removes old code and output. While there is too much, it removes the oldest of the largest tenant.
func (s *Store) tidyContent(ctx context.Context, tx *writeTransaction) (int, error) {
	return s.dropExcess(ctx, tx, "content", s.cfg.limits.content, dropContent)
}

// tidyFiles removes old files of runs. While there is too much, it removes the oldest of the largest tenant.
func (s *Store) tidyFiles(ctx context.Context, tx *writeTransaction) (int, error) {
	return s.dropExcess(ctx, tx, "run_file", s.cfg.limits.content,
		func(ctx context.Context, tx *writeTransaction, number int64) error {
			_, err := tx.ExecContext(ctx, `DELETE FROM run_file WHERE number = $1`, number)
			return err
		})
}

// dropExcess calls drop for runs whose rows of a table are old. While the table has more than limit bytes, it calls
// drop for the oldest runs of the tenant with the most bytes. So no tenant displaces others. It returns their number.
func (s *Store) dropExcess(
	ctx context.Context, tx *writeTransaction, table string, limit int64,
	drop func(context.Context, *writeTransaction, int64) error,
) (int, error) {
	var total int64
	var largest string
	err := tx.QueryRowContext(ctx, `SELECT tenant, sum(sum(size)) OVER () FROM run JOIN `+table+` USING (number)
		GROUP BY tenant ORDER BY sum(size) DESC LIMIT 1`).Scan(&largest, &total)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	oldest := s.oldestKept(s.cfg.limits.contentAge)
	var gone []int64
	err = eachRow(ctx, tx, func(row *sql.Rows) error {
		var number, size int64
		err := row.Scan(&number, &size)
		if number < oldest || total > limit {
			gone, total = append(gone, number), total-size
		}
		return err
	}, `SELECT number, sum(size) FROM run JOIN `+table+` USING (number) WHERE `+excessCondition()+`
		GROUP BY number ORDER BY number LIMIT $1`, tidyBatch, oldest, largest)
	if err != nil {
		return 0, err
	}
	for _, number := range gone {
		if err := drop(ctx, tx, number); err != nil {
			return 0, err
		}
	}
	return len(gone), nil
}

// excessCondition selects the runs that dropExcess may choose: old runs ($2), and those of the largest tenant ($3).
func excessCondition() string {
	//defence:tenant-history instead `number < $2 OR $3 = $3`
	return `number < $2 OR tenant = $3`
}

// dropContent removes the content of a run, and its words from the index.
func dropContent(ctx context.Context, tx *writeTransaction, number int64) error {
	if _, err := tx.ExecContext(ctx, `DELETE FROM content WHERE number = $1`, number); err != nil {
		return err
	}
	var data string
	if err := tx.QueryRowContext(ctx, `SELECT data FROM run WHERE number = $1`, number).Scan(&data); err != nil {
		return err
	}
	var run operatorapi.Run
	if err := json.Unmarshal([]byte(data), &run); err != nil {
		return err
	}
	texts, err := exchangeTexts(ctx, tx, run.ID)
	if err != nil {
		return err
	}
	// A contentless index cannot update a row, so the row is replaced.
	if _, err := tx.ExecContext(ctx, "DELETE FROM words WHERE rowid = $1", run.Number); err != nil {
		return err
	}
	return putWords(ctx, tx, run, texts, nil)
}

// isTooLarge reports whether the file, or the data in Postgres, is too large. The size of Postgres' files is no
// measure, because it falls long after rows are removed.
func (s *Store) isTooLarge(ctx context.Context, tx *writeTransaction) (bool, error) {
	if tx.target.Postgres {
		var size int64
		err := tx.QueryRowContext(ctx, `SELECT (SELECT coalesce(sum(pg_column_size(data)), 0) FROM exchange) +
			(SELECT coalesce(sum(pg_column_size(data)), 0) FROM run) + (SELECT coalesce(sum(size), 0) FROM content) +
			(SELECT coalesce(sum(size), 0) FROM run_file)`).Scan(&size)
		return size > s.cfg.limits.file, err
	}
	var pages, free, size int64
	for _, p := range []struct {
		pragma string
		into   *int64
	}{{"page_count", &pages}, {"freelist_count", &free}, {"page_size", &size}} {
		if err := tx.QueryRowContext(ctx, "PRAGMA "+p.pragma).Scan(p.into); err != nil {
			return false, err
		}
	}
	// Free pages do not count: SQLite reuses them before the file grows.
	return (pages-free)*size > s.cfg.limits.file, nil
}

// tidyOthers removes the oldest exchanges without a run if the file is too large. A server that sends requests without
// end must not displace runs.
func (s *Store) tidyOthers(ctx context.Context, tx *writeTransaction) (int, error) {
	large, err := s.isTooLarge(ctx, tx)
	if err != nil || !large {
		return 0, err
	}
	const others = `SELECT number FROM exchange WHERE run NOT IN (SELECT id FROM run) `
	res, err := tx.ExecContext(ctx, `DELETE FROM exchange WHERE number IN (`+others+`AND number <=
		(`+others+`ORDER BY number DESC LIMIT 1 OFFSET $1) ORDER BY number LIMIT $2)`, maxOthers, othersBatch)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}

// tidyRuns removes old runs, or the oldest if the file is too large. It comes last, so that no other data displaces
// runs.
func (s *Store) tidyRuns(ctx context.Context, tx *writeTransaction) (int, error) {
	large, err := s.isTooLarge(ctx, tx)
	if err != nil {
		return 0, err
	}
	oldest := s.oldestKept(s.cfg.limits.receiptAge)
	// A file that is too large loses its oldest runs, whatever their age.
	if large {
		oldest = time.Now().UnixMicro()
	}
	var ids []string
	err = eachRow(ctx, tx, func(row *sql.Rows) error {
		var id string
		err := row.Scan(&id)
		ids = append(ids, id)
		return err
	}, `SELECT id FROM run WHERE number < $1 AND state NOT IN ('waiting', 'running') ORDER BY number LIMIT $2`,
		oldest, tidyBatch)
	if err != nil {
		return 0, err
	}
	for _, id := range ids {
		if err := removeRun(ctx, tx, id); err != nil {
			return 0, err
		}
	}
	return len(ids), nil
}

// tidyRest removes old exchanges of MCP servers, old sums and old alerts. Of the sums, the alerts and the versions of
// skills, it also removes the oldest if there are too many.
func (s *Store) tidyRest(ctx context.Context, tx *writeTransaction) (int, error) {
	// Removed sums may make a pair new again.
	clear(tx.target.pairs)
	oldest := s.oldestKept(s.cfg.limits.receiptAge)
	for _, q := range []string{
		`DELETE FROM exchange WHERE number < $1`, `DELETE FROM total WHERE began < $1`, `DELETE FROM alert WHERE number < $1`,
	} {
		if _, err := tx.ExecContext(ctx, q, oldest); err != nil {
			return 0, err
		}
	}
	// Code can cause any number of these rows, and tidyRuns does not remove them.
	for _, q := range []struct {
		text string
		most int64
	}{
		{`DELETE FROM skill_version WHERE version <=
			(SELECT max(version) FROM skill_version l WHERE l.skill = skill_version.skill) - $1`, maxVersions},
		{`DELETE FROM skill_version WHERE number IN (SELECT number FROM (SELECT number,
			sum(length(data) + coalesce(length(source), 0)) OVER (ORDER BY number DESC) AS size FROM skill_version) AS sized
			WHERE size > $1)`, s.cfg.limits.file / tidyPart},
		{`DELETE FROM alert WHERE number <= (SELECT number FROM alert ORDER BY number DESC LIMIT 1 OFFSET $1)`, maxAlerts},
		{`DELETE FROM total WHERE began <= (SELECT began FROM total ORDER BY began DESC LIMIT 1 OFFSET $1)`, maxTotals},
	} {
		if _, err := tx.ExecContext(ctx, q.text, q.most); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// removeRun removes a run with its content, words and exchanges. The sums still count its traffic.
func removeRun(ctx context.Context, tx *writeTransaction, id string) error {
	for _, q := range []string{
		`DELETE FROM words WHERE rowid = (SELECT number FROM run WHERE id = $1)`,
		`DELETE FROM exchange WHERE run = $1`, `DELETE FROM run WHERE id = $1`,
	} {
		if _, err := tx.ExecContext(ctx, q, id); err != nil {
			return err
		}
	}
	return nil
}

// RemoveRuns removes the finished runs that match the filter, with their content and exchanges, and returns their
// number. The sums still count their traffic.
func (s *Store) RemoveRuns(ctx context.Context, f operatorapi.RunFilter) (int, error) {
	// ListRuns ignores such a text, and this would remove every run.
	if f.Grep != "" && strings.TrimSpace(extractWords(f.Grep)) == "" {
		return 0, fmt.Errorf("the text %.40q has no letter or digit", f.Grep)
	}
	f.Limit = maxLimit
	n := 0
	for cursor := ""; ; {
		removed := 0
		page, err := s.ListRuns(ctx, f, cursor)
		if err != nil {
			return n, err
		}
		err = s.writeAndWait(ctx, func(ctx context.Context, tx *writeTransaction) error {
			removed = 0 // an earlier attempt may have been rolled back
			for _, run := range page.Runs {
				if run.IsUnfinished() {
					continue
				}
				if err := removeRun(ctx, tx, run.ID); err != nil {
					return err
				}
				removed++
			}
			return nil
		})
		if err != nil {
			return n, err
		}
		n += removed
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if n == 0 {
		return 0, nil
	}
	// A person who removes runs expects that the data is no longer on the disk.
	return n, s.sweepNow(ctx)
}

// sweepNow overwrites removed data in the file and in its write-ahead log.
func (s *Store) sweepNow(ctx context.Context) error {
	done := make(chan error, 1)
	for {
		// The writer alone may use the connection for writing.
		select {
		case s.sweeps <- done:
		case err := <-done:
			return err
		case <-s.ended:
			return nil // closing the file does the same
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

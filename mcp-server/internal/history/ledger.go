package history

import (
	"cmp"
	"context"
	"database/sql"
	"net/http"
	"slices"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/historyapi"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// quarter is the step of the sums.
const quarter = 15 * time.Minute

// The kinds of sums, and what their columns mean.
const (
	sumTraffic = "traffic" // a API, b host; n requests, denied, failed, up and down bytes
	sumName    = "name"    // a token name, b host; n swapped, down scrubbed
	sumCarried = "carried" // a from, b to; n runs, up bytes
	sumRuns    = "runs"    // n runs, up bytes that the model was given, down sanitized, denied redacted
)

// sum is a row of hour.
type sum struct {
	at                          time.Time
	kind, a, b                  string
	n, denied, failed, up, down int64
}

// sumKey is the key of a row of hour.
type sumKey struct {
	at         int64
	kind, a, b string
}

// add adds to a row, at the end of the transaction.
func (tx *transaction) add(s sum) {
	key := sumKey{s.at.Truncate(quarter).UnixMicro(), s.kind, s.a, s.b}
	if tx.room != nil && tx.sums[key] == nil {
		if *tx.room--; *tx.room < 0 {
			key.a, key.b = "", ""
		}
	}
	if have := tx.sums[key]; have != nil {
		s.n, s.denied, s.failed = s.n+have.n, s.denied+have.denied, s.failed+have.failed
		s.up, s.down = s.up+have.up, s.down+have.down
	}
	tx.sums[key] = &s
}

// putSums writes the rows that add has collected.
func (tx *transaction) putSums(ctx context.Context) error {
	for key, s := range tx.sums {
		if err := tx.putSum(ctx, key, s); err != nil {
			return err
		}
	}
	return nil
}

func (tx *transaction) putSum(ctx context.Context, key sumKey, s *sum) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO hour VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
		n = n + excluded.n, denied = denied + excluded.denied, failed = failed + excluded.failed,
		up = up + excluded.up, down = down + excluded.down`,
		key.at, key.kind, key.a, key.b, s.n, s.denied, s.failed, s.up, s.down)
	return err
}

// sumExchange adds an exchange. Hosts that code made up share a row: it could make up any number of them.
func (tx *transaction) sumExchange(e historyapi.Exchange, api string) {
	if e.Outcome == controlapi.OutcomePlanned {
		return // nothing was sent
	}
	s := sum{at: e.At, kind: sumTraffic, a: api, b: e.Host, n: 1, up: sent(e.Exchange), down: e.BytesDown}
	if api == "" && e.Outcome != controlapi.OutcomeServed {
		s.b = ""
	}
	switch e.Outcome {
	case controlapi.OutcomeDenied:
		s.denied = 1
	case controlapi.OutcomeFailed, controlapi.OutcomeAborted:
		s.failed = 1
	}
	tx.add(s)
}

// sent is how many bytes of a request left: its head and its body.
func sent(x controlapi.Exchange) int64 { return x.HeadUp + x.BytesUp }

// sum adds a run, and what it carried from one API to another. It calls alert for each new pair.
func (s *Store) sum(
	ctx context.Context, tx *transaction, run historyapi.Run, list []controlapi.Exchange, alert func(historyapi.Alert),
) error {
	for pair, bytes := range carried(list) {
		known := tx.file.pairs[pair]
		if !known {
			err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM hour WHERE kind = ? AND a = ? AND b = ?)`,
				sumCarried, pair[0], pair[1]).Scan(&known)
			if err != nil {
				return err
			}
			tx.file.pairs[pair] = true
		}
		if !known {
			alert(historyapi.Alert{
				Kind: historyapi.AlertNewPair, Run: run.ID, API: pair[1],
				Title: "A new pair of APIs: " + pair[0] + ", then " + pair[1],
				Text:  "No run that is still recorded has read from the one and then written to the other before.",
			})
		}
		tx.add(sum{at: run.Ended, kind: sumCarried, a: pair[0], b: pair[1], n: 1, up: bytes})
	}
	tx.add(sum{
		at: run.Ended, kind: sumRuns, n: 1, up: run.Shown,
		down: int64(run.Count.Sanitized), denied: int64(run.Count.Redacted),
	})
	return nil
}

// carried are the pairs of APIs of which the first had answered before something was written to the second, and how
// much was.
func carried(list []controlapi.Exchange) map[[2]string]int64 {
	out := map[[2]string]int64{}
	for _, w := range list {
		if w.Outcome != controlapi.OutcomeServed || len(w.APIs) == 0 || !writes(w) {
			continue
		}
		from := map[string]bool{}
		for _, r := range list {
			ended := r.At.Add(time.Duration(r.Milliseconds * float64(time.Millisecond)))
			if r.Outcome == controlapi.OutcomeServed && len(r.APIs) > 0 && r.BytesDown > 0 && !ended.After(w.At) &&
				r.APIs[0] != w.APIs[0] {
				from[r.APIs[0]] = true
			}
		}
		for api := range from {
			out[[2]string{api, w.APIs[0]}] += sent(w)
		}
	}
	return out
}

// writes reports whether an exchange may have written something.
func writes(x controlapi.Exchange) bool {
	return x.BytesUp > 0 || !slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, x.Method)
}

// Ledger sums up what left in a time, in steps of a quarter of an hour.
func (s *Store) Ledger(ctx context.Context, since, until time.Time) (historyapi.Ledger, error) {
	out := historyapi.Ledger{
		Since: since, Until: until,
		Traffic: []historyapi.Traffic{}, Matrix: []historyapi.Cell{}, Carried: []historyapi.Carried{},
	}
	db, err := s.db(ctx)
	if err != nil {
		return out, err
	}
	err = each(ctx, db, func(row *sql.Rows) error {
		var r sum
		err := row.Scan(&r.kind, &r.a, &r.b, &r.n, &r.denied, &r.failed, &r.up, &r.down)
		enter(&out, r)
		return err
	}, `SELECT kind, a, b, sum(n), sum(denied), sum(failed), sum(up), sum(down) FROM hour
		WHERE kind IN ('traffic', 'name', 'carried', 'runs') AND at >= ? AND at < ? GROUP BY kind, a, b`,
		since.Truncate(quarter).UnixMicro(), until.UnixMicro())
	if err != nil {
		return out, s.checked(err)
	}
	slices.SortFunc(out.Traffic, func(a, b historyapi.Traffic) int {
		return cmp.Or(cmp.Compare(b.BytesUp, a.BytesUp), cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Host, b.Host))
	})
	for i := range out.Carried {
		var first sql.NullInt64
		c := &out.Carried[i]
		err := db.QueryRowContext(ctx, `SELECT min(at) FROM hour WHERE kind = 'carried' AND a = ? AND b = ?`, c.From, c.To).
			Scan(&first)
		if err != nil {
			return out, s.checked(err)
		}
		c.First = time.UnixMicro(first.Int64).UTC()
	}
	return out, nil
}

// enter adds a row to a ledger.
func enter(out *historyapi.Ledger, r sum) {
	switch r.kind {
	case sumTraffic:
		out.Traffic = append(out.Traffic, historyapi.Traffic{
			API: r.a, Host: r.b, Requests: r.n, Denied: r.denied, Failed: r.failed, BytesUp: r.up, BytesDown: r.down,
		})
		out.Requests, out.Denied, out.Failed = out.Requests+r.n, out.Denied+r.denied, out.Failed+r.failed
		out.BytesUp, out.BytesDown = out.BytesUp+r.up, out.BytesDown+r.down
	case sumName:
		out.Matrix = append(out.Matrix, historyapi.Cell{Name: r.a, Host: r.b, Swapped: r.n, Scrubbed: r.down})
		out.Swapped += r.n
	case sumCarried:
		out.Carried = append(out.Carried, historyapi.Carried{From: r.a, To: r.b, Runs: r.n, Bytes: r.up})
	case sumRuns:
		out.Runs, out.Shown, out.Sanitized, out.Redacted = r.n, r.up, r.down, r.denied
	}
}

// Hours is the traffic by API in steps of time, multiples of a quarter of an hour, oldest first.
func (s *Store) Hours(ctx context.Context, since, until time.Time, step time.Duration) ([]historyapi.Hour, error) {
	step = max(step.Truncate(quarter), quarter)
	out := []historyapi.Hour{}
	err := s.each(ctx, func(row *sql.Rows) error {
		var h historyapi.Hour
		var at int64
		err := row.Scan(&at, &h.API, &h.Requests, &h.Denied, &h.Failed, &h.BytesUp, &h.BytesDown)
		h.At = time.UnixMicro(at).UTC()
		out = append(out, h)
		return err
	}, `SELECT at / ?1 * ?1 AS step, a, sum(n), sum(denied), sum(failed), sum(up), sum(down)
		FROM hour WHERE kind = 'traffic' AND at >= ?2 AND at < ?3 GROUP BY step, a ORDER BY step, a`,
		step.Microseconds(), since.Truncate(step).UnixMicro(), until.UnixMicro())
	return out, err
}

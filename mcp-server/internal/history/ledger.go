package history

import (
	"cmp"
	"context"
	"database/sql"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// quarter is the step of the sums.
const quarter = 15 * time.Minute

// Kinds of sums, with the meaning of their columns.
const (
	sumTraffic = "traffic" // source API, target host; counted requests, denied, failed, bytes up and down
	sumName    = "name"    // source token name, target host; counted swapped, down scrubbed
	sumCarried = "carried" // source and target API; counted runs, bytes up
	sumRuns    = "runs"    // counted runs, up bytes shown to the model, down sanitized, denied redacted
)

type totalRow struct {
	at                          time.Time
	kind, a, b                  string // a is the source, b the target
	n, denied, failed, up, down int64
}

// sumKey is the key of a row of total.
type sumKey struct {
	at         int64
	kind, a, b string
}

// addToRow adds to a row, which is written at the end of the transaction.
func (tx *writeTransaction) addToRow(s totalRow) {
	// A period is a quarter of an hour, so that a store of 90 days stays small.
	key := sumKey{s.at.Truncate(quarter).UnixMicro(), s.kind, s.a, s.b}
	if have := tx.sums[key]; have != nil {
		s.n, s.denied, s.failed = s.n+have.n, s.denied+have.denied, s.failed+have.failed
		s.up, s.down = s.up+have.up, s.down+have.down
	}
	tx.sums[key] = &s
}

// putSums writes the collected rows. All replicas lock the rows in the same order, which prevents deadlocks.
func (tx *writeTransaction) putSums(ctx context.Context) error {
	order := func(a, b sumKey) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind), cmp.Compare(a.a, b.a), cmp.Compare(a.b, b.b))
	}
	for _, key := range slices.SortedFunc(maps.Keys(tx.sums), order) {
		if err := tx.putSum(ctx, key, tx.sums[key]); err != nil {
			return err
		}
	}
	return nil
}

func (tx *writeTransaction) putSum(ctx context.Context, key sumKey, s *totalRow) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO total VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
		ON CONFLICT (kind, began, source, target) DO UPDATE SET counted = total.counted + excluded.counted,
		denied = total.denied + excluded.denied, failed = total.failed + excluded.failed,
		bytes_up = total.bytes_up + excluded.bytes_up, bytes_down = total.bytes_down + excluded.bytes_down`,
		key.at, key.kind, key.a, key.b, s.n, s.denied, s.failed, s.up, s.down)
	return err
}

// sumExchange adds an exchange. All hosts that code invented share a row, because code could invent any number of
// hosts.
func (tx *writeTransaction) sumExchange(e operatorapi.Exchange, api string) {
	if e.Outcome == proxyapi.OutcomePlanned {
		return // no request was sent
	}
	s := totalRow{at: e.At, kind: sumTraffic, a: api, b: e.Host, n: 1, up: sentBytes(e.Exchange), down: e.BytesDown}
	if api == "" && e.Outcome != proxyapi.OutcomeServed {
		s.b = ""
	}
	switch e.Outcome {
	case proxyapi.OutcomeDenied:
		s.denied = 1
	case proxyapi.OutcomeFailed, proxyapi.OutcomeAborted:
		s.failed = 1
	}
	tx.addToRow(s)
}

// sentBytes returns the bytes of a request that were sent: its head and its body.
func sentBytes(x proxyapi.Exchange) int64 { return x.HeadUp + x.BytesUp }

// addRunTotals adds a run, and its transfers from one API to another. It calls alert for each new pair of APIs.
func (s *Store) addRunTotals(
	ctx context.Context, tx *writeTransaction, run operatorapi.Run, list []proxyapi.Exchange,
	alert func(operatorapi.Alert),
) error {
	// The cache spares a query for each run, because most pairs are known.
	for pair, bytes := range countCarriedPairs(list) {
		known := tx.target.pairs[pair]
		if !known {
			err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM total WHERE kind = $1 AND source = $2 AND target = $3)`,
				sumCarried, pair[0], pair[1]).Scan(&known)
			if err != nil {
				return err
			}
			tx.target.pairs[pair] = true
		}
		if !known {
			// A new flow of data between two APIs may be the work of a hostile text.
			alert(operatorapi.Alert{
				Kind: operatorapi.AlertNewPair, Run: run.ID, API: pair[1],
				Title: "A new pair of APIs: " + pair[0] + ", then " + pair[1],
				Text:  "No earlier recorded run has read from the first and then written to the second.",
			})
		}
		tx.addToRow(totalRow{at: run.Ended, kind: sumCarried, a: pair[0], b: pair[1], n: 1, up: bytes})
	}
	tx.addToRow(totalRow{
		at: run.Ended, kind: sumRuns, n: 1, up: run.Shown,
		down: int64(run.Count.Sanitized), denied: int64(run.Count.Redacted),
	})
	return nil
}

// countCarriedPairs returns the pairs of APIs of which the first had answered before a write to the second, with the
// written bytes.
func countCarriedPairs(list []proxyapi.Exchange) map[[2]string]int64 {
	out := map[[2]string]int64{}
	for _, w := range list {
		if w.Outcome != proxyapi.OutcomeServed || len(w.APIs) == 0 || !isWrite(w) {
			continue
		}
		// The proxy cannot see if code passed on an answer, so every answer before the write counts.
		from := map[string]bool{}
		for _, r := range list {
			// Only a finished answer counts: code cannot have passed on an answer that it did not have yet.
			ended := r.At.Add(time.Duration(r.Milliseconds * float64(time.Millisecond)))
			if r.Outcome == proxyapi.OutcomeServed && len(r.APIs) > 0 && r.BytesDown > 0 && !ended.After(w.At) &&
				r.APIs[0] != w.APIs[0] {
				from[r.APIs[0]] = true
			}
		}
		for api := range from {
			out[[2]string{api, w.APIs[0]}] += sentBytes(w)
		}
	}
	return out
}

// isWrite reports whether an exchange may have changed data.
func isWrite(x proxyapi.Exchange) bool {
	return x.BytesUp > 0 || !slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, x.Method)
}

// SumTraffic sums up the traffic of a period, in steps of a quarter of an hour.
func (s *Store) SumTraffic(ctx context.Context, since, until time.Time) (operatorapi.Ledger, error) {
	out := operatorapi.Ledger{
		Since: since, Until: until,
		Traffic: []operatorapi.Traffic{}, Matrix: []operatorapi.Cell{}, Carried: []operatorapi.CarriedRuns{},
	}
	db, err := s.readConn(ctx)
	if err != nil {
		return out, err
	}
	// since is rounded down, because a sum is stored under the start of its quarter of an hour.
	err = eachRow(ctx, db, func(row *sql.Rows) error {
		var r totalRow
		err := row.Scan(&r.kind, &r.a, &r.b, &r.n, &r.denied, &r.failed, &r.up, &r.down)
		addRow(&out, r)
		return err
	}, `SELECT kind, source, target, sum(counted), sum(denied), sum(failed), sum(bytes_up), sum(bytes_down) FROM total
		WHERE kind IN ('traffic', 'name', 'carried', 'runs') AND began >= $1 AND began < $2 GROUP BY kind, source, target`,
		since.Truncate(quarter).UnixMicro(), until.UnixMicro())
	if err != nil {
		return out, s.checkReadError(err)
	}
	slices.SortFunc(out.Traffic, func(a, b operatorapi.Traffic) int {
		return cmp.Or(cmp.Compare(b.BytesUp, a.BytesUp), cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Host, b.Host))
	})
	for i := range out.Carried {
		var first sql.NullInt64
		c := &out.Carried[i]
		err := db.QueryRowContext(ctx, `SELECT min(began) FROM total WHERE kind = 'carried' AND source = $1 AND
			target = $2`, c.From, c.To).Scan(&first)
		if err != nil {
			return out, s.checkReadError(err)
		}
		c.First = time.UnixMicro(first.Int64).UTC()
	}
	return out, nil
}

func addRow(out *operatorapi.Ledger, r totalRow) {
	switch r.kind {
	case sumTraffic:
		out.Traffic = append(out.Traffic, operatorapi.Traffic{
			API: r.a, Host: r.b, Requests: r.n, Denied: r.denied, Failed: r.failed, BytesUp: r.up, BytesDown: r.down,
		})
		out.Requests, out.Denied, out.Failed = out.Requests+r.n, out.Denied+r.denied, out.Failed+r.failed
		out.BytesUp, out.BytesDown = out.BytesUp+r.up, out.BytesDown+r.down
	case sumName:
		out.Matrix = append(out.Matrix, operatorapi.Cell{Name: r.a, Host: r.b, Swapped: r.n, Scrubbed: r.down})
		out.Swapped += r.n
	case sumCarried:
		out.Carried = append(out.Carried, operatorapi.CarriedRuns{From: r.a, To: r.b, Runs: r.n, Bytes: r.up})
	case sumRuns:
		out.Runs, out.Shown, out.Sanitized, out.Redacted = r.n, r.up, r.down, r.denied
	}
}

// TrafficByHour returns the traffic by API in steps of a multiple of a quarter of an hour, oldest first.
func (s *Store) TrafficByHour(ctx context.Context, since, until time.Time, step time.Duration) ([]operatorapi.Hour,
	error) {
	// A step below a quarter would find empty sums.
	step = max(step.Truncate(quarter), quarter)
	out := []operatorapi.Hour{}
	err := s.eachStoredRow(ctx, func(row *sql.Rows) error {
		var h operatorapi.Hour
		var at int64
		err := row.Scan(&at, &h.API, &h.Requests, &h.Denied, &h.Failed, &h.BytesUp, &h.BytesDown)
		h.At = time.UnixMicro(at).UTC()
		out = append(out, h)
		return err
	}, `SELECT began / $1 * $1 AS step, source, sum(counted), sum(denied), sum(failed), sum(bytes_up), sum(bytes_down)
		FROM total WHERE kind = 'traffic' AND began >= $2 AND began < $3 GROUP BY step, source ORDER BY step, source`,
		step.Microseconds(), since.Truncate(step).UnixMicro(), until.UnixMicro())
	return out, err
}

package history

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"

	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// putNumbered stores a row under the first free number from number on. put returns false if another row has the number,
// and must not change that row. Two processes may draw the same number without Postgres, or before it answers.
func putNumbered(number *int64, put func() (bool, error)) error {
	for {
		isPut, err := put()
		if err != nil || isPut {
			return err
		}
		*number += maxReplicas // the remainder still names the replica
	}
}

// hasChanged reports whether a statement has inserted or updated a row.
func hasChanged(res sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// putRun stores a run, and replaces an earlier state of it. It changes the run's number if another run has it.
func putRun(ctx context.Context, tx *writeTransaction, run *operatorapi.Run, hints string) error {
	return putNumbered(&run.Number, func() (bool, error) {
		data, err := json.Marshal(run)
		if err != nil {
			return false, err
		}
		tx.target.grown += int64(len(data))
		return hasChanged(tx.ExecContext(ctx, `INSERT INTO run
			(number, id, state, denied, client, session, tenant, data, hints)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (number) DO UPDATE SET
			state = excluded.state, denied = excluded.denied, data = excluded.data, hints = excluded.hints
			WHERE run.id = excluded.id`,
			run.Number, run.ID, run.State, run.Count.Denied, run.Client, run.Session, run.Tenant, string(data), hints))
	})
}

// putFacts stores the facts that runs are searched by.
func putFacts(ctx context.Context, tx *writeTransaction, run operatorapi.Run, list []proxyapi.Exchange) error {
	var facts [][2]string
	for _, x := range list {
		if fact := [2]string{"host", x.Host}; !slices.Contains(facts, fact) {
			facts = append(facts, fact)
		}
	}
	for _, api := range run.APIs {
		facts = append(facts, [2]string{"api", api})
	}
	for _, skill := range run.Skills {
		facts = append(facts, [2]string{"skill", skill})
	}
	for _, fact := range facts {
		_, err := tx.ExecContext(ctx, `INSERT INTO fact VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
			fact[0], fact[1], run.Number)
		if err != nil {
			return err
		}
	}
	return nil
}

// putExchange stores an exchange and adds it to the sums, once. Its caused exchanges may be stored later.
func putExchange(ctx context.Context, tx *writeTransaction, e operatorapi.Exchange) error {
	api := ""
	if len(e.APIs) > 0 {
		api = e.APIs[0]
	}
	// The ID makes storing idempotent, so a missing one would hide exchanges.
	if e.ID == "" {
		return errors.New("an exchange without an id")
	}
	isKnown := false
	err := putNumbered(&e.Number, func() (bool, error) {
		data, err := json.Marshal(e)
		if err != nil {
			return false, err
		}
		tx.target.grown += int64(len(data))
		isNew, err := hasChanged(tx.ExecContext(ctx, `INSERT INTO exchange VALUES ($1, $2, $3, $4, $5, $6, $7)
			ON CONFLICT DO NOTHING`, e.Number, e.ID, e.Run, api, e.Host, e.Outcome, string(data)))
		if err == nil && !isNew {
			err = tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM exchange WHERE id = $1)`, e.ID).Scan(&isKnown)
		}
		return isNew || isKnown, err
	})
	switch {
	// The proxy reports an exchange in an event and again in the receipt.
	case err != nil || isKnown && e.Among == 0:
		return err
	case isKnown:
		return putCaused(ctx, tx, e)
	}
	for _, sw := range e.Swapped {
		if err := putSwap(ctx, tx, e, sw, max(1, sw.Count), 0); err != nil {
			return err
		}
	}
	for _, sc := range e.Scrubbed {
		if err := putSwap(ctx, tx, e, sc, 0, max(1, sc.Count)); err != nil {
			return err
		}
	}
	tx.sumExchange(e, api)
	return nil
}

// putCaused adds the caused exchanges to a stored exchange.
func putCaused(ctx context.Context, tx *writeTransaction, e operatorapi.Exchange) error {
	list, err := readRows[operatorapi.Exchange](ctx, tx, `SELECT data FROM exchange WHERE id = $1 AND run = $2`, e.ID,
		e.Run)
	if err != nil || len(list) == 0 {
		return err
	}
	stored := list[0]
	stored.Caused, stored.Among = e.Caused, e.Among
	data, err := json.Marshal(stored)
	if err == nil {
		_, err = tx.ExecContext(ctx, `UPDATE exchange SET data = $1 WHERE id = $2`, string(data), e.ID)
	}
	return err
}

// putCheckpoint stores the ledger's checkpoint that covers a run. Postgres never changes or removes checkpoints.
func putCheckpoint(ctx context.Context, tx *writeTransaction, run operatorapi.Run) error {
	if !tx.target.Postgres || run.Audit == "" {
		return nil
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO checkpoint (head, run) VALUES ($1, $2) ON CONFLICT DO NOTHING`,
		run.Audit, run.ID)
	return err
}

func putSwap(
	ctx context.Context, tx *writeTransaction, e operatorapi.Exchange, sw proxyapi.Swap, swapped, scrubbed int,
) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO swap VALUES ($1, $2, $3, $4, $5) ON CONFLICT (name, number, place)
		DO UPDATE SET swapped = swap.swapped + excluded.swapped, scrubbed = swap.scrubbed + excluded.scrubbed`,
		sw.Name, e.Number, sw.In, swapped, scrubbed)
	if err != nil {
		return err
	}
	tx.addToRow(totalRow{at: e.At, kind: sumName, a: sw.Name, b: e.Host, n: int64(swapped), down: int64(scrubbed)})
	return nil
}

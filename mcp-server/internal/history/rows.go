package history

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// putRun stores a run, and replaces an earlier state of it.
func putRun(ctx context.Context, tx *writeTransaction, run operatorapi.Run, hints string) error {
	data, err := json.Marshal(run)
	if err != nil {
		return err
	}
	tx.target.grown += int64(len(data))
	_, err = tx.ExecContext(ctx, `INSERT INTO run (number, id, state, denied, client, session, tenant, data, hints)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (number) DO UPDATE SET
		state = excluded.state, denied = excluded.denied, data = excluded.data, hints = excluded.hints`,
		run.Number, run.ID, run.State, run.Count.Denied, run.Client, run.Session, run.Tenant, string(data), hints)
	return err
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
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	tx.target.grown += int64(len(data))
	api := ""
	if len(e.APIs) > 0 {
		api = e.APIs[0]
	}
	// The ID makes storing idempotent, so a missing one would hide exchanges.
	if e.ID == "" {
		return errors.New("an exchange without an id")
	}
	res, err := tx.ExecContext(ctx, `INSERT INTO exchange VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO NOTHING`,
		e.Number, e.ID, e.Run, api, e.Host, e.Outcome, string(data))
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil {
		return err
	} else if n == 0 {
		// The proxy reports an exchange in an event and again in the receipt.
		if e.Among == 0 {
			return nil
		}
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

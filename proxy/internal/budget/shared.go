package budget

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/internal/database"
	"github.com/codeforge-mcp/codeforge/proxy/internal/shareddb"
)

// SharedCounter is the LimitCounter of several proxies. Reserve locks the rows of the limits, so that two proxies never
// spend the same amount. The clock is that of Postgres. Make one with NewShared.
type SharedCounter struct {
	db    *database.DB
	turns *shareddb.Turns
}

// maxReserving is how many requests use the database for limits at once. The other connections are for approvals.
const maxReserving = 4

// NewShared returns the counter of a database of package shareddb.
func NewShared(db *database.DB) SharedCounter {
	return SharedCounter{db, shareddb.NewTurns(maxReserving)}
}

// Reserve implements LimitCounter. It fails if Postgres does not answer within the time of TransactInTime.
func (s SharedCounter) Reserve(
	ctx context.Context, by shareddb.Run, needs []Need, force bool,
) (back func(), wait time.Duration, ok bool, err error) {
	// A limit with another period is another limit: while a new configuration spreads, proxies must not reset each
	// other's counts.
	needs = slices.Clone(needs)
	for i := range needs {
		needs[i].Key += "/" + needs[i].Per.String()
	}
	var made []spending
	// Code that disconnects must not end the transaction: its connection to Postgres would be lost.
	ctx = context.WithoutCancel(ctx)
	err = s.changeUses(ctx, by, needs, func(uses map[string]*limitUse, now time.Time) {
		made, wait, ok = spendNeeds(uses, now, needs, force)
	})
	if err != nil {
		//defence:shared-state instead func() {}, 0, true, nil
		return nil, 0, false, err
	}
	if !ok {
		return nil, wait, false, nil
	}
	return func() {
		// After an error the amounts stay spent.
		_ = s.changeUses(ctx, by, needs, func(uses map[string]*limitUse, _ time.Time) {
			for i, n := range needs {
				uses[n.Key].returnAmount(made[i])
			}
		})
	}, 0, true, nil
}

// changeUses calls change with the rows of limits and Postgres' time, and stores the rows, in one transaction.
func (s SharedCounter) changeUses(
	ctx context.Context, by shareddb.Run, needs []Need, change func(map[string]*limitUse, time.Time),
) error {
	// All proxies lock rows in the same order. Otherwise two proxies could wait for each other forever.
	keys := convert.Each(needs, func(n Need) string { return n.Key })
	slices.Sort(keys)
	return s.turns.TransactInTurn(ctx, s.db, by, func(ctx context.Context, tx *sql.Tx) error {
		uses, now := map[string]*limitUse{}, time.Time{}
		for _, key := range keys {
			// The update changes no value. It locks the row, even if another proxy inserts the row at the same time.
			row, use := tx.QueryRowContext(ctx, `INSERT INTO limit_use (key, used, until) VALUES ($1, '{"parts": {}}', now())
				ON CONFLICT (key) DO UPDATE SET key = $1 RETURNING used, clock_timestamp()`, key), &limitUse{}
			var text []byte
			if err := row.Scan(&text, &now); err != nil {
				return err
			}
			if err := json.Unmarshal(text, use); err != nil {
				return err
			}
			uses[key] = use
		}
		change(uses, now)
		for _, n := range needs {
			text, err := json.Marshal(uses[n.Key])
			if err != nil {
				return err
			}
			// Amounts count for one period, and for one more if the clock is set back.
			if _, err := tx.ExecContext(ctx, `UPDATE limit_use SET used = $2, until = $3 WHERE key = $1`,
				n.Key, string(text), now.Add(3*n.Per)); err != nil {
				return err
			}
		}
		return nil
	})
}

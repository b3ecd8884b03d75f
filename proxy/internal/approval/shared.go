package approval

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/database"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/shareddb"
)

// heldTable keeps the held requests of several proxies in Postgres, so that a person can decide at any proxy.
//
// A row is open, approved or refused. The proxy with the exchange renews seen while the exchange waits, and takes the
// row with the decision out of the table. If that proxy dies, seen becomes too old, and the request counts as not
// waiting. Then a later run at any proxy can use the row. A row leaves the table in one statement, so an approval
// counts once.
//
// Approvals of further requests stay in the memory of the proxy with the exchange: a run has only one proxy.
type heldTable struct {
	db         *database.DB
	wake       database.WakeSignal
	collecting sync.Mutex // held while a decision moves from the table to its exchange
	adding     *shareddb.Turns
}

// maxAdding is how many requests enter the table at once. They lock it, so more at once would not be faster.
const maxAdding = 2

// isWaiting is the SQL for a row whose exchange waits. Its proxy renews seen every two seconds.
const isWaiting = `seen > now() - interval '10 seconds'`

// isForRun is the SQL for an approval of further requests. It ends when the exchange of its row no longer waits, and is
// for no other run.
const isForRun = `scope IN ('path', 'rule')`

// lifeInterval is lifeTime in SQL.
var lifeInterval = fmt.Sprintf("interval '%d seconds'", lifeTime/time.Second)

func (h *heldTable) transact(ctx context.Context, do func(ctx context.Context, tx *sql.Tx) error) error {
	return shareddb.TransactInTime(ctx, h.db, do)
}

// addShared is addRequest with the database. Both look for approvals of further requests in memory only. addShared
// returns ErrUnavailable if the database does not answer.
func (s *Store) addShared(q Request) (*entry, error) {
	s.mu.Lock()
	covered := s.isCovered(q)
	e := s.newHeld(q, q.hashScope(approvalapi.ScopeOnce))
	s.mu.Unlock()
	if covered {
		return nil, nil //nolint:nilnil // it passes
	}
	by := shareddb.Run{ID: q.Run, Generation: q.Generation}
	err := s.shared.adding.TransactInTurn(s.ctx, s.shared.db, by, func(ctx context.Context, tx *sql.Tx) error {
		return addRow(ctx, tx, e)
	})
	switch {
	case errors.Is(err, ErrFull):
		return nil, ErrFull
	case err != nil:
		//defence:shared-state instead nil, nil
		return nil, errors.Join(ErrUnavailable, err)
	case e.state == stateApproved:
		return e, nil
	}
	s.mu.Lock()
	covered = s.isCovered(q) // a person may have approved it meanwhile, with another request of the run
	full := !covered && !s.appendHeld(e)
	s.mu.Unlock()
	switch {
	case full:
		return nil, s.shared.settleRow(e, ErrFull)
	case covered:
		return nil, s.shared.settleRow(e, nil)
	}
	s.shared.wake.SendSignal() // a person may have decided before the entry was in memory
	return e, nil
}

// addRow takes an approval for a request out of the table, or adds the request.
func addRow(ctx context.Context, tx *sql.Tx, e *entry) error {
	// No advisory lock: every role of the database could take it.
	if _, err := tx.ExecContext(ctx, `LOCK TABLE held IN SHARE ROW EXCLUSIVE MODE`); err != nil {
		return err
	}
	if err := shareddb.DropExpired(ctx, tx); err != nil {
		return err
	}
	q := e.held.Request
	// If an approved row still waits, its approval is for the exchange that waits.
	err := tx.QueryRowContext(ctx, `DELETE FROM held WHERE id = (SELECT id FROM held WHERE sum = $1 AND tenant = $2
		AND state = 'approved' AND NOT `+isForRun+` AND until > now() AND NOT `+isWaiting+` LIMIT 1) RETURNING id, until`,
		e.held.sum[:], q.Tenant).Scan(&e.id, &e.until)
	if err == nil {
		e.state = stateApproved
		return nil
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	// Code that was run again repeats the request of the ended run, so the new one replaces the old.
	if _, err := tx.ExecContext(ctx, `DELETE FROM held WHERE sum = $1 AND tenant = $2
		AND (state = 'open' OR `+isForRun+`) AND NOT `+isWaiting, e.held.sum[:], q.Tenant); err != nil {
		return err
	}
	if err := boundRows(ctx, tx, e); err != nil {
		return err
	}
	return insertRow(ctx, tx, e, approvalapi.StateOpen)
}

// boundRows applies the bounds of the entries in memory to the table. It deletes the rows that must make way for a
// request, or returns ErrFull.
func boundRows(ctx context.Context, tx *sql.Tx, e *entry) error {
	rows, err := tx.QueryContext(ctx, `SELECT id, tenant, state, size, `+isWaiting+`,
		tenant = $1 AND run = $2 AND generation = $3 FROM held ORDER BY until`,
		e.tenant, e.held.Run, strconv.FormatUint(e.held.Generation, 10))
	if err != nil {
		return err
	}
	defer rows.Close()
	table := entryList{most: MaxHeldBytes}
	had, ofRun := map[string]bool{}, 0
	for rows.Next() {
		one := &entry{held: &heldRequest{}}
		var waits, same bool
		if err := rows.Scan(&one.id, &one.tenant, &one.state, &one.size, &waits, &same); err != nil {
			return err
		}
		if waits {
			one.state = stateWaiting
		}
		if same {
			ofRun++
		}
		table.all, had[one.id] = append(table.all, one), true
		table.used += one.size
	}
	if err := rows.Err(); err != nil {
		return err
	}
	added := &entry{tenant: e.tenant, held: e.held}
	if ofRun >= maxOfRun || !table.takeBytes(added, e.held.memorySize()) {
		return ErrFull
	}
	for _, kept := range table.all {
		delete(had, kept.id)
	}
	for id := range had {
		if _, err := tx.ExecContext(ctx, `DELETE FROM held WHERE id = $1`, id); err != nil {
			return err
		}
	}
	return nil
}

// insertRow adds a row: a request that waits from now on, or an approval for a later run.
func insertRow(ctx context.Context, tx *sql.Tx, e *entry, state approvalapi.State) error {
	text, err := json.Marshal(e.held.HeldRequest)
	if err != nil {
		return err
	}
	return tx.QueryRowContext(ctx, `INSERT INTO held (id, tenant, run, generation, sum, state, scope, of_run, size,
		request, seen, until) VALUES ($1, $2, $3, $4, $5, $6::text, '', $7, $8, $9,
		CASE $6::text WHEN 'open' THEN now() ELSE '-infinity' END,
		CASE $6::text WHEN 'open' THEN now() + `+lifeInterval+` ELSE $10 END) RETURNING until`,
		e.id, e.tenant, e.held.Run, strconv.FormatUint(e.held.Generation, 10), e.held.sum[:], string(state),
		e.held.Ended != nil, e.held.memorySize()+entrySize, string(text), e.until).Scan(&e.until)
}

// settleRow brings the row of a request up to date after the request has stopped waiting with this result. It returns
// the result, or ErrUnavailable if a person could not decide.
func (h *heldTable) settleRow(e *entry, result error) error {
	query := `DELETE FROM held WHERE id = $1` // it is decided, or can never be
	switch e.state {
	case stateApproved: // its run ended at the moment of the approval
		h.restoreApproval(e)
		return result
	case approvalapi.StateOpen: // from now on a decision is for a later run, unless it was for the rest of this one
		query = `UPDATE held SET seen = '-infinity', until = CASE WHEN ` + isForRun + ` THEN '-infinity' ELSE until END
			WHERE id = $1`
	}
	err := h.transact(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, query, e.id)
		return err
	})
	// Without the database a person could not decide either. If the request passes, an error does not matter: its row
	// has already left the table, or a wider approval covers the request.
	if err != nil && errors.Is(result, ErrUnanswered) {
		return errors.Join(ErrUnavailable, err)
	}
	return result
}

// restoreApproval keeps the approval of a request that did not leave. If the database does not answer, the approval is
// lost.
func (h *heldTable) restoreApproval(e *entry) {
	_ = h.transact(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
		return insertRow(ctx, tx, e, stateApproved)
	})
}

// ListHeldOfAll lists the held requests of all proxies that share the database, the oldest first.
func (s *Store) ListHeldOfAll(ctx context.Context) (list []approvalapi.HeldRequest, err error) {
	if s.shared == nil {
		return s.ListHeld(), nil
	}
	list = []approvalapi.HeldRequest{}
	err = s.shared.transact(ctx, func(ctx context.Context, tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, selectRows+`until > now() AND state <> 'refused'
			AND NOT (`+isForRun+` AND NOT `+isWaiting+`) ORDER BY until`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			e, err := scanRow(rows.Scan)
			if err != nil {
				return err
			}
			list = append(list, e.toHeld())
		}
		return rows.Err()
	})
	if err != nil {
		return nil, newUnavailable()
	}
	return list, nil
}

const selectRows = `SELECT request, state, of_run, ` + isWaiting + `, until FROM held WHERE `

// scanRow reads a row of selectRows.
func scanRow(scan func(...any) error) (*entry, error) {
	e := &entry{held: &heldRequest{}}
	var text []byte
	var ofRun, waits bool
	if err := scan(&text, &e.state, &ofRun, &waits, &e.until); err != nil {
		return nil, err
	}
	if ofRun {
		e.held.Ended = make(chan struct{}) // checkScope asks only whether there is a run
	}
	if waits && e.state == approvalapi.StateOpen {
		e.state = stateWaiting
	}
	return e, json.Unmarshal(text, &e.held.HeldRequest)
}

func newUnavailable() error {
	return newRefusal("state_unavailable", "The proxy cannot reach its database. Try again later.")
}

// decideShared is DecideHeld with the database.
func (s *Store) decideShared(
	id string, a approvalapi.Answer, isOperator bool,
) (out approvalapi.HeldRequest, err error) {
	var refused error
	decided := false
	err = s.shared.transact(s.ctx, func(ctx context.Context, tx *sql.Tx) error {
		// The same order of locks as in addRow.
		if _, err := tx.ExecContext(ctx, `LOCK TABLE held IN ROW EXCLUSIVE MODE`); err != nil {
			return err
		}
		e, err := scanRow(tx.QueryRowContext(ctx, selectRows+`id = $1 AND until > now()
			AND (state = 'open' OR state = 'approved' AND NOT `+isWaiting+`) FOR UPDATE`, id).Scan)
		if errors.Is(err, sql.ErrNoRows) {
			refused = errNotHeld
			return nil
		}
		if err != nil {
			return err
		}
		if out, refused = e.checkDecision(a, isOperator); refused != nil {
			return nil
		}
		state := stateApproved
		switch {
		case a.Approve: // for an exchange that waits, or until the code is run again
			err = tx.QueryRowContext(ctx, `UPDATE held SET state = $2, scope = $3, until = now() + `+lifeInterval+`
				WHERE id = $1 RETURNING until`, id, string(state), string(out.Scope)).Scan(&out.Until)
		case out.Waiting:
			_, err = tx.ExecContext(ctx, `UPDATE held SET state = 'refused' WHERE id = $1`, id)
		default:
			_, err = tx.ExecContext(ctx, `DELETE FROM held WHERE id = $1`, id)
		}
		if err == nil {
			_, err = tx.ExecContext(ctx, shareddb.Notify)
		}
		decided = err == nil
		return err
	})
	// Also if the answer to the commit is lost: the decision may count, so the ledger must have it.
	if decided {
		s.recordDecision(out)
	}
	switch {
	case err != nil:
		return approvalapi.HeldRequest{}, newUnavailable()
	case refused != nil:
		return approvalapi.HeldRequest{}, refused
	}
	return out, nil
}

// FollowDecisions passes the decisions of other proxies on to the exchanges of this one, until ctx ends. Without a
// database it does nothing. It calls report with the first of several errors in a row, and with nil if the database
// answers again.
func (s *Store) FollowDecisions(ctx context.Context, report func(error)) {
	if s.shared == nil {
		return
	}
	failing := false
	s.shared.db.Listen(ctx, s.shared.wake, func() {
		err := s.collectDecisions(ctx)
		if ctx.Err() == nil && failing != (err != nil) {
			report(err)
			failing = err != nil
		}
	})
}

// collectDecisions renews seen for the requests that wait, takes their decisions out of the table, and passes them on.
func (s *Store) collectDecisions(ctx context.Context) error {
	s.shared.collecting.Lock()
	defer s.shared.collecting.Unlock()
	waiting, ids := map[string]*entry{}, []string{}
	s.mu.Lock()
	for _, e := range s.held.all {
		if e.state == stateWaiting {
			waiting[e.id], ids = e, append(ids, e.id)
		}
	}
	s.mu.Unlock()
	decided := map[string]approvalapi.HeldRequest{}
	err := s.shared.transact(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := shareddb.DropExpired(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE held SET seen = now() WHERE id = ANY($1) AND state = 'open'`,
			ids); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, `DELETE FROM held WHERE id = ANY($1) AND state <> 'open'
			RETURNING id, state = 'approved', scope, until`, ids)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id string
			var out approvalapi.HeldRequest
			if err := rows.Scan(&id, &out.Approved, &out.Scope, &out.Until); err != nil {
				return err
			}
			decided[id] = out
		}
		return rows.Err()
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, out := range decided {
		waiting[id].until = out.Until
		s.answerHeld(waiting[id], out)
	}
	return nil
}

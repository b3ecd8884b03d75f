package history

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// AddAlert stores an alert with a number and the time, and notifies followers.
func (s *Store) AddAlert(a operatorapi.Alert) {
	if s.isOff() {
		return
	}
	a.Number, a.At = s.nextNumber(), time.Now().UTC()
	a.Title, a.Text = s.cleanField(a.Title), s.cleanField(a.Text)
	e := operatorapi.HistoryEvent{Kind: operatorapi.EventAlert, RunID: a.Run, Alert: &a}
	s.feed.publishEvent(e)
	s.queueJob(writeJob{do: func(ctx context.Context, tx *writeTransaction) error {
		tx.events = append(tx.events, e)
		return putAlert(ctx, tx, a)
	}})
}

// groupTime is how long later alerts with the same cause are added to an alert.
const groupTime = time.Minute

// putAlert stores an alert, or adds it to an unseen alert with the same cause.
func putAlert(ctx context.Context, tx *writeTransaction, a operatorapi.Alert) error {
	// Several followers report one cause within moments, and a person needs only one alert for it.
	var first operatorapi.Alert
	var data string
	err := tx.QueryRowContext(ctx, `SELECT data FROM alert WHERE seen = 0 AND number > $1 AND kind = $2 AND
		(run = $3 OR $4) ORDER BY number LIMIT 1`,
		a.At.Add(-groupTime).UnixMicro(), a.Kind, a.Run, isOfNetwork(a.Kind)).Scan(&data)
	switch {
	case err == nil:
		if err := json.Unmarshal([]byte(data), &first); err != nil {
			return err
		}
		// Titles are bounded, because code can cause any number of alerts.
		if first.Further++; len(first.Titles) < operatorapi.MaxTitles {
			first.Titles = append(first.Titles, a.Title)
		}
		text, err := json.Marshal(first)
		if err == nil {
			_, err = tx.ExecContext(ctx, `UPDATE alert SET data = $1 WHERE number = $2`, string(text), first.Number)
		}
		return err
	case !errors.Is(err, sql.ErrNoRows):
		return err
	}
	return putNumbered(&a.Number, func() (bool, error) {
		text, err := json.Marshal(a)
		if err != nil {
			return false, err
		}
		return hasChanged(tx.ExecContext(ctx, `INSERT INTO alert (number, data, kind, run) VALUES ($1, $2, $3, $4)
			ON CONFLICT (number) DO NOTHING`, a.Number, string(text), a.Kind, a.Run))
	})
}

// isOfNetwork reports whether simultaneous alerts of a kind have one cause: the network or the machine. Alerts of other
// kinds have one cause if they belong to one run.
func isOfNetwork(kind string) bool {
	return kind == operatorapi.AlertAPI || kind == operatorapi.AlertServer
}

// ListAlerts lists the latest alerts, latest first. If unseen is set, it lists only unseen alerts.
func (s *Store) ListAlerts(ctx context.Context, unseen bool) ([]operatorapi.Alert, error) {
	out := []operatorapi.Alert{}
	err := s.eachStoredRow(ctx, func(row *sql.Rows) error {
		var data string
		var seen int
		if err := row.Scan(&data, &seen); err != nil {
			return err
		}
		var a operatorapi.Alert
		err := json.Unmarshal([]byte(data), &a)
		a.Seen = seen != 0
		out = append(out, a)
		return err
	}, `SELECT data, seen FROM alert WHERE seen = 0 OR NOT $1 ORDER BY number DESC LIMIT 1000`, unseen)
	return out, err
}

// SeeAlerts marks alerts up to a number as seen.
func (s *Store) SeeAlerts(ctx context.Context, upTo int64) error {
	return s.writeAndWait(ctx, func(ctx context.Context, tx *writeTransaction) error {
		_, err := tx.ExecContext(ctx, `UPDATE alert SET seen = 1 WHERE number <= $1`, upTo)
		return err
	})
}

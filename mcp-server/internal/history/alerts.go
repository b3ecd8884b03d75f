package history

import (
	"context"
	"encoding/json"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/historyapi"
)

// AddAlert stores an alert, with its number and time, and notifies followers.
func (s *Store) AddAlert(a historyapi.Alert) {
	if s.off() {
		return
	}
	a.Number, a.At = s.number(), time.Now().UTC()
	a.Title, a.Text = s.field(a.Title), s.field(a.Text)
	s.feed.publish(historyapi.Event{Kind: historyapi.EventAlert, RunID: a.Run, Alert: &a})
	s.put(job{do: func(ctx context.Context, tx *transaction) error {
		data, err := json.Marshal(a)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO alert (number, data) VALUES (?, ?)`, a.Number, string(data))
		return err
	}})
}

// Alerts lists the latest alerts, latest first; only those that nobody has seen if unseen is set.
func (s *Store) Alerts(ctx context.Context, unseen bool) ([]historyapi.Alert, error) {
	db, err := s.db(ctx)
	if err != nil {
		return nil, err
	}
	out, err := read[historyapi.Alert](ctx, db, `SELECT json_set(data, '$.seen', json(iif(seen, 'true', 'false')))
		FROM alert WHERE seen = 0 OR NOT ? ORDER BY number DESC LIMIT 1000`, unseen)
	return out, s.checked(err)
}

// SeeAlerts marks alerts up to a number as seen.
func (s *Store) SeeAlerts(ctx context.Context, upTo int64) error {
	return s.ask(ctx, func(ctx context.Context, tx *transaction) error {
		_, err := tx.ExecContext(ctx, `UPDATE alert SET seen = 1 WHERE number <= ?`, upTo)
		return err
	})
}

package authserver

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
)

// Bounds of the rows of one tenant. A new row replaces the oldest.
const (
	maxRequests = 20
	maxCodes    = 20
	maxLogins   = 100
	// everyRow is more than all rows: SQLite has no OFFSET without a LIMIT.
	everyRow = 1 << 30
)

var (
	// errUnknown means that a secret is unknown, used or expired, or belongs to another client.
	errUnknown = errors.New("unknown, used or expired")
	// errOtherClient means that a one-time code is for clients at other hosts.
	errOtherClient = errors.New("the code is for another client")
	// errReused means that a refresh token had been replaced already. Its login has ended.
	errReused = errors.New("a refresh token was used twice")
	// ErrNoClient means that no login has the ID.
	ErrNoClient = errors.New("there is no such client: codeforge clients list shows their IDs")
)

// store has the state in the tables of database.LoginMigrations. Each change is atomic, so several replicas may share
// it.
type store struct {
	db  *database.DB
	now func() time.Time
}

// request is an authorization request of a client that a tenant's user has signed in for.
type request struct {
	client, name, redirect, state, challenge string
	tenant, proof                            string
}

// fromNow returns a time as the database has it: microseconds since 1970.
func (s store) fromNow(d time.Duration) int64 { return s.now().Add(d).UnixMicro() }

// latestExpired returns the latest end of expired rows, in the form of fromNow: a row counts if its end is later.
func (s store) latestExpired() int64 {
	//defence:client-expiry instead 0
	return s.fromNow(0)
}

// matchClient returns the condition that a login belongs to the client $1.
func matchClient() string {
	//defence:client-owner instead "$1 <> ''"
	return "client = $1"
}

// hashCookie returns the form in which the database has the cookie of a browser: never "", as after an approval.
func hashCookie(cookie string) string {
	//defence:client-form instead ""
	return hashSecret(cookie)
}

// isFresh reports whether a document that was read at this time still counts.
func (s store) isFresh(at time.Time) bool {
	age := s.now().Sub(at)
	return age >= 0 && age < documentFresh
}

// addClient adds a client, or replaces its name and its redirect URIs.
func (s store) addClient(ctx context.Context, c client) (at time.Time, err error) {
	redirects, err := json.Marshal(c.Redirects)
	if err != nil {
		return at, err
	}
	at = s.now()
	return at, s.db.Transact(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO login_client (id, name, redirects, began) VALUES ($1, $2, $3, $4)
			ON CONFLICT (id) DO UPDATE SET name = $2, redirects = $3, began = $4`,
			c.ID, c.Name, string(redirects), at.UnixMicro())
		if err == nil {
			// Clients with a login stay, so that a flood of registrations cannot end them.
			//defence:client-room
			_, err = tx.ExecContext(ctx, `DELETE FROM login_client WHERE id IN (SELECT id FROM login_client
				WHERE NOT EXISTS (SELECT 1 FROM login WHERE client = login_client.id)
				ORDER BY began DESC, id LIMIT $1 OFFSET $2)`, everyRow, maxUnused)
		}
		return err
	})
}

// findClient returns a client, and the time at which it was added. The error is errUnknown if there is no such client.
func (s store) findClient(ctx context.Context, id string) (c client, at time.Time, err error) {
	var redirects string
	var began int64
	c.ID = id
	err = s.db.QueryRowContext(ctx, `SELECT name, redirects, began FROM login_client WHERE id = $1`, keepPrintable(id)).
		Scan(&c.Name, &redirects, &began)
	if err != nil {
		return c, at, replaceNoRows(err)
	}
	return c, time.UnixMicro(began), json.Unmarshal([]byte(redirects), &c.Redirects)
}

// addOneTimeCode adds a code of a tenant. hosts has the results of destinationOf that the code is for, with spaces.
func (s store) addOneTimeCode(ctx context.Context, code, tenant, hosts string) error {
	return s.db.Transact(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO login_code (hash, tenant, until, hosts) VALUES ($1, $2, $3, $4)`,
			hashSecret(code), tenant, s.fromNow(oneTimeTime), hosts)
		if err == nil {
			err = s.keepLatest(ctx, tx, "login_code", "hash", "until", tenant, maxCodes)
		}
		return err
	})
}

// useOneTimeCode removes a code and returns its tenant. The error is errUnknown if there is no such code. It is
// errOtherClient, and the code stays, if the code is not for clients that lead back to this host.
func (s store) useOneTimeCode(ctx context.Context, code, host string) (tenant string, err error) {
	var hosts string
	err = s.db.QueryRowContext(ctx, `SELECT tenant, hosts FROM login_code WHERE hash = $1 AND until > $2`,
		hashSecret(code), s.latestExpired()).Scan(&tenant, &hosts)
	if err != nil {
		return "", replaceNoRows(err)
	}
	// The client chooses its name. So a person could take another client for the one that the code is for.
	//defence:client-bound
	if !slices.Contains(strings.Fields(hosts), host) {
		return "", errOtherClient
	}
	//defence:client-once instead nil
	err = s.removeOneTimeCode(ctx, code)
	return tenant, err
}

// removeOneTimeCode removes a code. The removal decides, because two browsers may send the same code at once: the error
// is errUnknown for the second one.
func (s store) removeOneTimeCode(ctx context.Context, code string) error {
	removed, err := s.removeRows(ctx, `DELETE FROM login_code WHERE hash = $1`, hashSecret(code))
	if err == nil && !removed {
		err = errUnknown
	}
	return err
}

// addRequest adds a request that waits for a decision. Only a browser with the cookie can decide about it.
func (s store) addRequest(ctx context.Context, id, cookie string, p request) error {
	return s.db.Transact(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO login_request
			(hash, cookie, client, name, redirect, state, challenge, tenant, proof, until)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, hashSecret(id), hashCookie(cookie),
			p.client, p.name, p.redirect, p.state, p.challenge, p.tenant, p.proof, s.fromNow(approveTime))
		if err == nil {
			err = s.keepLatest(ctx, tx, "login_request", "hash", "until", p.tenant, maxRequests)
		}
		return err
	})
}

// keepLatest removes expired rows, and the rows of a tenant beyond the latest ones. The table and the columns are
// constants of this file.
func (s store) keepLatest(ctx context.Context, tx *sql.Tx, table, id, at, tenant string, most int) error {
	//nolint:gosec // the names are constants
	expired := `DELETE FROM ` + table + ` WHERE until <= $1`
	//nolint:gosec // the names are constants
	older := `DELETE FROM ` + table + ` WHERE ` + id + ` IN (SELECT ` + id + ` FROM ` + table + `
		WHERE tenant = $1 ORDER BY ` + at + ` DESC, ` + id + ` LIMIT $2 OFFSET $3)`
	_, err := tx.ExecContext(ctx, expired, s.latestExpired())
	if err == nil {
		_, err = tx.ExecContext(ctx, older, tenant, everyRow, most)
	}
	return err
}

// takeRequest removes a request that waits for a decision, and returns it.
func (s store) takeRequest(ctx context.Context, id, cookie string) (p request, err error) {
	return s.takeRow(ctx, `DELETE FROM login_request WHERE hash = $1 AND cookie = $2 AND until > $3 RETURNING `,
		hashSecret(id), hashCookie(cookie), s.latestExpired())
}

// approveRequest gives a request a code. Its row has no cookie from now on, so that no decision finds it again.
func (s store) approveRequest(ctx context.Context, id, cookie, code string) (request, error) {
	return s.takeRow(ctx, `UPDATE login_request SET hash = $4, cookie = '', until = $5
		WHERE hash = $1 AND cookie = $2 AND until > $3 RETURNING `,
		hashSecret(id), hashCookie(cookie), s.latestExpired(), hashSecret(code), s.fromNow(codeTime))
}

// takeRow runs a statement that returns one request.
func (s store) takeRow(ctx context.Context, statement string, args ...any) (request, error) {
	return scanRequest(s.db.QueryRowContext(ctx, statement+requestColumns, args...))
}

const requestColumns = `client, name, redirect, state, challenge, tenant, proof`

func scanRequest(row *sql.Row) (p request, err error) {
	err = row.Scan(&p.client, &p.name, &p.redirect, &p.state, &p.challenge, &p.tenant, &p.proof)
	return p, replaceNoRows(err)
}

// replaceNoRows returns errUnknown for a query without a row.
func replaceNoRows(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return errUnknown
	}
	return err
}

// keepPrintable returns a text of printable ASCII, and "" for another: Postgres refuses bytes that are not UTF-8.
func keepPrintable(text string) string {
	if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' }) {
		return ""
	}
	return text
}

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
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
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

// Login is a client that a tenant's user has approved.
type Login struct {
	ID string
	// Client has the name and the redirect URI that the user saw: a client can change its document later. If the login
	// has no stored redirect URI, Client has the client's current name and redirect URIs.
	Client client
	Tenant string
	// Began is the time of the approval, Used the time of the last token.
	Began, Used time.Time

	proof string
}

// ToHostedClient returns a login as the operator sees it.
func (l Login) ToHostedClient() operatorapi.HostedClient {
	return operatorapi.HostedClient{
		ID: l.ID, Name: l.Client.Name, Redirects: l.Client.Redirects, Tenant: l.Tenant, Began: l.Began, Used: l.Used,
	}
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

// exchangeCode removes a code, and makes a login of its request if isAllowed accepts the request. Both are one change:
// a second use of the code at the same time waits for it, and then finds the login. The error is errUnknown if there is
// no such code, or if its request is not allowed.
func (s store) exchangeCode(ctx context.Context, code string, isAllowed func(request) bool) (t tokens, err error) {
	isRefused := false
	err = s.db.Transact(ctx, func(tx *sql.Tx) error {
		p, err := scanRequest(tx.QueryRowContext(ctx, `DELETE FROM login_request
			WHERE hash = $1 AND cookie = '' AND until > $2 RETURNING `+requestColumns, hashSecret(code), s.latestExpired()))
		if err != nil {
			return err
		}
		if isRefused = !isAllowed(p); isRefused {
			// Not an error, which would bring the code back.
			//defence:client-replay instead errUnknown
			return nil
		}
		t, err = s.addLogin(ctx, tx, p, code)
		return err
	})
	if err == nil && isRefused {
		err = errUnknown
	}
	return t, err
}

// addLogin adds a login and its first tokens.
func (s store) addLogin(ctx context.Context, tx *sql.Tx, p request, code string) (tokens, error) {
	id, family, now := newSecret()[:12], newSecret(), s.fromNow(0)
	t := tokens{newAccessToken(), newRefreshToken(family)}
	_, err := tx.ExecContext(ctx, `INSERT INTO login
		(id, client, name, redirect, tenant, proof, code, family, refresh, began, used, until)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10, $11)`, id, p.client, p.name, p.redirect, p.tenant, p.proof,
		hashSecret(code), hashSecret(family), hashSecret(t.refresh), now, s.fromNow(loginTime))
	if err == nil {
		err = s.addAccess(ctx, tx, id, t.access)
	}
	if err == nil {
		err = s.keepLatest(ctx, tx, "login", "id", "used", p.tenant, maxLogins)
	}
	return t, err
}

// addAccess adds an access token to a login. The one before stays valid, because requests with it may be on their way.
func (s store) addAccess(ctx context.Context, tx *sql.Tx, login, token string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM login_access WHERE login = $1 AND hash NOT IN (SELECT hash FROM login_access
		WHERE login = $1 ORDER BY until DESC, hash LIMIT 1)`, login)
	if err == nil {
		_, err = tx.ExecContext(ctx, `INSERT INTO login_access (hash, login, until) VALUES ($1, $2, $3)`,
			hashSecret(token), login, s.fromNow(accessTime))
	}
	return err
}

// The prefixes let tools that search for leaked secrets find a token.
func newAccessToken() string { return "cf_access_" + newSecret() + newSecret() }

// newRefreshToken returns a token that contains the name of its family, so that a replaced token still leads to its
// login, without a row for each token of the past.
func newRefreshToken(family string) string { return "cf_refresh_" + family + newSecret() + newSecret() }

// familyOf returns the family of a refresh token, or "".
func familyOf(token string) string {
	n := len(newSecret())
	if len(token) != len(newRefreshToken(""))+n {
		return ""
	}
	return token[len("cf_refresh_"):][:n]
}

// renewLogin replaces a refresh token and adds an access token. If the token has been replaced before, it ends the
// login and returns errReused.
func (s store) renewLogin(ctx context.Context, refresh, clientID string) (t tokens, l Login, err error) {
	family := familyOf(refresh)
	t = tokens{newAccessToken(), newRefreshToken(family)}
	err = s.db.Transact(ctx, func(tx *sql.Tx) error {
		//nolint:gosec // the condition is a constant
		renew := `UPDATE login SET refresh = $2, used = $3, until = $4
			WHERE family = $5 AND refresh = $6 AND until > $7 AND ` + matchClient() + ` RETURNING id, tenant, proof`
		err := tx.QueryRowContext(ctx, renew, keepPrintable(clientID), hashSecret(t.refresh), s.fromNow(0),
			s.fromNow(loginTime), hashSecret(family), hashSecret(refresh), s.latestExpired()).
			Scan(&l.ID, &l.Tenant, &l.proof)
		if err != nil {
			return err
		}
		return s.addAccess(ctx, tx, l.ID, t.access)
	})
	if !errors.Is(err, sql.ErrNoRows) {
		return t, l, err
	}
	// Another refresh token of the family is valid now, so somebody else may have it.
	ended := false
	//defence:client-reuse
	ended, err = s.removeRows(ctx, `DELETE FROM login WHERE family = $1 AND refresh <> $2`, hashSecret(family),
		hashSecret(refresh))
	if ended {
		return tokens{}, l, errReused
	}
	return tokens{}, l, errors.Join(errUnknown, err)
}

// findAccess returns the access that a token gives.
func (s store) findAccess(ctx context.Context, token string) (a Access, proof string, err error) {
	var until int64
	err = s.db.QueryRowContext(ctx, `SELECT l.id, l.tenant, l.proof, a.until
		FROM login_access a JOIN login l ON l.id = a.login
		WHERE a.hash = $1 AND a.until > $2`, hashSecret(token), s.latestExpired()).Scan(&a.Login, &a.Tenant, &proof, &until)
	a.Expires = time.UnixMicro(until)
	return a, proof, replaceNoRows(err)
}

// endLoginOfCode ends the login that a code has made. It reports whether there was one.
func (s store) endLoginOfCode(ctx context.Context, code string) (bool, error) {
	return s.removeRows(ctx, `DELETE FROM login WHERE code = $1`, hashSecret(code))
}

// endLoginOfToken ends the login of a token, if the token is the client's. A replaced refresh token counts too: the
// client may not have the answer with the next one, or a thief may have it.
func (s store) endLoginOfToken(ctx context.Context, token, clientID string) error {
	family := ""
	//defence:client-reuse
	family = familyOf(token)
	_, err := s.removeRows(ctx, `DELETE FROM login WHERE `+matchClient()+` AND (family = $2
		OR id IN (SELECT login FROM login_access WHERE hash = $3))`, keepPrintable(clientID), hashSecret(family),
		hashSecret(token))
	return err
}

// owner is a tenant, with the proof of the token with which a person signed in, or "" after a one-time code.
type owner struct{ tenant, proof string }

// listOwners returns the owners of all codes, requests and logins.
func (s store) listOwners(ctx context.Context) (list []owner, err error) {
	rows, err := s.db.QueryContext(ctx, `SELECT tenant, proof FROM login UNION SELECT tenant, proof FROM login_request
		UNION SELECT tenant, '' FROM login_code`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var o owner
		if err := rows.Scan(&o.tenant, &o.proof); err != nil {
			return nil, err
		}
		list = append(list, o)
	}
	return list, rows.Err()
}

// removeOwned removes the codes, requests and logins of an owner.
func (s store) removeOwned(ctx context.Context, o owner) error {
	return s.db.Transact(ctx, func(tx *sql.Tx) error {
		for _, table := range []string{"login", "login_request"} {
			//nolint:gosec // the names are constants
			statement := `DELETE FROM ` + table + ` WHERE tenant = $1 AND proof = $2`
			if _, err := tx.ExecContext(ctx, statement, o.tenant, o.proof); err != nil {
				return err
			}
		}
		if o.proof != "" { // the tenant may still exist
			return nil
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM login_code WHERE tenant = $1`, o.tenant)
		return err
	})
}

func (s store) removeLogin(ctx context.Context, id string) error {
	ended, err := s.removeRows(ctx, `DELETE FROM login WHERE id = $1`, keepPrintable(id))
	if err == nil && !ended {
		err = ErrNoClient
	}
	return err
}

// removeRows runs a statement that removes rows. It reports whether there were any.
func (s store) removeRows(ctx context.Context, statement string, args ...any) (bool, error) {
	res, err := s.db.ExecContext(ctx, statement, args...)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// listLogins returns the logins that have not expired, the latest first.
func (s store) listLogins(ctx context.Context) ([]Login, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT l.id, l.tenant, l.began, l.used, l.name, l.redirect,
		c.id, c.name, c.redirects FROM login l JOIN login_client c ON c.id = l.client
		WHERE l.until > $1 ORDER BY l.used DESC, l.id`, s.latestExpired())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []Login
	for rows.Next() {
		var l Login
		var began, used int64
		var name, redirect, redirects string
		err := rows.Scan(&l.ID, &l.Tenant, &began, &used, &name, &redirect, &l.Client.ID, &l.Client.Name, &redirects)
		if err == nil {
			err = json.Unmarshal([]byte(redirects), &l.Client.Redirects)
		}
		if err != nil {
			return nil, err
		}
		//defence:client-approved
		if redirect != "" {
			l.Client.Name, l.Client.Redirects = name, []string{redirect}
		}
		l.Began, l.Used = time.UnixMicro(began), time.UnixMicro(used)
		list = append(list, l)
	}
	return list, rows.Err()
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

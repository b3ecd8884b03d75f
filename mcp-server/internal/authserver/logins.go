package authserver

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

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

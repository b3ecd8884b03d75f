// Package database opens the databases of mcp-server and of the proxy, and migrates their schemas. Each has a Postgres
// with a separate role and schema. mcp-server may have a SQLite file instead.
//
// Both accept the same SQL. Placeholders are $1, $2 and so on. An upsert names its columns: ON CONFLICT (a) DO UPDATE.
// The few statements that differ check DB.Postgres.
//
// Threat: the URL of Postgres contains a password. Contract: errors of this package contain no part of the URL.
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/codeforge-mcp/codeforge/internal/secret"
)

const (
	// connectTime bounds an attempt to connect, and statementTime one statement.
	connectTime   = 5 * time.Second
	statementTime = "60s"
	// maxConnections bounds the connections of one process, without Listen's connection.
	maxConnections = 8
)

// ProxySchema is the schema of the proxies. The role of mcp-server must have no right to use it.
const ProxySchema = "codeforge_proxy"

// LockMigration is the key of the advisory lock of migrations. Other packages use keys from LockMigration + 1 on.
const LockMigration = 0x636f6465

// DB is an open database. It is safe for concurrent use.
type DB struct {
	*sql.DB
	// Postgres is false for SQLite.
	Postgres bool

	schema    string          // of Postgres: the schema of the tables, and the channel of notifications
	config    *pgx.ConnConfig // of Postgres
	addresses addressCache    // of Postgres
	listeners listenerSet     // to Postgres
}

// OpenPostgres prepares connections to a schema of Postgres. The address is a URL that package settings has completed.
// A transaction ends after idle without a statement: a process that hangs must not hold locks that others need. The
// first use connects. Except for the schema ProxySchema itself, each use fails with ErrProxyRole while the role could
// use it.
func OpenPostgres(address secret.Value, schema string, idle time.Duration) (*DB, error) {
	config, err := pgx.ParseConfig(address.Reveal())
	if err != nil {
		// The error of pgx contains the URL, so it is not wrapped.
		return nil, errors.New("the database's URL has a parameter with a mistake, or names a file that cannot be read")
	}
	config.ConnectTimeout = connectTime
	for name, value := range map[string]string{
		"application_name": "codeforge", "search_path": schema, "statement_timeout": statementTime,
		"idle_in_transaction_session_timeout": strconv.FormatInt(idle.Milliseconds(), 10),
	} {
		config.RuntimeParams[name] = value
	}
	var checks []stdlib.OptionOpenDB
	if schema != ProxySchema {
		// With each connection, because Postgres may be away at the start, and roles may change.
		checks = append(checks, stdlib.OptionAfterConnect(refuseProxyRole))
	}
	db := &DB{DB: stdlib.OpenDB(*config, checks...), Postgres: true, schema: schema, config: config}
	db.SetMaxOpenConns(maxConnections)
	db.SetMaxIdleConns(maxConnections / 2)
	db.SetConnMaxIdleTime(time.Minute)
	return db, nil
}

// Transact runs a function in a transaction and commits it, unless the function returns an error.
func (db *DB) Transact(ctx context.Context, do func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // has no effect after a commit
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// LockAdvisory takes an advisory lock of Postgres until the transaction ends.
func LockAdvisory(ctx context.Context, tx *sql.Tx, key int64) error {
	_, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, key)
	return err
}

// ErrProxyRole means that mcp-server's role can use the schema of the proxies, or can get this right.
var ErrProxyRole = errors.New("its role can use the schema of the proxies, or can get this right, so mcp-server " +
	"could approve requests: give mcp-server another role, see docs/guides/several-proxies.md")

// refuseProxyRole returns ErrProxyRole if the role of a connection, or a role that it can become, may use ProxySchema.
// Some rights have the same effect: CREATEROLE grants each role before Postgres 16, REPLICATION reads all changes, and
// the last three roles reach the server's files.
func refuseProxyRole(ctx context.Context, c *pgx.Conn) error {
	var can bool
	err := c.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_namespace n, pg_roles r WHERE n.nspname = $1
		AND pg_has_role(r.oid, 'MEMBER') AND (has_schema_privilege(r.oid, n.oid, 'USAGE') OR r.rolcreaterole
		OR r.rolreplication OR r.rolname IN ('pg_read_server_files', 'pg_write_server_files',
		'pg_execute_server_program')))`, ProxySchema).Scan(&can)
	//defence:proxy-schema
	if can {
		return ErrProxyRole
	}
	return err
}

// IsUnreachable reports whether an error means that Postgres does not answer now, so that a retry may succeed.
func IsUnreachable(err error) bool {
	var connect *pgconn.ConnectError
	if server, ok := errors.AsType[*pgconn.PgError](err); ok {
		// Connection exceptions, too many connections, shutdown, and a lost race with another transaction.
		return slices.ContainsFunc([]string{"08", "53", "57", "40"}, func(class string) bool {
			return strings.HasPrefix(server.Code, class)
		}) && server.Code != "57014" // one statement took too long: a retry would, too
	}
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, sql.ErrConnDone) ||
		err != nil && strings.Contains(err.Error(), "conn closed") // pgx has no exported error for this
}

// IsMistake reports whether only the operator can fix an error: a wrong password, a missing right, a right too many, or
// a database that a newer CodeForge wrote.
func IsMistake(err error) bool {
	var server *pgconn.PgError
	return errors.Is(err, ErrNewer) || errors.Is(err, ErrProxyRole) || errors.As(err, &server) && !IsUnreachable(err) ||
		strings.Contains(err.Error(), "x509: ")
}

// HideAddress returns an error without the host, the user and the database, which errors of pgx contain.
func HideAddress(err error) error {
	var connect *pgconn.ConnectError
	var server *pgconn.PgError
	var dns *net.DNSError
	var socket *net.OpError
	switch {
	case err == nil:
		return nil
	// A ConnectError may wrap an answer of the server, so this case comes before it.
	case errors.As(err, &server):
		// The messages of these codes quote the user or the database.
		switch {
		case strings.HasPrefix(server.Code, "28") || server.Code == "3D000":
			return fmt.Errorf("the database refuses the user, the password or the name of the database (SQLSTATE %s)",
				server.Code)
		case server.Code == "53300":
			return fmt.Errorf("the database has no free connection (SQLSTATE %s)", server.Code)
		}
		return fmt.Errorf("the database answers: %s (SQLSTATE %s)", server.Message, server.Code)
	case errors.Is(err, syscall.ECONNREFUSED):
		return errors.New("the database does not answer: connection refused")
	case errors.As(err, &dns):
		return errors.New("the database does not answer: its name has no address")
	case strings.Contains(err.Error(), "tls: ") || strings.Contains(err.Error(), "x509: "):
		return errors.New("the database's certificate cannot be verified; " +
			"set DATABASE_CA_FILE to a file with its authority, or name an sslmode in the URL")
	case errors.As(err, &connect), errors.As(err, &socket): // of a connection that breaks, it has both addresses
		return errors.New("the database does not answer")
	}
	return err
}

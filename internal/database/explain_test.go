package database_test

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/codeforge-mcp/codeforge/internal/database"
)

// TestExplain: an error of a connection that breaks does not name the database's address.
func TestExplain(t *testing.T) {
	at := &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 5432}
	for _, why := range []error{syscall.ECONNRESET, syscall.ETIMEDOUT, syscall.ECONNREFUSED} {
		err := database.HideAddress(fmt.Errorf("reading: %w", &net.OpError{Op: "read", Net: "tcp", Addr: at, Err: why}))
		if strings.Contains(err.Error(), "10.1.2.3") || !strings.HasPrefix(err.Error(), "the database does not answer") {
			t.Errorf("%v: %v", why, err)
		}
	}
}

// TestIsUnreachable: an error of the connection may pass, and one of the statement does not.
func TestIsUnreachable(t *testing.T) {
	for err, want := range map[error]bool{
		&pgconn.ConnectError{}: true, &net.OpError{Err: syscall.EPIPE}: true, io.EOF: true, io.ErrUnexpectedEOF: true,
		net.ErrClosed: true, sql.ErrConnDone: true, errors.New("conn closed"): true, errors.New("x"): false,
		&pgconn.PgError{Code: "08006"}: true, &pgconn.PgError{Code: "53300"}: true, &pgconn.PgError{Code: "57P01"}: true,
		&pgconn.PgError{Code: "40001"}: true, &pgconn.PgError{Code: "57014"}: false, &pgconn.PgError{Code: "23505"}: false,
	} {
		if got := database.IsUnreachable(fmt.Errorf("reading: %w", err)); got != want {
			t.Errorf("%v: %t", err, got)
		}
	}
	if database.IsUnreachable(nil) {
		t.Error("no error is one")
	}
}

// TestHideAddress: no error shows the host, the user or the database, and each names its kind.
func TestHideAddress(t *testing.T) {
	const host, user, name = "db.acme.example", "cfuser", "cfname"
	refused := func(code, text string) error {
		return fmt.Errorf("connecting to %s as %s: %w", host, user, &pgconn.PgError{Code: code, Message: text})
	}
	for want, err := range map[string]error{
		"the database refuses the user, the password or the name of the database (SQLSTATE 28P01)": refused("28P01",
			`password authentication failed for user "cfuser"`),
		"the database refuses the user, the password or the name of the database (SQLSTATE 3D000)": refused("3D000",
			`database "cfname" does not exist`),
		"the database has no free connection (SQLSTATE 53300)": refused("53300", `too many connections for role "cfuser"`),
		"the database answers: the database system is starting up (SQLSTATE 57P03)": refused("57P03",
			"the database system is starting up"),
		"the database does not answer: connection refused": fmt.Errorf("dialing %s: %w", host,
			&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}),
		"the database does not answer: its name has no address": fmt.Errorf("looking up: %w",
			&net.DNSError{Err: "no such host", Name: host}),
		"the database's certificate cannot be verified; set DATABASE_CA_FILE to a file with its authority, or name an " +
			"sslmode in the URL": fmt.Errorf("%s: tls: failed to verify certificate: x509: unknown authority", host),
	} {
		got := database.HideAddress(err)
		if got == nil || got.Error() != want {
			t.Errorf("%v: %v, want %s", err, got, want)
			continue
		}
		for _, hidden := range []string{host, user, name} {
			if strings.Contains(got.Error(), hidden) {
				t.Errorf("%v shows %s", got, hidden)
			}
		}
	}
	if err := database.HideAddress(nil); err != nil {
		t.Error(err)
	}
}

// TestIsMistake: a new start cannot mend these errors, and time can mend the others.
func TestIsMistake(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{database.ErrNewer, true},
		{fmt.Errorf("opening: %w", database.ErrProxyRole), true},
		{&pgconn.PgError{Code: "28P01"}, true},
		{errors.New("x509: certificate has expired"), true},
		{&pgconn.PgError{Code: "57P03"}, false},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, false},
	} {
		if got := database.IsMistake(c.err); got != c.want {
			t.Errorf("%v: %t, want %t", c.err, got, c.want)
		}
	}
}

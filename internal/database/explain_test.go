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

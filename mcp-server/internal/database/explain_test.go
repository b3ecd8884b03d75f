package database_test

import (
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
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

package guard_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/guard"
)

func dial(t *testing.T, to net.Addr) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", to.String())
	testkit.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ask sends a request with a token, and returns the status of the answer.
func ask(c net.Conn, token string, wait time.Duration) (int, error) {
	if err := c.SetDeadline(time.Now().Add(wait)); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+token+"\r\n\r\n"); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}

// TestLimit: who has no token cannot take the connections of those who have it, whatever they send; only the oldest of
// theirs ends, and one on which the token came stays. Those who have it wait for each other.
// Promise: no-lock-out
func TestLimit(t *testing.T) {
	const most, patience = 4, 10 * time.Second
	for name, g := range map[string]*guard.Guard{
		"no token": guard.New(guard.Config{}), // every request is admitted
		"operator": guard.New(guard.Config{Token: secret.New("token")}),
	} {
		t.Run(name, func(t *testing.T) {
			tcp, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
			testkit.Must(t, err)
			l := guard.LimitConns(tcp, most)
			server := &http.Server{
				ReadHeaderTimeout: time.Minute, ConnContext: guard.ConnContext,
				Handler: g.RequireClient(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })),
			}
			done := make(chan error, 1)
			go func() { done <- server.Serve(l) }()
			dial := func() net.Conn { return dial(t, tcp.Addr()) }
			mustPass := func(c net.Conn) {
				t.Helper()
				if status, err := ask(c, "token", patience); status != http.StatusNoContent {
					t.Fatalf("with the token: %d, %v", status, err)
				}
			}
			ends := func(c net.Conn) bool { // closed, as opposed to open and silent
				testkit.Must(t, c.SetReadDeadline(time.Now().Add(patience)))
				_, err := c.Read(make([]byte, 1))
				return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
			}

			first := dial()
			mustPass(first)
			var second net.Conn
			if name == "no token" {
				second = dial()
				mustPass(second)
			} else {
				var strangers []net.Conn
				for i := range 2 * most {
					c := dial()
					strangers = append(strangers, c)
					if i%2 == 0 {
						if status, err := ask(c, "no token", patience); status != http.StatusUnauthorized {
							t.Fatalf("without the token: %d, %v", status, err)
						}
					}
				}
				second = dial()
				mustPass(second)
				mustPass(first)
				for i, c := range strangers[:len(strangers)-(most-2)] {
					if !ends(c) {
						t.Errorf("stranger %d is still there", i)
					}
				}
				if status, err := ask(strangers[len(strangers)-1], "no token", patience); status != http.StatusUnauthorized {
					t.Errorf("the newest stranger, for whom there is room: %d, %v", status, err)
				}
			}

			third := dial()
			mustPass(third)
			fourth := dial()
			mustPass(fourth)
			fifth := dial()
			if status, err := ask(fifth, "token", 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("with %d connections that have the token, another had the answer %d, %v", most, status, err)
			}
			testkit.Must(t, first.Close())
			testkit.Must(t, fifth.SetDeadline(time.Now().Add(patience)))
			if resp, err := http.ReadResponse(bufio.NewReader(fifth), nil); err != nil || resp.Body.Close() != nil {
				t.Errorf("there is room again, and no answer: %v", err)
			}
			for _, c := range []net.Conn{second, third, fourth} {
				mustPass(c)
			}

			sixth := dial() // Accept waits for room with it
			time.Sleep(50 * time.Millisecond)
			testkit.Must(t, server.Close())
			select {
			case err := <-done:
				if !errors.Is(err, http.ErrServerClosed) {
					t.Error(err)
				}
			case <-time.After(patience):
				t.Fatal("the server does not end while a connection waits for room")
			}
			if !ends(sixth) {
				t.Error("a connection that waited is open after the end")
			}
		})
	}
}

// TestLimitTooLate: a request with the token that comes on a connection that has just made room for another is not
// served.
// Promise: no-lock-out
func TestLimitTooLate(t *testing.T) {
	tcp, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	l := guard.LimitConns(tcp, 1)
	t.Cleanup(func() { _ = l.Close() })
	var accepted [2]net.Conn
	for i := range accepted {
		dial(t, tcp.Addr())
		accepted[i], err = l.Accept()
		testkit.Must(t, err)
		t.Cleanup(func() { _ = accepted[i].Close() })
	}
	for i, want := range []bool{false, true} {
		if got := guard.AdmitConn(guard.ConnContext(t.Context(), accepted[i]), ""); got != want {
			t.Errorf("connection %d: %v, want %v", i, got, want)
		}
	}
}

// TestLimitTenants: one tenant has at most half of the connections, the operator as many as there are.
// Promise: no-lock-out
func TestLimitTenants(t *testing.T) {
	const most, patience = 6, 10 * time.Second
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	g := guard.New(guard.Config{Token: secret.New("operator"), Required: true, Tenant: func(token string) (string, http.Handler) {
		switch token {
		case "alice", "alice's other":
			return "alice", ok
		case "bob":
			return "bob", ok
		}
		return "", nil
	}})
	tcp, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	server := &http.Server{ReadHeaderTimeout: time.Minute, ConnContext: guard.ConnContext, Handler: g.RequireClient(ok)}
	go func() { _ = server.Serve(guard.LimitConns(tcp, most)) }()
	t.Cleanup(func() { _ = server.Close() })
	want := func(c net.Conn, token string, status int) {
		t.Helper()
		if got, err := ask(c, token, patience); got != status {
			t.Errorf("%s: %d, %v, want %d", token, got, err, status)
		}
	}
	var alices []net.Conn
	for range most / 2 {
		c := dial(t, tcp.Addr())
		want(c, "alice", http.StatusNoContent)
		want(c, "alice", http.StatusNoContent)
		alices = append(alices, c)
	}
	for range most {
		c := dial(t, tcp.Addr())
		want(c, "alice's other", http.StatusServiceUnavailable)
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("a connection too many: %v, want its end", err)
		}
	}
	want(dial(t, tcp.Addr()), "bob", http.StatusNoContent)
	want(alices[0], "operator", http.StatusNoContent) // a connection may change hands
	want(dial(t, tcp.Addr()), "alice", http.StatusNoContent)
	testkit.Must(t, alices[1].Close())
	testkit.WaitFor(t, func() bool {
		status, _ := ask(dial(t, tcp.Addr()), "alice", patience)
		return status == http.StatusNoContent
	})
	want(dial(t, tcp.Addr()), "alice", http.StatusServiceUnavailable)
	want(dial(t, tcp.Addr()), "operator", http.StatusNoContent)
	want(alices[2], "alice", http.StatusNoContent)
}

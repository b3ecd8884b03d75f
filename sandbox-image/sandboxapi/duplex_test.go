package sandboxapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/slot"
)

// host is a sandbox whose servers behave as their package says.
type host struct {
	Sandbox
	ended chan string // the package of a server that its context ended
}

func (host) Stats() Stats { return Stats{Slots: 1} }

func (h host) Server(ctx context.Context, g uint64, head ServerHead, d Duplex) (Exit, error) {
	if head.Package == "missing" {
		return Exit{}, fmt.Errorf("%w: it has to be installed first", ErrNotInstalled)
	}
	if g == 0 {
		return Exit{}, fmt.Errorf("%w: generation 0", ErrLeaseGone)
	}
	if err := d.ReportStart(); err != nil { // the client has read the status and gone again
		h.ended <- head.Package
		return Exit{}, err
	}
	switch head.Package {
	case "deaf", "endless":
		for head.Package == "endless" && ctx.Err() == nil {
			_, _ = d.Write(make([]byte, 64<<10))
		}
		<-ctx.Done()
		h.ended <- head.Package
		return Exit{Reason: Cancelled}, nil
	case "slow":
		d.ReportEnd()
		time.Sleep(stalledFor + stalledFor/5)
		return Exit{Code: 3, Reason: Exited}, nil
	case "breaks":
		return Exit{}, errors.New("broke")
	}
	_, err := io.Copy(d, d)
	return Exit{Code: 7, Reason: Exited, Detail: "ended\nwith ä"}, err
}

func serveHost(t *testing.T) (host, *Client) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	h := host{ended: make(chan string, 100)}
	s := NewServer(ServerConfig{Sandbox: h, Log: slog.New(slog.DiscardHandler)})
	go func() { _ = s.Serve(l, nil) }()
	c := NewClient(ClientConfig{Dial: func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", l.Addr().String())
	}})
	t.Cleanup(func() { _, _ = c.Close(), s.Shutdown(context.Background()) })
	return h, c
}

// Both directions carry data at the same time, and the exit comes behind the last byte.
func TestServerStream(t *testing.T) {
	_, c := serveHost(t)
	s, err := c.StartServer(t.Context(), 1, ServerHead{Package: "npm:x@1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	lines := bufio.NewReader(s)
	for i := range 100 {
		want := fmt.Sprint("line ", i, "\n")
		if _, err := io.WriteString(s, want); err != nil {
			t.Fatal(err)
		}
		if got, err := lines.ReadString('\n'); got != want || err != nil {
			t.Fatalf("%q %v", got, err)
		}
	}
	large := strings.Repeat("x", 20<<20) + "\n"
	go func() { _, _ = io.WriteString(s, large); _ = s.CloseWrite() }()
	if got, err := lines.ReadString('\n'); got != large || err != nil {
		t.Fatalf("%d bytes of %d, %v", len(got), len(large), err)
	}
	if _, err := lines.ReadByte(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	e, err := s.Exit()
	if err != nil || e.Code != 7 || e.Reason != Exited || e.Detail != "ended?with ??" {
		t.Errorf("%+v %v", e, err)
	}
}

// An error before the start is the call's; one afterwards is not an exit.
func TestServerErrors(t *testing.T) {
	_, c := serveHost(t)
	if _, err := c.StartServer(t.Context(), 1, ServerHead{Package: "missing"}); !errors.Is(err, ErrNotInstalled) || !strings.Contains(err.Error(), "installed first") {
		t.Error(err)
	}
	if _, err := c.StartServer(t.Context(), 0, ServerHead{}); !errors.Is(err, ErrLeaseGone) {
		t.Error(err)
	}
	if _, err := c.StartServer(t.Context(), 1, ServerHead{Package: strings.Repeat("x", maxHead)}); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Error(err)
	}
	s, err := c.StartServer(t.Context(), 1, ServerHead{Package: "breaks"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := io.ReadAll(s); !errors.Is(err, ErrInterrupted) {
		t.Error(err)
	}
	if e, err := s.Exit(); !errors.Is(err, ErrInterrupted) {
		t.Errorf("%+v %v", e, err)
	}
}

// Closing the stream, and ending its context, ends the program.
// Promise: server-limits
func TestServerCloses(t *testing.T) {
	h, c := serveHost(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first, err := c.StartServer(t.Context(), 1, ServerHead{Package: "deaf"})
	if err != nil {
		t.Fatal(err)
	}
	second, err := c.StartServer(ctx, 1, ServerHead{Package: "endless"})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name string
		end  func()
	}{{"deaf", func() { _ = first.Close() }}, {"endless", cancel}} {
		row.end()
		select {
		case got := <-h.ended:
			if got != row.name {
				t.Errorf("%s ended", got)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s goes on", row.name)
		}
	}
	if _, err := first.Write([]byte("x")); err == nil {
		t.Error("a closed stream takes input")
	}
	if _, err := io.Copy(io.Discard, second); !errors.Is(err, ErrInterrupted) {
		t.Error(err)
	}
}

// The exit arrives however long the cleanup takes, and an installation seals its package after its program's end.
func TestServerSlowEnd(t *testing.T) {
	t.Parallel()
	_, c := serveHost(t)
	s, err := c.StartServer(t.Context(), 1, ServerHead{Package: "slow"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := io.ReadAll(s); err != nil {
		t.Error(err)
	}
	if e, err := s.Exit(); e.Code != 3 || err != nil {
		t.Errorf("%+v %v", e, err)
	}
}

// Programs that do not read, and clients that do not read, hold up nobody else on the connection.
// Promise: server-limits
func TestStalledStreams(t *testing.T) {
	_, c := serveHost(t)
	for n := range slot.MaxServers {
		name := "deaf"
		if n%2 == 1 {
			name = "endless"
		}
		s, err := c.StartServer(t.Context(), 1, ServerHead{Package: name})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		go func() { _, _ = s.Write(make([]byte, 8<<20)) }()
	}
	time.Sleep(300 * time.Millisecond) // until all of them have filled what they may
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := c.StartServer(ctx, 1, ServerHead{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	sent := strings.Repeat("y", 8<<20)
	go func() { _, _ = io.WriteString(s, sent); _ = s.CloseWrite() }()
	if got, err := io.ReadAll(s); len(got) != len(sent) || err != nil {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if _, err := c.Stats(ctx); err != nil {
		t.Error(err)
	}
}

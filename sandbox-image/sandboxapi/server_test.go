package sandboxapi

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// tidy is a sandbox whose runs print and end, and whose cleanup takes long.
type tidy struct{ Sandbox }

func (tidy) Run(_ context.Context, _ RunRequest, out Output) (Exit, error) {
	if err := out.Send(Event{Stdout: "printed"}); err != nil {
		return Exit{}, err
	}
	out.Ended()
	time.Sleep(stalledFor + stalledFor/5)
	return Exit{Reason: Exited}, nil
}

// A reader is dropped when it stalls, not when sandboxd takes long between two events.
func TestClearingUpTakesLong(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(ServerConfig{Sandbox: tidy{}, Log: slog.New(slog.DiscardHandler)})
	go func() { _ = s.Serve(l, nil) }()
	defer s.Shutdown(context.Background())
	c := NewClient(ClientConfig{Dial: func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", l.Addr().String())
	}})
	defer c.Close()
	var printed string
	exit, err := c.Run(t.Context(), RunRequest{Run: "r", Language: LanguageTypeScript}, func(e Event) { printed += e.Stdout })
	if err != nil || exit.Reason != Exited || printed != "printed" {
		t.Errorf("%+v %q %v", exit, printed, err)
	}
}

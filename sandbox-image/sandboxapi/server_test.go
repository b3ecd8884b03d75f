package sandboxapi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// tidy is a sandbox whose runs print and end, and whose cleanup takes long.
type tidy struct{ Sandbox }

func (tidy) Run(_ context.Context, _ RunRequest, out Output) (Exit, error) {
	if err := out.Send(Event{Stdout: "printed"}); err != nil {
		return Exit{}, err
	}
	out.ReportEnd()
	time.Sleep(stalledFor + stalledFor/5)
	return Exit{Reason: Exited}, nil
}

// taker is a sandbox that accepts every request and records it.
type taker struct {
	Sandbox
	got []any
}

func (s *taker) Acquire(_ context.Context, r LeaseRequest) (Lease, error) {
	s.got = append(s.got, r)
	return Lease{Generation: 7}, nil
}

func (s *taker) Release(generation uint64) error {
	s.got = append(s.got, generation)
	return nil
}

func (s *taker) Pause(generation uint64, p Pause) error {
	s.got = append(s.got, generation, p)
	return nil
}

func (s *taker) Tidy(p Packages) (Tidied, error) {
	s.got = append(s.got, p.Keep[0])
	return Tidied{InUse: 3}, nil
}

func (s *taker) Run(context.Context, RunRequest, Output) (Exit, error) {
	s.got = append(s.got, "run")
	return Exit{}, errors.New("no")
}

// TestRequests: the sandbox gets each request as the client wrote it, and none that cannot be read.
func TestRequests(t *testing.T) {
	const leases, pause = "POST /v1/leases", "POST /v1/runs/7/pause"
	for _, c := range []struct {
		request, kind, body string
		status              int
		answer              string
		got                 []any
	}{
		{leases, "", `{"language":"python"} `, 200, `"generation":7`, []any{LeaseRequest{Language: "python"}}},
		{leases, "application/json; charset=utf-8", `{}`, 200, `"generation":7`, []any{LeaseRequest{}}},
		{leases, "text/plain", `{}`, 415, "application/json", nil},
		{leases, "application/json;", `{}`, 200, "", []any{LeaseRequest{}}},
		{leases, "application/json; charset", `{}`, 415, "application/json", nil},
		{leases, "", `{`, 400, "unexpected EOF", nil},
		{leases, "", `{"lang":"python"}`, 400, "lang", nil},
		{leases, "", `{} {}`, 400, "more than one value", nil},
		{leases, "", `{"language":"` + strings.Repeat("x", maxBody) + `"}`, 413, "too large", nil},
		{pause, "", `{"paused":true}`, 204, "", []any{uint64(7), Pause{Paused: true}}},
		{pause, "", `{"paused":1}`, 400, "paused", nil},
		{"POST /v1/runs/x/pause", "", `{}`, 400, "not a number", nil},
		{"DELETE /v1/leases/9", "", "", 204, "", []any{uint64(9)}},
		{"DELETE /v1/leases/-9", "", "", 400, "not a number", nil},
		{"PUT /v1/packages", "", `{"keep":["a"]}`, 200, `"in_use":3`, []any{"a"}},
		{"PUT /v1/packages", "", `{"keep":"a"}`, 400, "keep", nil},
		{"POST /v1/runs", "", `{`, 400, "unexpected EOF", nil},
		{"POST /v1/runs", "", `{}`, 500, `"no"`, []any{"run"}},
		{"GET /v1/leases", "", "", 404, "no such resource", nil},
	} {
		s := &taker{}
		method, path, _ := strings.Cut(c.request, " ")
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(c.body))
		r.Header.Set("Content-Type", c.kind)
		w := httptest.NewRecorder()
		NewServer(ServerConfig{Sandbox: s, Log: slog.New(slog.DiscardHandler)}).http.Handler.ServeHTTP(w, r)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.answer) || !reflect.DeepEqual(s.got, c.got) {
			t.Errorf("%s %s %.50s: %d %s, the sandbox got %v", c.request, c.kind, c.body, w.Code, w.Body, s.got)
		}
	}
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

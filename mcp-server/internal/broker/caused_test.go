package broker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// told is the last list of calls that the proxy was told, as "RUN TOOL", and "given up" behind those that nobody waits
// for.
func (w *world) told() string {
	w.launcher.mu.Lock()
	defer w.launcher.mu.Unlock()
	var out []string
	for _, c := range w.launcher.told.Calls {
		text := c.Run + " " + c.Call
		if c.GivenUp {
			text += " given up"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// sending is a server that could send something.
func sending(t *testing.T, change func(*mcpserver.Settings)) proxyapi.API {
	api := hostile(t, "a", change)
	api.Domains = []string{"a.example"}
	return api
}

// TestTellsCalls: the proxy knows all calls that a server works on before the server has them, and one that was given up
// for as long as the server may still work on it.
// Promise: server-requests-belong-to-one-run
func TestTellsCalls(t *testing.T) {
	w := newWorld(t, 4, sending(t, func(s *mcpserver.Settings) { s.State = "session" }))
	w.call("/a/echo", `{"text":"x"}`)
	first, second := newMeeting(t), newMeeting(t)
	done := make(chan answer, 2)
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	go func() { done <- w.send(t.Context(), "s1-r1", http.MethodPost, "/a/meet", first.call, 0) }()
	first.await(1)
	if got := w.told(); got != "s1-r1 a.meet" {
		t.Errorf("one call: %s", got)
	}
	go func() { done <- w.send(ctx, "s1-r2", http.MethodPost, "/a/never", second.call, 0) }()
	second.await(1)
	if got := w.told(); got != "s1-r1 a.meet, s1-r2 a.never" {
		t.Errorf("two calls: %s", got)
	}
	first.end()
	<-done
	testkit.WaitFor(t, func() bool { return w.told() == "s1-r2 a.never" })
	giveUp()
	<-done
	testkit.WaitFor(t, func() bool { return w.told() == "s1-r2 a.never given up" })
	testkit.WaitFor(t, func() bool { return w.broker.idle("a") })
	w.call("/a/echo", `{"text":"x"}`)
	testkit.WaitFor(t, func() bool { return w.told() == "s1-r2 a.never given up" })
	for range 3 { // they are one for each run
		w.giveUpOf("s1-r2", "a", "never")
	}
	testkit.WaitFor(t, func() bool { return w.broker.idle("a") && w.told() == "s1-r2 a.never given up" })
}

// TestNotTold: a call of which the proxy does not know whose it is is not sent. A process that the proxy does not know
// gives way to another one.
// Promise: server-requests-belong-to-one-run
func TestNotTold(t *testing.T) {
	w := newWorld(t, 4, sending(t, nil))
	if got := w.call("/a/echo", `{"text":"x"}`); got.text() != "x" {
		t.Fatal(got.text())
	}
	for _, why := range []error{errors.New("no answer"), fmt.Errorf("%w: no lease", proxyapi.ErrFenced)} {
		before := w.launcher.launches
		w.launcher.mu.Lock()
		w.launcher.deaf = why
		w.launcher.mu.Unlock()
		m := newMeeting(t)
		if got := w.send(t.Context(), "s1-r1", http.MethodPost, "/a/never", m.call, 5*time.Second); got.Code != serverUnavailable || !got.Retryable {
			t.Errorf("%v: %s", why, got.body)
		}
		w.launcher.mu.Lock()
		w.launcher.deaf = nil
		w.launcher.mu.Unlock()
		if got := w.call("/a/echo", `{"text":"x"}`); got.text() != "x" {
			t.Errorf("after %v: %s", why, got.body)
		}
		if again := w.launcher.launches > before; again != errors.Is(why, proxyapi.ErrFenced) {
			t.Errorf("after %v: started anew %v", why, again)
		}
	}
}

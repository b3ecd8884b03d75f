package transport_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/transport"
)

// TestIdle: a session without an open request ends when it was idle for long; one that is listened to does not.
// Promise: canaries
func TestIdle(t *testing.T) {
	f := serve(t, transport.Config{SessionIdle: 3 * time.Second})
	live := f.begin(t)
	_, stop := f.listenStream(t, live)
	idle := f.begin(t)
	left := func(n int) {
		t.Helper()
		for end := time.Now().Add(time.Minute); f.handler.CountSessions() != n; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d sessions are left, want %d", f.handler.CountSessions(), n)
			}
		}
	}
	left(1)
	time.Sleep(1500 * time.Millisecond) // the one that is listened to stays
	if code, _ := f.answer(t, oldVersion, idle, call(2, "sleep")); code != http.StatusOK {
		t.Errorf("a session that ended because it was idle is not begun anew: %d", code)
	}
	if got := f.whose(t, idle); got != idle {
		t.Errorf("after that, tools know it as %q", got)
	}
	if code, _ := f.answer(t, oldVersion, live, call(2, "sleep")); code != http.StatusOK {
		t.Errorf("the session that is listened to: %d", code)
	}
	stop()
	left(0)
}

// TestSessionCap: at the limit the longest idle session makes room, one in use never does.
func TestSessionCap(t *testing.T) {
	f := serve(t, transport.Config{MaxSessions: 3})
	live := f.begin(t)
	_, stop := f.listenStream(t, live)
	defer stop()
	first, second := f.begin(t), f.begin(t)
	f.answer(t, oldVersion, first, call(2, "sleep")) // used last
	third := f.begin(t)
	left := map[string]bool{}
	for s := range f.mcp.Sessions() {
		left[s.ID()] = true
	}
	if len(left) != 3 || left[second] {
		t.Errorf("%d sessions are left; the one that was idle for longest is among them: %v", len(left), left[second])
	}
	for _, id := range []string{live, first, third} {
		if code, _ := f.answer(t, oldVersion, id, call(3, "sleep")); code != http.StatusOK {
			t.Errorf("a session in use: %d", code)
		}
	}
	_, stop1 := f.listenStream(t, first)
	defer stop1()
	_, stop3 := f.listenStream(t, third)
	defer stop3()
	if code, _ := f.answer(t, "", "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`); code != http.StatusServiceUnavailable {
		t.Errorf("a session too many: %d", code)
	}
}

// TestDrain: what runs may end, nothing new begins, and after the time what runs is cancelled.
func TestDrain(t *testing.T) {
	f := serve(t, transport.Config{})
	id := f.begin(t)
	var body string
	var done sync.WaitGroup
	done.Go(func() { _, body = f.answer(t, oldVersion, id, call(2, "sleep")) })
	for f.handler.CountCalls() == 0 {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	f.handler.Drain(ctx)
	done.Wait()
	if !strings.Contains(body, "slept") {
		t.Errorf("the running call: %s", body)
	}
	if code, _ := f.answer(t, oldVersion, id, call(3, "sleep")); code != http.StatusServiceUnavailable {
		t.Errorf("a new call: %d", code)
	}
}

func TestCloseCancels(t *testing.T) {
	f := serve(t, transport.Config{})
	for _, version := range []string{oldVersion, newVersion} {
		session, body := "", newCall("wait")
		if version == oldVersion {
			session, body = f.begin(t), call(2, "wait")
		}
		go func() {
			resp, err := f.post(t.Context(), t, version, session, body)
			if err == nil {
				resp.Body.Close()
			}
		}()
		receive(t, f.began, "the call")
	}
	_, stop := f.listenStream(t, f.begin(t))
	defer stop()
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	f.handler.Close(ctx)
	for range 2 {
		if how := receive(t, f.ended, "its end"); how != "cancelled" {
			t.Errorf("a call was %s", how)
		}
	}
	if took := time.Since(start); took > testkit.Patience/2 {
		t.Errorf("it took %v", took)
	}
}

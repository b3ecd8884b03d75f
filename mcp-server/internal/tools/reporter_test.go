package tools

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

type sentProgress struct {
	at       time.Duration
	progress float64
	message  string
}

// record is a Send that notes what it was told.
func recordProgress(start time.Time, to *[]sentProgress) func(context.Context, float64, string) {
	return func(_ context.Context, p float64, m string) { *to = append(*to, sentProgress{time.Since(start), p, m}) }
}

func TestProgressBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []sentProgress
		r := startReporter(t.Context(), reporterConfig{Send: recordProgress(time.Now(), &got)})
		r.Printed("one\n")
		r.Printed("two\n")
		time.Sleep(600 * time.Millisecond)
		r.Printed("three\n")
		time.Sleep(500 * time.Millisecond)
		r.Stop()
		r.Printed("four\n")
		time.Sleep(time.Second)
		if len(got) != 2 || got[0].message != "one\ntwo" || got[1].message != "three" || got[1].progress <= got[0].progress {
			t.Errorf("got %+v", got)
		}
	})
}

func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []sentProgress
		r := startReporter(t.Context(), reporterConfig{Send: recordProgress(time.Now(), &got)})
		time.Sleep(11200 * time.Millisecond)
		r.Running()
		r.Printed("x")
		time.Sleep(20 * time.Second)
		r.Stop()
		var messages []string
		for _, g := range got {
			messages = append(messages, g.message)
		}
		if want := "waiting for a slot, 10 s|x|running, 22 s"; strings.Join(messages, "|") != want {
			t.Errorf("got %q, want %q", strings.Join(messages, "|"), want)
		}
	})
}

// TestProgress: what a call reports is sent when nothing was printed, and once.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []sentProgress
		r := startReporter(t.Context(), reporterConfig{Send: recordProgress(time.Now(), &got)})
		r.Running()
		r.Printed("x\n")
		r.Progress("a.b: 1 of 3")
		r.Progress("a.b: 2 of 3")
		time.Sleep(11200 * time.Millisecond)
		r.Stop()
		var messages []string
		for _, g := range got {
			messages = append(messages, g.message)
		}
		if want := "x|a.b: 2 of 3|running, 11 s"; strings.Join(messages, "|") != want {
			t.Errorf("got %q, want %q", strings.Join(messages, "|"), want)
		}
	})
}

// TestSlowClient: a client that never reads holds up neither the run nor its end, and what waits for it stays small.
func TestSlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := make(chan struct{})
		r := startReporter(t.Context(), reporterConfig{Send: func(context.Context, float64, string) { <-released }})
		start := time.Now()
		for range 10_000 {
			r.Printed(strings.Repeat("x", 1000) + "\n")
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("the run was held up: it took %v", took)
		}
		start = time.Now()
		r.Stop()
		if took := time.Since(start); took > time.Second {
			t.Errorf("the end was held up for %v", took)
		}
		close(released)
	})
}

func TestMessageIsShort(t *testing.T) {
	for _, c := range []struct{ name, printed, end string }{
		{"lines", strings.Repeat("a line of text\n", 1000), "a line of text"},
		{"one line", strings.Repeat("é", 10_000), "é"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var got []sentProgress
			r := startReporter(t.Context(), reporterConfig{Send: recordProgress(time.Now(), &got)})
			r.Printed(c.printed)
			time.Sleep(600 * time.Millisecond)
			r.Stop()
			m := got[0].message
			if len(m) > 600 || !strings.HasSuffix(m, c.end) || !utf8.ValidString(m) {
				t.Errorf("%s: %d bytes: %.40q", c.name, len(m), m)
			}
		})
	}
}

// TestWaiting: a person who has to approve a request learns it at once, whatever the run prints.
func TestProgressWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		r := startReporter(t.Context(), reporterConfig{Send: func(_ context.Context, _ float64, message string) { sent = append(sent, message) }})
		defer r.Stop()
		r.Running()
		r.Printed("much\n")
		r.Waiting(true)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := strings.Join(sent, "; "); got != approvalapi.Waiting+"; much" {
			t.Errorf("%q", got)
		}
	})
}

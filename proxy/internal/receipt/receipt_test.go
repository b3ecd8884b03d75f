package receipt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestBounds: beyond the bounds there are only counters.
func TestBounds(t *testing.T) {
	r := NewRecorder("run", "", 3)
	for i := range MaxExchanges + 50 {
		r.AddExchange(proxyapi.Exchange{
			Outcome: proxyapi.OutcomeDenied, URL: strings.Repeat("u", 100_000), BytesUp: 1, BytesDown: 2, Sanitized: 3,
			Swapped: make([]proxyapi.Swap, 100), Scrubbed: make([]proxyapi.Swap, maxEntryList+2),
		}, []proxyapi.Hint{{Code: fmt.Sprint(i)}, {Code: "same"}})
	}
	got := r.CopyReceipt()
	if len(got.Exchanges) != MaxExchanges || got.Omitted != 50 || len(got.Hints) != MaxHints {
		t.Errorf("%d exchanges, %d omitted, %d hints", len(got.Exchanges), got.Omitted, len(got.Hints))
	}
	want := proxyapi.Count{Exchanges: 250, Denied: 250, Swapped: 25000, Sanitized: 750, BytesUp: 250, BytesDown: 500}
	if got.Count != want {
		t.Errorf("the count is %+v", got.Count)
	}
	for _, e := range got.Exchanges {
		if len(e.URL) > maxURL+3 || len(e.Swapped) > maxEntryList || len(e.Swapped)+len(e.Scrubbed)+e.Unlisted != 100+maxEntryList+2 {
			t.Fatalf("an entry of %d bytes and %d swaps, %d unlisted", len(e.URL), len(e.Swapped), e.Unlisted)
		}
	}
	got.Exchanges[0].URL = "changed"
	if r.CopyReceipt().Exchanges[0].URL == "changed" {
		t.Error("a receipt shares memory with its recorder")
	}
}

// TestRefusedInLedger: code that is refused without end does not fill the ledger. What left is in it nevertheless.
// Promise: bounded-records
func TestRefusedInLedger(t *testing.T) {
	kept := map[string]int{}
	j := NewJournal(Config{Log: logline.New(io.Discard, "text", nil), Ledger: func(e ledger.Entry) error {
		kept[e.Exchange.Outcome]++
		return nil
	}})
	rec := NewRecorder("run", "", 1)
	const refused = maxRefused + 100
	for range refused {
		j.RecordExchange(Note{Exchange: proxyapi.Exchange{Run: "run", Outcome: proxyapi.OutcomeDenied}, Recorder: rec})
	}
	j.RecordExchange(Note{Exchange: proxyapi.Exchange{Run: "run", Outcome: proxyapi.OutcomeServed}, Recorder: rec})
	if kept[proxyapi.OutcomeDenied] != maxRefused || kept[proxyapi.OutcomeServed] != 1 || rec.CopyReceipt().Count.Denied != refused {
		t.Errorf("in the ledger %v, counted %+v", kept, rec.CopyReceipt().Count)
	}
}

// TestLastClean: every string from outside passes the last cleaning, in every sink.
func TestLastClean(t *testing.T) {
	const canary = "canary-9f31"
	clean := func(s string) string { return strings.ReplaceAll(s, canary, "NAME") }
	var logs bytes.Buffer
	j := NewJournal(Config{Log: logline.New(&logs, "text", clean), Clean: clean})
	events, cancel := j.Subscribe(proxyapi.RequestEvents)
	defer cancel()
	rec := NewRecorder("run", "", 1)
	for _, outcome := range []string{proxyapi.OutcomeServed, proxyapi.OutcomeDenied, proxyapi.OutcomeFailed, proxyapi.OutcomeAborted} {
		j.RecordExchange(Note{
			Exchange: proxyapi.Exchange{
				Run: "run", Method: canary, URL: "https://" + canary + "/", Host: canary, Outcome: outcome, Code: "code",
				Swapped: []proxyapi.Swap{{Name: "TOKEN", In: "query:" + canary}}, Redacted: 1, Sanitized: 1,
			},
			Recorder: rec, Hints: []proxyapi.Hint{{Text: "of " + canary, Host: canary + ".h"}}, Cause: errors.New("the upstream says " + canary + "\n[fake] line"),
		})
		e := <-events
		all := logs.String() + fmt.Sprintf("%+v %+v", rec.CopyReceipt(), *e.Exchange)
		if strings.Contains(all, canary) {
			t.Fatalf("the canary is in:\n%s", all)
		}
		if strings.Contains(logs.String(), "\n[fake]") {
			t.Fatalf("an outside string forged a line:\n%s", logs.String())
		}
	}
	for _, tag := range []string{"[req]", "[deny]", "[error]", "[inject]", "[redact]", "[sanitize]"} {
		if !strings.Contains(logs.String(), tag) {
			t.Errorf("no %s line:\n%s", tag, logs.String())
		}
	}
}

// TestSlowSubscriber: a slow subscriber loses events and delays nobody.
func TestSlowSubscriber(t *testing.T) {
	j := NewJournal(Config{Log: logline.New(&bytes.Buffer{}, "text", nil)})
	events, cancel := j.Subscribe(proxyapi.CatalogEvents)
	done := make(chan bool)
	go func() {
		for range 2 * maxQueue {
			j.PublishEvent(proxyapi.Event{Catalog: "v"})
		}
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(testkit.Patience):
		t.Fatal("publishing waits for the subscriber")
	}
	if len(events) != maxQueue {
		t.Errorf("%d events are queued", len(events))
	}
	cancel()
	j.PublishEvent(proxyapi.Event{Catalog: "after"})
}

// TestHintsOnce: a hint is kept once, and no more than MaxHints are.
func TestHintsOnce(t *testing.T) {
	r := NewRecorder("run", "", 3)
	for range 2 {
		r.AddExchange(proxyapi.Exchange{}, []proxyapi.Hint{{Code: "a"}, {Code: "b"}, {Code: "a"}})
	}
	if got := r.CopyReceipt().Hints; len(got) != 2 || got[0].Code != "a" || got[1].Code != "b" {
		t.Errorf("%v", got)
	}
	for i := range MaxHints {
		r.AddExchange(proxyapi.Exchange{}, []proxyapi.Hint{{Code: fmt.Sprint(i)}})
	}
	if got := r.CopyReceipt().Hints; len(got) != MaxHints || got[MaxHints-1].Code != fmt.Sprint(MaxHints-3) {
		t.Errorf("%d hints, the last is %v", len(got), got[len(got)-1])
	}
}

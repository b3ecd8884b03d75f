package transport

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestListIdle: a session with an open request is never idle. With most 1, only the session that was used first counts.
func TestListIdle(t *testing.T) {
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	for range 20 { // maps have no order
		b := newBook()
		for name, used := range map[string]int{"a": 3, "b": 1, "c": 2, "busy": 0, "new": 9} {
			b.sessions[name] = &sessionEntry{used: at(used)}
		}
		b.sessions["busy"].open = map[*openRequest]struct{}{{}: {}}
		all := b.listIdle(at(3), 0)
		slices.Sort(all)
		if one := b.listIdle(at(3), 1); !slices.Equal(all, []string{"a", "b", "c"}) || !slices.Equal(one, []string{"b"}) {
			t.Fatalf("%v, %v", all, one)
		}
		if none := b.listIdle(at(0), 1); len(none) != 0 {
			t.Fatalf("%v", none)
		}
		b.keepOnly(map[string]bool{"a": true})
		if n := b.countSessions(); n != 2 || b.sessions["a"] == nil || b.sessions["busy"] == nil {
			t.Fatalf("%d sessions are left", n)
		}
	}
}

// TestCountMessages stops one above the limit, and at the first damage.
func TestCountMessages(t *testing.T) {
	for text, want := range map[string]int{
		"[]": 0, "[1]": 1, "[1,2,3]": 3, "[1,2,3,4]": 4, "[" + strings.Repeat("1,", 50) + "1]": 4, "[1,2,x,4]": 2,
	} {
		if got := countMessages([]byte(text), 3); got != want {
			t.Errorf("%.20s: %d, want %d", text, got, want)
		}
	}
}

// TestIsSessionID: an ID has 26 letters of base32.
func TestIsSessionID(t *testing.T) {
	for id, want := range map[string]bool{
		"": false, strings.Repeat("A", 26): true, strings.Repeat("7", 26): true, strings.Repeat("A", 25): false, strings.Repeat("A", 27): false,
		strings.Repeat("A", 25) + "1": false, "a" + strings.Repeat("A", 25): false, strings.Repeat("A", 12) + "\n" + strings.Repeat("A", 13): false,
	} {
		if got := isSessionID(id); got != want {
			t.Errorf("%q: %t", id, got)
		}
	}
}

// TestStartSession sends initialize, and then the notification in the new session. Each must succeed.
func TestStartSession(t *testing.T) {
	for fails, want := range map[int]string{0: "", 1: "resuming the session: status 300", 2: "resuming the session: status 300"} {
		var got []string
		h := &Handler{legacy: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			got = append(got, r.Header.Get(sessionHeader)+" "+r.Header.Get(versionHeader)+" "+string(body))
			if len(got) == fails {
				w.WriteHeader(http.StatusMultipleChoices)
				return
			}
			w.Header().Set(sessionHeader, "id")
			w.WriteHeader(http.StatusAccepted)
		})}
		id, err := h.startSession(t.Context(), "2025-06-18")
		if (err == nil) != (want == "") || err != nil && err.Error() != want || err == nil && id != "id" {
			t.Errorf("request %d fails: %q, %v", fails, id, err)
		}
		if !strings.HasPrefix(got[0], " 2025-06-18 {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{") || !strings.Contains(got[0], `"protocolVersion":"2025-06-18"`) {
			t.Errorf("the first request is %s", got[0])
		}
		if fails != 1 && (len(got) != 2 || got[1] != `id 2025-06-18 {"jsonrpc":"2.0","method":"notifications/initialized"}`) {
			t.Errorf("the requests are %q", got)
		}
	}
}

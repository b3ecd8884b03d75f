package egress_test

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// TestIdempotency: a write has a key. The same request of the same tenant has the same one only if nobody knows how the
// one before ended; what code sets itself stays.
// Promise: repeated-writes, tenant-state
func TestIdempotency(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(`, "idempotency": "Idempotency-Key"`)}})
	var mu sync.Mutex
	var keys []string
	var bodies []string
	r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		text, _ := io.ReadAll(q.Body)
		mu.Lock()
		keys, bodies = append(keys, q.Header.Get("Idempotency-Key")), append(bodies, string(text))
		mu.Unlock()
		switch q.URL.Query().Get("end") {
		case "lost":
			panic(http.ErrAbortHandler)
		case "gateway":
			w.WriteHeader(http.StatusBadGateway)
		case "refused":
			w.WriteHeader(http.StatusPaymentRequired)
		}
	}))
	in := slot.ID(0)
	r.beginOf("alice", 0, 1)
	r.beginOf("mallory", 1, 1)
	send := func(method, end, body string, headers ...string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "https://"+demoHost+"/refunds?end="+end, strings.NewReader(body))
		check(t, err)
		req.Header.Set("Authorization", "Bearer "+tokenName)
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		before := len(keys)
		if resp, err := r.clientIn(in, false).Do(req); err == nil {
			resp.Body.Close()
		}
		mu.Lock()
		defer mu.Unlock()
		if len(keys) == before || bodies[len(bodies)-1] != body {
			t.Fatalf("%s %s: the upstream saw %q", method, end, bodies[before:])
		}
		for _, k := range keys[before:] {
			if k != keys[before] {
				t.Errorf("the proxy repeated it by itself with another key: %q", keys[before:])
			}
		}
		return keys[len(keys)-1]
	}
	if a, b := send("POST", "known", `{"amount":5}`), send("POST", "known", `{"amount":5}`); a == "" || a == b {
		t.Errorf("after an answer: %q, %q", a, b)
	}
	if a, b := send("POST", "refused", `{}`), send("POST", "refused", `{}`); a == b {
		t.Errorf("after a refusal: %q", a)
	}
	for _, end := range []string{"lost", "gateway"} {
		a, b := send("POST", end, `{"amount":5}`), send("POST", end, `{"amount":5}`)
		if a == "" || a != b {
			t.Errorf("%s: %q, then %q", end, a, b)
		}
		if c := send("POST", end, `{"amount":6}`); c == a {
			t.Errorf("%s: another body has the key %q", end, c)
		}
		if c := send("PUT", end, `{"amount":5}`); c == a {
			t.Errorf("%s: another method has the key %q", end, c)
		}
		if c := send("POST", end, `{"amount":5}`, "X-Account", "b"); c == a {
			t.Errorf("%s: a request for another account has the key %q", end, c)
		}
		in = 1
		if c := send("POST", end, `{"amount":5}`); c == a {
			t.Errorf("%s: another tenant's has the key %q, and gets its answer", end, c)
		}
		in = 0
	}
	if a, b := send("POST", "lost", strings.Repeat("x", 300<<10)), send("POST", "lost", strings.Repeat("x", 300<<10)); a == "" || a == b {
		t.Errorf("a long body: %q, %q", a, b)
	}
	if own := send("POST", "known", "", "Idempotency-Key", "mine"); own != "mine" {
		t.Errorf("the code's own key became %q", own)
	}
	if k := send("GET", "known", ""); k != "" {
		t.Errorf("a GET has the key %q", k)
	}
}

// TestFormRepeated: a form that is repeated has the same key, and fits an approval that came late, though clients choose
// another boundary each time, and so does the proxy where methods are restricted.
// Promise: repeated-writes
func TestFormRepeated(t *testing.T) {
	for name, extra := range map[string]string{"as code wrote it": ``, "looked into": `, "restricted_methods": ["DELETE"]`} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{apis: map[string]string{
				"demo": demoAPI(`, "idempotency": "Idempotency-Key", "rules": [{"then": "approve"}]` + extra),
			}})
			r.approvals.Wait = 1
			var keys []string
			r.upstreams.https(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
				keys = append(keys, q.Header.Get("Idempotency-Key")+" "+q.FormValue("amount"))
				panic(http.ErrAbortHandler) // nobody knows how it ended
			}))
			r.begin()
			send := func(amount string) string {
				t.Helper()
				var body bytes.Buffer
				form := multipart.NewWriter(&body)
				check(t, form.WriteField("amount", amount))
				check(t, form.Close())
				resp, err := r.client(false).Post("https://"+demoHost+"/refunds", form.FormDataContentType(), &body)
				check(t, err)
				defer resp.Body.Close()
				return refusal(t, resp).Code
			}
			approve := func() {
				t.Helper()
				for _, held := range r.approvals.ListHeld() {
					_, err := r.approvals.DecideHeld(held.ID, approvalapi.Answer{Approve: true}, true)
					check(t, err)
				}
			}
			for other := range 2 {
				if code := send("5"); code != "approval_timeout" {
					t.Fatal(code)
				}
				approve()
				if code := send("5" + strconv.Itoa(other)); code != "approval_timeout" {
					t.Fatalf("another amount: %s", code)
				}
				if code := send("5"); code == "approval_timeout" {
					t.Fatal("the approval did not fit")
				}
			}
			if len(keys) != 2 || keys[0] != keys[1] || !strings.HasSuffix(keys[0], " 5") || strings.HasPrefix(keys[0], " ") {
				t.Errorf("%q", keys)
			}
		})
	}
}

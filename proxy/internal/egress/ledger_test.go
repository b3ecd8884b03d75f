package egress_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/codeforge-mcp/codeforge/proxy/ledger"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestLedgerRequired: where the ledger is required, what may change something is in it before it leaves, and does not
// leave when it cannot be. What only reads is not held up.
// Promise: ledger-before-sending
func TestLedgerRequired(t *testing.T) {
	for name, c := range map[string]struct {
		method, header, body string
		full                 bool
		code                 string
		announced            bool
	}{
		"a write":                   {"POST", "", "", false, "", true},
		"a write, full":             {"POST", "", "", true, "audit_unavailable", true},
		"a deletion, full":          {"DELETE", "", "", true, "audit_unavailable", true},
		"an overridden GET, full":   {"GET", "X-HTTP-Method-Override: DELETE", "", true, "audit_unavailable", true},
		"a read, full":              {"GET", "", "", true, "", false},
		"HEAD, full":                {"HEAD", "", "", true, "", false},
		"a read with a body, full":  {"GET", "", "_method=DELETE", true, "audit_unavailable", true},
		"a method of its own, full": {"PROPFIND", "", "", true, "audit_unavailable", true},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var sent []ledger.Sending
			r := newRig(t, setup{sending: func(s ledger.Sending) error {
				mu.Lock()
				defer mu.Unlock()
				sent = append(sent, s)
				if c.full {
					return errors.New("no space left")
				}
				return nil
			}})
			var up seen
			r.upstreams.https(up.echo())
			end := r.begin()
			req, err := http.NewRequestWithContext(t.Context(), c.method, "https://"+demoHost+"/refunds?a=1", strings.NewReader(c.body))
			check(t, err)
			req.Header.Set("Authorization", "Bearer "+tokenName)
			if name, value, ok := strings.Cut(c.header, ": "); ok {
				req.Header.Set(name, value)
			}
			resp, err := r.client(false).Do(req)
			check(t, err)
			check(t, resp.Body.Close())
			rec := end()
			x := rec.Exchanges[0]
			if x.Code != c.code || (up.count() == 0) != (c.code != "") || c.code != "" && (x.Outcome != "denied" || len(x.Swapped) > 0) {
				t.Errorf("%+v, %d reached the upstream", x, up.count())
			}
			if (len(sent) == 1) != c.announced {
				t.Fatalf("announced: %v", sent)
			}
			if c.announced && (sent[0].Run != x.Run || sent[0].Method != c.method || sent[0].URL != "https://"+demoHost+"/refunds?a") {
				t.Errorf("announced: %+v", sent[0])
			}
		})
	}
}

// TestLedger: each exchange is written down once, as the receipt has it: names for credentials, no value of a query.
// Promise: ledger
func TestLedger(t *testing.T) {
	var mu sync.Mutex
	var entries []ledger.Entry
	alarms := 0
	r := newRig(t, setup{redact: []string{"Acme Corp"}, ledger: func(e ledger.Entry) error {
		mu.Lock()
		defer mu.Unlock()
		if e.Alarm != nil {
			alarms++
			return nil
		}
		entries = append(entries, e)
		return nil
	}})
	var up seen
	r.upstreams.https(up.echo())
	end := r.begin()
	for _, url := range []string{
		"https://" + demoHost + "/Acme%20Corp", "https://unknown.test/", "https://" + demoHost + "/a/" + secretValue + "?q=" + secretValue,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		check(t, err)
		if resp, err := r.client(false).Do(req); err == nil {
			check(t, resp.Body.Close())
		}
	}
	rec := end()
	mu.Lock()
	defer mu.Unlock()
	if len(entries) != len(rec.Exchanges) || len(entries) != 3 || alarms != 1 {
		t.Fatalf("%d entries, %d exchanges, %d alarms", len(entries), len(rec.Exchanges), alarms)
	}
	for i, e := range entries {
		if e.Exchange == nil || e.Exchange.URL != rec.Exchanges[i].URL || e.Exchange.Outcome != rec.Exchanges[i].Outcome {
			t.Errorf("entry %+v, receipt %+v", e.Exchange, rec.Exchanges[i])
			continue
		}
		if strings.Contains(e.Exchange.URL, secretValue) || strings.Contains(e.Exchange.URL, "Acme") {
			t.Errorf("the ledger has %s", e.Exchange.URL)
		}
	}
}

// TestLedgerOfMany: a record of the ledger and an entry of a receipt name the credentials that left, or say how many more
// there were.
// Promise: ledger
func TestLedgerOfMany(t *testing.T) {
	const n = 40
	var mu sync.Mutex
	var kept []proxyapi.Exchange
	var creds []string
	for i := range n {
		creds = append(creds, fmt.Sprintf(`"MANY_TOKEN_%02d": "sk_live_%02dcanary0123456789"`, i, i))
	}
	r := newRig(t, setup{
		apis: map[string]string{"demo": strings.Replace(demoAPI(""), `"`+tokenName+`": "`+secretValue+`"`, strings.Join(creds, ","), 1)},
		ledger: func(e ledger.Entry) error {
			mu.Lock()
			defer mu.Unlock()
			if e.Exchange != nil {
				kept = append(kept, *e.Exchange)
			}
			return nil
		},
	})
	var up seen
	r.upstreams.https(up.echo())
	end := r.begin()
	req, err := http.NewRequest(http.MethodGet, "https://"+demoHost+"/", http.NoBody)
	check(t, err)
	for i := range n {
		req.Header.Set(fmt.Sprintf("Y-Key-%02d", i), fmt.Sprintf("MANY_TOKEN_%02d", i))
	}
	resp, err := r.client(false).Do(req)
	check(t, err)
	_ = body(t, resp)
	rec := end()
	mu.Lock()
	defer mu.Unlock()
	for _, x := range append(kept, rec.Exchanges...) {
		if len(x.Swapped)+x.Unlisted != n || len(x.Swapped) == n {
			t.Errorf("%d credentials left; %d are listed, and %d are not", n, len(x.Swapped), x.Unlisted)
		}
	}
	if len(kept) != 1 || len(rec.Exchanges) != 1 {
		t.Errorf("%d records, %d entries", len(kept), len(rec.Exchanges))
	}
}

// TestLongMethod: HTTP/2 takes a method as long as a whole head. Neither a receipt nor the ledger nor an event keeps it.
// Promise: bounded-work
func TestLongMethod(t *testing.T) {
	var entries []ledger.Entry
	r := newRig(t, setup{ledger: func(e ledger.Entry) error { entries = append(entries, e); return nil }})
	events, cancel := r.journal.Subscribe(proxyapi.RequestEvents)
	defer cancel()
	end := r.begin()
	method := strings.Repeat("METHOD", 2000)
	if got := r.h2([]string{":method", method, ":scheme", "https", ":path", "/", ":authority", demoHost}); got != "403" {
		t.Errorf("status %q", got)
	}
	rec := end()
	if len(rec.Exchanges) != 1 || len(entries) != 1 {
		t.Fatalf("%d exchanges, %d entries", len(rec.Exchanges), len(entries))
	}
	for where, x := range map[string]*proxyapi.Exchange{
		"receipt": &rec.Exchanges[0], "ledger": entries[0].Exchange, "event": (<-events).Exchange,
	} {
		if len(x.Method) > 40 || !strings.HasPrefix(x.Method, "METHOD") {
			t.Errorf("the %s has a method of %d bytes", where, len(x.Method))
		}
	}
	if strings.Contains(r.logs.String(), method) {
		t.Error("the log has all of it")
	}
}

// TestLedgerBrokenBody: a request of which a part has left is in the ledger, however many were refused before it.
// Promise: ledger-before-sending
func TestLedgerBrokenBody(t *testing.T) {
	var mu sync.Mutex
	inLedger, refused := map[string]string{}, 0
	r := newRig(t, setup{
		apis: map[string]string{"demo": demoAPI(`, "restricted_methods": ["DELETE"]`)},
		ledger: func(e ledger.Entry) error {
			mu.Lock()
			defer mu.Unlock()
			if e.Exchange != nil && strings.Contains(e.Exchange.URL, "/late") {
				inLedger[e.Exchange.URL] = e.Exchange.Outcome
			} else if e.Exchange != nil {
				refused++
			}
			return nil
		}})
	got := map[string]int{}
	r.upstreams.https(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		mu.Lock()
		got[q.URL.Path] += 0
		mu.Unlock()
		b, _ := io.ReadAll(q.Body)
		mu.Lock()
		defer mu.Unlock()
		got[q.URL.Path] += strings.Count(string(b), "stolen")
	}))
	end := r.begin()
	c := r.client(true)
	late := func(path string) {
		body := "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n" + strings.Repeat("stolen ", 100<<10) + "\r\n--b--\r\ntrailing"
		req, err := http.NewRequestWithContext(t.Context(), "POST", "https://"+demoHost+path, strings.NewReader(body))
		check(t, err)
		req.Header.Set("Content-Type", "multipart/form-data; boundary=b")
		req.Header.Set("Authorization", "Bearer "+tokenName)
		if resp, err := c.Do(req); err == nil {
			t.Logf("%s: %s", path, refusal(t, resp).Code)
			resp.Body.Close()
		} else {
			t.Logf("%s: %v", path, err)
		}
	}
	late("/late1")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1300 {
				req, _ := http.NewRequestWithContext(t.Context(), "DELETE", "https://"+demoHost+"/x", http.NoBody)
				if resp, err := c.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}
		})
	}
	wg.Wait()
	late("/late2")
	rec := end()
	mu.Lock()
	defer mu.Unlock()
	t.Logf("upstream %v, ledger %v and %d others, count %+v", got, inLedger, refused, rec.Count)
	for path := range got {
		if inLedger["https://"+demoHost+path] == "" {
			t.Errorf("%s reached the upstream with %d words, and is not in the ledger", path, got[path])
		}
	}
}

package egress_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/audit"
)

// TestLedgerBrokenBody: a request of which a part has left is in the ledger, however many were refused before it.
func TestLedgerBrokenBody(t *testing.T) {
	var mu sync.Mutex
	inLedger, refused := map[string]string{}, 0
	r := newRig(t, setup{
		apis: map[string]string{"demo": demoAPI(`, "restricted_methods": ["DELETE"]`)},
		ledger: func(e audit.Entry) error {
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

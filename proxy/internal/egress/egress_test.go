package egress_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// seen records what an upstream was sent.
type seen struct {
	mu       sync.Mutex
	requests []*http.Request
	bodies   []string
}

func (s *seen) note(r *http.Request) string {
	b, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	s.bodies = append(s.bodies, string(b))
	return string(b)
}

func (s *seen) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

// texts are the bodies.
func (s *seen) texts() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.bodies)
}

func (s *seen) last(t *testing.T) *http.Request {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.requests) == 0 {
		t.Fatal("the upstream saw no request")
	}
	return s.requests[len(s.requests)-1]
}

// echo answers with what it was sent, credential included.
func (s *seen) echo() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := s.note(r)
		w.Header().Set("X-Echo", r.Header.Get("Authorization"))
		fmt.Fprintf(w, "%s %s\nauthorization: %s\nagent: %s\n%s", r.Method, r.URL.RequestURI(),
			r.Header.Get("Authorization"), r.UserAgent(), b)
	})
}

// TestSwapAndScrub goes through the whole proxy: a name goes in, the credential arrives, the name comes back.
func TestSwapAndScrub(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2=%t", h2), func(t *testing.T) {
			r := newRig(t, setup{redact: []string{"Jane Roe"}})
			var up seen
			r.upstreams.https(up.echo())
			end := r.begin()
			req, _ := http.NewRequest("POST", "https://"+demoHost+"/v1/things?a=1&b=two", strings.NewReader("by Jane Roe"))
			req.Header.Set("Authorization", "Bearer "+tokenName)
			resp, err := r.client(h2).Do(req)
			check(t, err)
			text := body(t, resp)

			if got := up.last(t).Header.Get("Authorization"); got != "Bearer "+secretValue {
				t.Errorf("the upstream saw Authorization %q", got)
			}
			if got := up.last(t).UserAgent(); got != "CodeForge/test" {
				t.Errorf("the upstream saw User-Agent %q", got)
			}
			if up.bodies[0] != "by REDACTED" {
				t.Errorf("the upstream saw the body %q", up.bodies[0])
			}
			if resp.StatusCode != 200 || !strings.Contains(text, "authorization: Bearer "+tokenName) {
				t.Errorf("the client saw %d %q", resp.StatusCode, text)
			}
			if got := resp.Header.Get("X-Echo"); got != "Bearer "+tokenName {
				t.Errorf("the client saw X-Echo %q", got)
			}
			rec := end()
			if len(rec.Exchanges) != 1 {
				t.Fatalf("the receipt has %d exchanges", len(rec.Exchanges))
			}
			e := rec.Exchanges[0]
			if e.Outcome != proxyapi.OutcomeServed || e.Status != 200 || e.Sanitized < 2 || e.Redacted != 1 ||
				len(e.Swapped) != 1 || e.Swapped[0].Name != tokenName || e.URL != "https://"+demoHost+"/v1/things?a&b" {
				t.Errorf("the receipt says %+v", e)
			}
			all := text + fmt.Sprint(resp.Header, rec) + r.logs.String()
			if strings.Contains(all, secretValue) || strings.Contains(r.logs.String(), "Jane") {
				t.Errorf("a credential or redacted string got out:\n%s", all)
			}
			for _, tag := range []string{"[req]", "[inject]", "[redact]", "[sanitize]"} {
				if !strings.Contains(r.logs.String(), tag) {
					t.Errorf("the log has no %s line:\n%s", tag, r.logs.String())
				}
			}
		})
	}
}

package egress_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// refreshed is how many credentials are renewed.
const refreshed = 20

// TestRefreshUnderLoad: while twenty tokens, as long as JWTs are, are renewed one after the other, requests that need none
// of them take as long as they do otherwise, none fails, and a stream that is open goes on. Rounds with renewals and
// without take turns.
func TestRefreshUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	var posts atomic.Int64
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test's tokens
	var mu sync.Mutex
	token := func() string {
		mu.Lock()
		defer mu.Unlock()
		b := []byte("minted-canary-")
		for len(b) < 1200 {
			b = append(b, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[random.IntN(64)])
		}
		return string(b)
	}
	ticks := make(chan struct{})
	s := &tokenServer{
		token: func(w http.ResponseWriter, _ *http.Request) { posts.Add(1); giveToken(w, token()) },
		api: func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/events" {
				_ = http.NewResponseController(w).Flush()
				for {
					select {
					case _, more := <-ticks:
						if !more {
							return
						}
					case <-r.Context().Done():
						return
					}
					_, _ = io.WriteString(w, "data: tick\n\n")
					_ = http.NewResponseController(w).Flush()
				}
			}
			_, _ = io.WriteString(w, strings.Repeat("some text, ", 400))
		},
	}
	var list []string
	name := func(i int) string { return fmt.Sprintf("CRM_TOKEN_%03d", i) }
	for i := range refreshed {
		list = append(list, `"`+name(i)+`": {"oauth2": {"grant": "client_credentials", "token_url": "https://`+tokenHost+`/token", "client_id": "crm", "client_secret": "`+clientSecret+`"}}`)
	}
	var shift atomic.Int64
	r := newRig(t, setup{
		apis: map[string]string{"demo": `{"description": "demo", "domains": ["` + demoHost + `"], "ca_file": "ca.pem", "allow_private": ["127.0.0.0/8"],
			"credentials": {"` + tokenName + `": "` + secretValue + `", ` + strings.Join(list, ",") + `}}`},
		now: func() time.Time { return time.Now().Add(time.Duration(shift.Load())) },
	})
	r.upstreams.https(s)
	defer r.begin()()
	client := r.client(true)
	send := func(name string) error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+demoHost+"/", nil)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+name)
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d, %w", resp.StatusCode, err)
		}
		return nil
	}
	patient := *client
	patient.Timeout = 0
	stream, err := patient.Get("https://" + demoHost + "/events")
	check(t, err)
	defer stream.Body.Close()
	events := bufio.NewReader(stream.Body)
	round := func() (took []time.Duration) {
		t.Helper()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range refreshed {
				if err := send(name(i)); err != nil {
					t.Errorf("%s: %v", name(i), err)
				}
			}
		}()
		for {
			began := time.Now()
			if err := send(tokenName); err != nil {
				t.Errorf("another request: %v", err)
			}
			took = append(took, time.Since(began))
			select {
			case <-done:
				return took
			default:
			}
		}
	}
	round() // the first tokens
	quantile := func(d []time.Duration, q float64) time.Duration {
		slices.Sort(d)
		return d[int(float64(len(d)-1)*q)].Round(10 * time.Microsecond)
	}
	var with, without []time.Duration
	const rounds = 3
	for range rounds {
		before := posts.Load()
		for len(without) <= len(with) {
			without = append(without, round()...)
		}
		if posts.Load() != before {
			t.Fatal("a token was renewed that is new")
		}
		shift.Add(int64(time.Hour))
		with = append(with, round()...)
		if n := posts.Load() - before; n != refreshed {
			t.Errorf("%d renewals", n)
		}
		select {
		case ticks <- struct{}{}:
		case <-time.After(testkit.Patience):
			t.Fatal("the stream ended early")
		}
		if line, err := events.ReadString('\n'); err != nil || line != "data: tick\n" {
			t.Fatalf("the stream: %q, %v", line, err)
		}
		_, _ = events.ReadString('\n')
	}
	close(ticks)
	if _, err := io.ReadAll(events); err != nil {
		t.Errorf("the stream was cut: %v", err)
	}
	t.Logf("with renewals: p50 %v, p99 %v of %d; without: p50 %v, p99 %v of %d", quantile(with, 0.5), quantile(with, 0.99), len(with),
		quantile(without, 0.5), quantile(without, 0.99), len(without))
	// A renewal takes a processor for some tens of milliseconds. A request that waited for one would take as long.
	if a, b := quantile(with, 0.99), quantile(without, 0.99); a > 3*b+25*time.Millisecond && !testkit.Race {
		t.Errorf("the 99th percentile with renewals is %v, without %v", a, b)
	}
}

package egress_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/andybalholm/brotli"

	"github.com/codeforge-mcp/codeforge/proxy/internal/lease"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
)

// TestUnreadableBody: a request body that is not what its headers say is the client's mistake, whatever its size, and
// never reaches the upstream whole.
func TestUnreadableBody(t *testing.T) {
	for name, c := range map[string]struct{ encoding, kind, body string }{
		"not gzip":              {"gzip", "", "not gzip"},
		"half of gzip":          {"gzip", "", "\x1f\x8b"},
		"not br":                {"br", "", "\x00\xff\xff\xff"},
		"multipart with no end": {"", "multipart/form-data; boundary=x", "--x\r\nfoo"},
	} {
		for _, n := range []int{0, 400 << 10} {
			r := newRig(t, setup{apis: map[string]string{"demo": bodyAPI}})
			var whole []byte
			r.upstreams.https(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
				if b, err := io.ReadAll(q.Body); err == nil {
					whole = b
				}
			}))
			end := r.begin()
			q, _ := http.NewRequest("POST", "https://"+demoHost+"/", strings.NewReader(c.body+strings.Repeat("x", n)))
			q.Header.Set("Content-Type", c.kind)
			if c.encoding != "" {
				q.Header.Set("Content-Encoding", c.encoding)
			}
			resp, err := r.client(false).Do(q)
			check(t, err)
			if got := refusal(t, resp); resp.StatusCode != 400 || got.Code != policy.CodeBodyUnreadable {
				t.Errorf("%s: status %d, %+v", name, resp.StatusCode, got)
			}
			if e := end().Exchanges; len(e) != 1 || e[0].Outcome != "denied" || whole != nil {
				t.Errorf("%s: %+v, arrived: %q", name, e, whole)
			}
		}
	}
}

const bodyAPI = `{"description": "demo", "domains": ["` + demoHost + `"], "ca_file": "ca.pem", "allow_private": ["127.0.0.0/8"],
	"credentials": {"` + tokenName + `": {"value": "` + secretValue + `", "in": ["header", "body"]}}}`

// TestLargeWindows: bodies whose decoding takes megabytes are bounded for each run, in both directions.
func TestLargeWindows(t *testing.T) {
	var packed bytes.Buffer
	w := brotli.NewWriter(&packed)
	_, _ = w.Write(make([]byte, 1<<20))
	_ = w.Flush()
	r := newRig(t, setup{})
	r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Encoding", "br")
		_, _ = w.Write(packed.Bytes())
		_ = http.NewResponseController(w).Flush()
		<-q.Context().Done()
	}))
	end := r.begin()
	for range lease.MaxDecoders {
		pr, pw := io.Pipe()
		q, _ := http.NewRequest("POST", "https://"+demoHost+"/", pr)
		q.Header.Set("Content-Encoding", "br")
		go func() {
			if resp, err := r.client(true).Do(q); err == nil {
				_ = resp.Body.Close()
			}
		}()
		_, err := pw.Write(packed.Bytes())
		check(t, err)
	}
	until := time.Now().Add(5 * time.Second)
	for r.handler.InFlight() < lease.MaxDecoders && time.Now().Before(until) {
		time.Sleep(time.Millisecond)
	}
	q, _ := http.NewRequest("POST", "https://"+demoHost+"/", bytes.NewReader(packed.Bytes()))
	q.Header.Set("Content-Encoding", "br")
	resp, err := r.client(true).Do(q)
	check(t, err)
	if got := refusal(t, resp); got.Code != policy.CodeTooMany {
		t.Errorf("one more request: %d %+v", resp.StatusCode, got)
	}
	resp, err = r.client(true).Get("https://" + demoHost + "/")
	check(t, err)
	if got := refusal(t, resp); got.Code != "upstream_encoding" {
		t.Errorf("one more response: %d %+v", resp.StatusCode, got)
	}
	end()
	r.beginIn(0, 2)
	q, _ = http.NewRequest("POST", "https://"+demoHost+"/", strings.NewReader("\x06")) // nothing, in br
	q.Header.Set("Content-Encoding", "br")
	resp, err = r.client(true).Do(q)
	check(t, err)
	if resp.StatusCode != 200 {
		t.Errorf("the next run: %d", resp.StatusCode)
	}
	check(t, resp.Body.Close())
}

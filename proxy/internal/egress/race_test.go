package egress_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestReloadWhileStreaming: a value is replaced while a body streams up and its echo streams down. The exchange is cut;
// neither value comes back, then or later; and no connection from before carries a request from after.
func TestReloadWhileStreaming(t *testing.T) {
	const newValue = "another-secret-9-0123456789"
	inBody := func(value string) string {
		return strings.Replace(demoAPI(""), `"`+secretValue+`"`, `{"value": "`+value+`", "in": ["header", "body:client_secret"]}`, 1)
	}
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			r := newRig(t, setup{apis: map[string]string{"demo": inBody(secretValue)}})
			var mu sync.Mutex
			from := map[string]string{}
			arrived := make(chan string, 1024)
			h := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				mu.Lock()
				from[q.URL.Path] = q.RemoteAddr
				mu.Unlock()
				if q.URL.Path != "/stream" {
					_, _ = io.WriteString(w, secretValue+" "+q.Header.Get("Authorization")+" "+q.Proto)
					return
				}
				c := http.NewResponseController(w)
				_ = c.EnableFullDuplex()
				_, _ = io.WriteString(w, secretValue+"\n")
				_ = c.Flush()
				buf := make([]byte, 4096)
				for {
					n, err := q.Body.Read(buf)
					if err != nil {
						return
					}
					arrived <- string(buf[:n])
					_, _ = w.Write(buf[:n])
					_ = c.Flush()
				}
			})
			if protocol == "HTTP/2.0" {
				r.upstreams.http2(h)
			} else {
				r.upstreams.https(h)
			}
			r.begin()
			client := r.client(true)
			get := func(path string) string {
				q, _ := http.NewRequest(http.MethodGet, "https://"+demoHost+path, nil)
				q.Header.Set("Authorization", "Bearer "+tokenName)
				resp, err := client.Do(q)
				check(t, err)
				return body(t, resp)
			}
			get("/learn") // what the host speaks
			if got := get("/before"); !strings.HasSuffix(got, protocol) {
				t.Errorf("before: %q", got)
			}
			pr, pw := io.Pipe()
			q, _ := http.NewRequest(http.MethodPost, "https://"+demoHost+"/stream", pr)
			q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			// more than is held back after a swap
			go func() { _, _ = io.WriteString(pw, "client_secret="+tokenName+"&a="+strings.Repeat("x", 400<<10)) }()
			resp, err := client.Do(q)
			check(t, err)
			sent := ""
			for !strings.Contains(sent, secretValue) {
				select {
				case text := <-arrived:
					sent += text
				case <-time.After(testkit.Patience):
					t.Fatalf("arrived: %q", sent)
				}
			}
			r.writeAPI("demo", inBody(newValue))
			r.reloader.Load()
			text, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			_ = pw.Close()
			if err == nil {
				t.Error("the stream ended as if it were complete")
			}
			after := get("/after")
			for _, value := range []string{secretValue, newValue} {
				if strings.Contains(string(text)+after, value) {
					t.Errorf("%q came back: %q %q", value, text, after)
				}
			}
			if strings.Count(after, tokenName) != 2 {
				t.Errorf("after: %q", after)
			}
			get("/later")
			mu.Lock()
			defer mu.Unlock()
			for _, old := range []string{"/learn", "/before", "/stream"} {
				for _, now := range []string{"/after", "/later"} {
					if from[old] == from[now] {
						t.Errorf("%s and %s came on one connection", old, now)
					}
				}
			}
		})
	}
}

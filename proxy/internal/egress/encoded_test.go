package egress_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
)

// decodedBodies is an upstream that keeps the bodies of whole requests, decoded as all their headers say.
type decodedBodies struct {
	mu  sync.Mutex
	all []string
}

func (d *decodedBodies) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return // broken off
	}
	encodings, err := coding.Parse(r.Header)
	text := raw
	if err == nil {
		if text, err = io.ReadAll(coding.NewReader(bytes.NewReader(raw), encodings)); err != nil {
			text = raw
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, string(text))
	_, _ = io.WriteString(w, "ok")
}

func (d *decodedBodies) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.all
	d.all = nil
	return all
}

func gzipped(text string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.Bytes()
}

// noise is text that does not compress.
func noise(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz012345"
	var b strings.Builder
	x := uint32(1)
	for range n {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b.WriteByte(letters[x>>27])
	}
	return b.String()
}

// TestEncodedOverrides: an override is found whatever the body's encoding, its type, and how often the encoding is
// named.
// Promise: restricted-methods
func TestEncodedOverrides(t *testing.T) {
	for name, api := range map[string]string{
		"swapped into":     `{"value": "` + secretValue + `", "in": ["body:client_secret"]}`,
		"not swapped into": `"` + secretValue + `"`,
	} {
		for _, redacting := range [][]string{nil, {"Jane Doe"}} {
			r := newRig(t, setup{redact: redacting, apis: map[string]string{"demo": `{"description": "demo", "domains": ["` + demoHost + `"], "credentials": {"` + tokenName + `": ` + api + `},
				"ca_file": "ca.pem", "allow_private": ["127.0.0.0/8"]` + noDelete + `}`}})
			r.begin()
			seen := &decodedBodies{}
			r.upstreams.http2(seen)
			for _, h2 := range []bool{false, true} {
				client := r.client(h2)
				for _, c := range []struct {
					kind, body string
					codings    []string
				}{
					{"text/plain", `{"_method": "DELETE"}`, []string{"gzip"}},
					{"application/octet-stream", `{"_method": "DELETE"}`, []string{"gzip"}},
					{"text/plain", `{"_method": "DELETE", "x": "` + noise(600<<10) + `"}`, []string{"gzip"}},
					{"text/plain", `{"x": "` + noise(600<<10) + `", "_method": "DELETE"}`, []string{"gzip"}},
					{"application/x-www-form-urlencoded", "_method=DELETE", []string{"identity", "gzip"}},
					{"application/x-www-form-urlencoded", "_method=DELETE", []string{"", "gzip"}},
					{"application/x-www-form-urlencoded", "_method=DELETE", []string{"gzip"}},
					{"application/json", `{"_method": "DELETE"}`, []string{"identity", "gzip"}},
					{"", "_method=DELETE", []string{"identity", "gzip"}},
					{"", "_method[=DELETE", []string{}},
					{"", "[_method=DELETE", []string{}},
					{"", "_method[x=DELETE", []string{}},
				} {
					body := []byte(c.body)
					if len(c.codings) > 0 {
						body = gzipped(c.body)
					}
					for _, length := range []int64{int64(len(body)), -1} {
						q, err := http.NewRequest("POST", "https://"+demoHost+"/", bytes.NewReader(body))
						check(t, err)
						q.ContentLength = length
						q.Header["Content-Encoding"] = c.codings
						if c.kind != "" {
							q.Header.Set("Content-Type", c.kind)
						}
						resp, err := client.Do(q)
						if err == nil {
							_, _ = io.Copy(io.Discard, resp.Body)
							resp.Body.Close()
						}
						for _, got := range seen.take() {
							t.Errorf("API %s, redacting %v, HTTP/2 %v: %q with encodings %q, length %d, arrived as %.80q", name, redacting, h2, c.kind, c.codings, length, got)
						}
					}
				}
			}
		}
	}
}

// TestEncodedValue: an encoded body that has a credential in it never arrives whole, not even when it is at the end.
// Promise: leaked-values-stop-here
func TestEncodedValue(t *testing.T) {
	for _, c := range [][2]bool{{false, false}, {false, true}, {true, false}, {true, true}} {
		r := newRig(t, setup{})
		r.begin()
		seen := &decodedBodies{}
		if c[1] {
			r.upstreams.http2(seen)
		} else {
			r.upstreams.https(seen)
		}
		client := r.client(c[0])
		for _, text := range []string{secretValue, noise(600<<10) + " " + secretValue, secretValue + " " + noise(600<<10)} {
			body := gzipped(text)
			for _, length := range []int64{int64(len(body)), -1} {
				q, err := http.NewRequest("POST", "https://"+demoHost+"/", bytes.NewReader(body))
				check(t, err)
				q.ContentLength = length
				q.Header.Set("Content-Encoding", "gzip")
				resp, err := client.Do(q)
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				for _, got := range seen.take() {
					t.Errorf("HTTP/2 in and out %v: %d bytes, length %d, arrived: ...%q", c, len(text), length, got[max(0, len(got)-40):])
				}
			}
		}
	}
}

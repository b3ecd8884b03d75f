package egress_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// BenchmarkRequest is a small JSON request with a credential over persistent connections, real TLS on both sides;
// direct is the same without the proxy.
func BenchmarkRequest(b *testing.B) {
	creds := ""
	for i := range 7 {
		creds += fmt.Sprintf(`, "MORE_TOKEN_%d": "another-value-%d-0123456789"`, i, i)
	}
	r := newRig(b, setup{apis: map[string]string{"demo": strings.Replace(demoAPI(""), `"`+secretValue+`"`, `"`+secretValue+`"`+creds, 1)}})
	payload := `{"data": "` + strings.Repeat("x", 180) + `"}`
	r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, payload)
	}))
	r.begin()
	for name, client := range map[string]*http.Client{"proxied": r.client(false), "direct": r.upstreams.client()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				req, _ := http.NewRequest("GET", "https://"+demoHost+"/v1/things?a=b", nil)
				req.Header.Set("Authorization", "Bearer "+tokenName)
				resp, err := client.Do(req)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
}

// BenchmarkCall is a call of a tool that answers at once, through the proxy to the broker, one after the other and eight
// at a time.
func BenchmarkCall(b *testing.B) {
	r := newRig(b, setup{apis: mcpServers()})
	r.connectBroker(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"content": [{"type": "text", "text": "hi"}]}`)
	})
	r.begin()
	for _, h2 := range []bool{false, true} {
		client := r.client(h2)
		client.Transport.(*http.Transport).MaxIdleConnsPerHost = 8
		call := func() {
			resp, err := client.Post("https://"+callHost+"/notes/echo", "application/json", strings.NewReader(`{"message": "hi"}`))
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		b.Run(fmt.Sprintf("h2=%t/1", h2), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
		b.Run(fmt.Sprintf("h2=%t/8", h2), func(b *testing.B) {
			b.SetParallelism(4) // of two processors
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					call()
				}
			})
		})
	}
}

// BenchmarkDownload is a body of 16 MiB of lines, through and without the proxy.
func BenchmarkDownload(b *testing.B) {
	r := newRig(b, setup{})
	line := []byte(strings.Repeat("0123456789abcde ", 63) + "0123456789abcde\n")
	const lines = 16 << 10
	r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(lines*len(line)))
		for range lines {
			_, _ = w.Write(line)
		}
	}))
	r.begin()
	for name, client := range map[string]*http.Client{"proxied": r.client(false), "direct": r.upstreams.client()} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(lines * len(line)))
			for b.Loop() {
				resp, err := client.Get("https://" + demoHost + "/")
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != int64(lines*len(line)) {
					b.Fatalf("%d bytes: %v", n, err)
				}
				resp.Body.Close()
			}
		})
	}
}

// BenchmarkCoding is a body of 4 MiB of JSON from a server that compresses on request, through a proxy that requests it
// and one that does not. wire-bytes is what the upstream sends.
func BenchmarkCoding(b *testing.B) {
	var text, packed bytes.Buffer
	for i := 0; text.Len() < 4<<20; i++ {
		fmt.Fprintf(&text, `{"id": %d, "name": "Customer %d", "email": "c%d@example.com", "live": true},`+"\n", i, i, i*7919%10007)
	}
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(text.Bytes())
	check(b, z.Close())
	for name, more := range map[string]string{"identity": "", "gzip": `, "compress": true`} {
		b.Run(name, func(b *testing.B) {
			r := newRig(b, setup{apis: map[string]string{"demo": demoAPI(more)}})
			sent := 0
			r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				data := text.Bytes()
				if q.Header.Get("Accept-Encoding") == "gzip" {
					data = packed.Bytes()
					w.Header().Set("Content-Encoding", "gzip")
				}
				sent = len(data)
				w.Header().Set("Content-Length", fmt.Sprint(sent))
				_, _ = w.Write(data)
			}))
			r.begin()
			client := r.client(false)
			b.SetBytes(int64(text.Len()))
			for b.Loop() {
				q, _ := http.NewRequest("GET", "https://"+demoHost+"/", nil)
				q.Header.Set("Accept-Encoding", "gzip")
				resp, err := client.Do(q)
				check(b, err)
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			b.ReportMetric(float64(sent), "wire-bytes")
		})
	}
}

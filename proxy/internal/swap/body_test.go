package swap

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
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

// post makes a request with a body, with or without a length.
func post(t testing.TB, body string, known bool, header ...string) *http.Request {
	req := request(t, "POST", "https://h/", body, header...)
	req.Header.Set("Content-Length", fmt.Sprint(len(body)))
	if !known {
		req.ContentLength = -1
		req.Header.Del("Content-Length")
	}
	return req
}

// TestLength: bodies up to 256 KiB get their exact length, longer ones keep theirs only if they cannot change.
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
				if _, err := New(c).SwapRequest(req, Options{Allowed: c}); err != nil {
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
				r, err := New(in).SwapRequest(req, Options{Allowed: in})
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
				r, err = New(out).SwapRequest(req, Options{Allowed: out})
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
						encode(strings.Replace(text, "API_KEY", "first\\u002dvalue", 1)): ErrCarriesValue, coded + "more": ErrEncoding, "no " + name: ErrEncoding, coded[:len(coded)-2]: ErrEncoding,
					} {
						req = post(t, data, known, "Content-Encoding", name, "Content-Type", "application/json")
						_, err := New(c).SwapRequest(req, Options{Allowed: c})
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
	if _, err := New(in).SwapRequest(req, Options{Allowed: in}); err != nil || req.Header.Get("Content-Encoding") == "" {
		t.Errorf("an unknown encoding: %v, %v", err, req.Header)
	}
}

// TestCloseEarly closes bodies before their end, one of them while a Read waits.
func TestCloseEarly(t *testing.T) {
	for _, surface := range []string{"body", "header"} {
		for _, encoding := range []string{"", "gzip"} {
			c := []catalog.Credential{credential("API_KEY", "first-value", surface)}
			pr, pw := io.Pipe()
			req := post(t, "x", false, "Content-Encoding", encoding)
			req.Body = pr
			if _, err := New(c).SwapRequest(req, Options{Allowed: c}); err != nil {
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
		if _, err := New(c).SwapRequest(req, Options{Allowed: c}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(req.Body); !errors.Is(err, broken) {
			t.Errorf("%s: got %v", kind, err)
		}
	}
	req := post(t, "--b\r\nbroken first-value", false, "Content-Type", "multipart/form-data; boundary=b")
	_, err := New(c).SwapRequest(req, Options{Allowed: c})
	if err == nil {
		_, err = io.ReadAll(req.Body)
	}
	if !errors.Is(err, ErrCarriesValue) {
		t.Errorf("got %v", err)
	}
	req = post(t, "--b\r\nno header", true, "Content-Type", "multipart/form-data; boundary=b")
	var ambiguous *formdata.Error
	if _, err := New(c).SwapRequest(req, Options{Allowed: c}); !errors.As(err, &ambiguous) {
		t.Errorf("got %v", err)
	}
}

// rewritten rewrites a body that is read in pieces of a size, 0 for the whole.
func rewritten(x *requestRewrite, kind, text string, size int) (string, error) {
	var src io.Reader = strings.NewReader(text)
	if size > 0 {
		src = &pieces{text, size}
	}
	x.req = &http.Request{Header: http.Header{"Content-Type": {kind}}}
	if err := x.readContentType(); err != nil {
		return "", err
	}
	out, err := io.ReadAll(x.newSwapReader(src))
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

// FuzzHeader: what is not a name stays, and no name is swapped twice.
func FuzzHeader(f *testing.F) {
	for _, v := range []string{"Bearer API_KEY", "Token a=API_KEY, b=\"API_KEY\"", "API_KEY", basic("API_KEY:x"), "X k=\"\\API_KEY"} {
		f.Add("Authorization", v)
	}
	f.Fuzz(func(t *testing.T, name, text string) {
		c := []catalog.Credential{credential("API_KEY", "first-value", "header")}
		x := &requestRewrite{s: New(c), o: Options{Allowed: c}, report: &Report{}}
		got, err := x.swapHeader(name, text)
		if err != nil {
			return
		}
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
					if _, err := s.SwapRequest(req, o); err != nil {
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

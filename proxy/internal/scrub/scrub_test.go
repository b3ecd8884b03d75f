package scrub

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
)

const canary = "sk_live_51Hx/Zq+canary=="

func creds(pairs ...string) []catalog.Credential {
	pairs = append([]string{"STRIPE_AUTH_TOKEN", canary}, pairs...)
	var list []catalog.Credential
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, catalog.Credential{Name: pairs[i], Value: secret.New(pairs[i+1])})
	}
	return list
}

// respond makes a response as a transport would. A negative length is an unknown one.
func respond(length int64, body io.Reader, header ...string) *http.Response {
	resp := &http.Response{StatusCode: 200, Status: "200 OK", ContentLength: length, Header: http.Header{}, Body: io.NopCloser(body)}
	if length >= 0 {
		resp.Header.Set("Content-Length", fmt.Sprint(length))
	}
	for i := 0; i < len(header); i += 2 {
		resp.Header.Add(header[i], header[i+1])
	}
	return resp
}

// flusher is what the encoders have in common.
type flusher interface {
	io.WriteCloser
	Flush() error
}

func encoder(t testing.TB, name string, w io.Writer) flusher {
	t.Helper()
	switch name {
	case "gzip":
		return gzip.NewWriter(w)
	case "zlib":
		return zlib.NewWriter(w)
	case "deflate":
		f, _ := flate.NewWriter(w, 6)
		return f
	case "br":
		return brotli.NewWriter(w)
	}
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func encode(t testing.TB, name string, data []byte) []byte {
	t.Helper()
	if name == "identity" {
		return data
	}
	var b bytes.Buffer
	w := encoder(t, name, &b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// label is the Content-Encoding for an encoder.
func label(name string) string { return strings.ReplaceAll(name, "zlib", "deflate") }

var encodings = []string{"identity", "gzip", "zlib", "deflate", "br", "zstd"}

// Promise: scrubbed-responses
// TestFound lists each name and place once, up to a bound, and counts all.
func TestFound(t *testing.T) {
	var r Report
	for n := range maxFound + 1 {
		r.addFound(fmt.Sprint(n), "body")
		r.addFound("0", "header")
	}
	list := r.ListFound()
	if len(list) != maxFound || list[0] != (FoundCredential{Name: "0", In: "body", Count: 1}) || list[1] != (FoundCredential{Name: "0", In: "header", Count: maxFound + 1}) ||
		r.Count() != 2*(maxFound+1) {
		t.Errorf("%d, %v", r.Count(), list)
	}
	var none *Report
	if none.ListFound() != nil || none.Count() != 0 {
		t.Error("a nil report found something")
	}
}

// TestNil: a nil Scrubber changes nothing.
func TestNil(t *testing.T) {
	var s *Scrubber
	text, err := io.ReadAll(s.NewReader(strings.NewReader("text"), []string{"text"}, func() { t.Error("replaced") }))
	if err != nil || string(text) != "text" || s.String("text") != "text" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestHead(t *testing.T) {
	c := creds("SECOND_TOKEN", "two words & more")
	resp := respond(0, strings.NewReader(""),
		"Location", "https://h/?k=sk_live_51Hx%2FZq%2Bcanary%3D%3D&t=two+words+%26+more",
		"Set-Cookie", "a="+canary+"; Path=/", "Set-Cookie", "b=two words & more",
		"Link", `<https://h/`+canary+`>; rel="next"`, "Www-Authenticate", `Basic realm="`+base64.StdEncoding.EncodeToString([]byte("me:"+canary))+`"`,
		"X-Hex", hex.EncodeToString([]byte(canary)), "X-Json", `{"k":"sk_live_51Hx\/Zq\u002bcanary=="}`,
		"X-Sk_live_51hx/zq+canary==", "1", "Content-Type", "text/plain", "X-Plain", "nothing here")
	resp.Status = "200 got " + canary
	report, err := New(c).ScrubResponse(resp, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := http.Header{
		"Content-Length": {"0"}, "Location": {"https://h/?k=STRIPE_AUTH_TOKEN&t=SECOND_TOKEN"},
		"Set-Cookie": {"a=STRIPE_AUTH_TOKEN; Path=/", "b=SECOND_TOKEN"}, "Link": {`<https://h/STRIPE_AUTH_TOKEN>; rel="next"`},
		"Www-Authenticate": {`Basic realm="bWU6STRIPE_AUTH_TOKEN"`}, "X-Hex": {"STRIPE_AUTH_TOKEN"}, "X-Json": {`{"k":"STRIPE_AUTH_TOKEN"}`},
		"Content-Type": {"text/plain"}, "X-Plain": {"nothing here"},
	}
	if fmt.Sprint(resp.Header) != fmt.Sprint(want) || resp.Status != "200 got STRIPE_AUTH_TOKEN" {
		t.Errorf("got %q, %v\nwant %v", resp.Status, resp.Header, want)
	}
	if report.Count() != 10 {
		t.Errorf("counted %d", report.Count())
	}
}

func TestNames(t *testing.T) {
	c := creds("SAME_VALUE", canary, "LONGER_VALUE", canary+"abcdefgh", "EMPTY_VALUE", "")
	s := New(c)
	for _, tc := range []struct {
		sent []string
		want string
	}{{nil, "STRIPE_AUTH_TOKEN"}, {[]string{"SAME_VALUE"}, "SAME_VALUE"}, {[]string{"OTHER", "STRIPE_AUTH_TOKEN"}, "STRIPE_AUTH_TOKEN"}} {
		resp := respond(-1, strings.NewReader(canary+canary+"abcdefgh"))
		if _, err := s.ScrubResponse(resp, Options{Sent: tc.sent}); err != nil {
			t.Fatal(err)
		}
		if got, _ := io.ReadAll(resp.Body); string(got) != tc.want+"LONGER_VALUE" {
			t.Errorf("sent %v: got %q", tc.sent, got)
		}
	}
	if told := s.CleanForLog("https://" + strings.ToLower(canary) + ".h/ " + canary); told != "https://STRIPE_AUTH_TOKEN.h/ STRIPE_AUTH_TOKEN" {
		t.Errorf("told as %q", told)
	}
	if s.String("x"+canary) != "xSTRIPE_AUTH_TOKEN" || !s.Contains(canary) || s.Contains("x") {
		t.Error("String or Contains is wrong")
	}
	var none *Scrubber
	if none.String(canary) != canary || none.Contains(canary) || New(nil).Contains("x") {
		t.Error("nothing finds something")
	}
	resp := respond(5, strings.NewReader("12345"), "Content-Encoding", "odd")
	if _, err := New(nil).ScrubResponse(resp, Options{}); err != nil || resp.Header.Get("Content-Encoding") != "odd" {
		t.Errorf("without credentials: %v, %v", err, resp.Header)
	}
}

// TestBodies puts an echo into bodies of many sizes, encodings and framings, read in pieces of many sizes.
// Promise: scrubbed-responses
func TestBodies(t *testing.T) {
	s := New(creds())
	for _, size := range []int{0, 1, 100, 4095, 65536, coding.ExactUpTo - 30, coding.ExactUpTo + 1, 1 << 20} {
		for i, name := range encodings {
			unit := []string{"letters and spaces ", "lines\n"}[i%2]
			plain := []byte(strings.Repeat(unit, size/len(unit)+1)[:size] + canary + "\n")
			want := bytes.ReplaceAll(plain, []byte(canary), []byte("STRIPE_AUTH_TOKEN"))
			coded := encode(t, name, plain)
			for _, known := range []bool{true, false} {
				for _, by := range []string{"whole", "half", "byte"} {
					src := io.Reader(bytes.NewReader(coded))
					switch {
					case by == "half":
						src = iotest.HalfReader(src)
					case by == "byte" && len(coded) < 200000:
						src = iotest.OneByteReader(src)
					}
					length := int64(-1)
					if known {
						length = int64(len(coded))
					}
					resp := respond(length, src, "Content-Encoding", label(name), "Etag", `"1"`)
					report, err := s.ScrubResponse(resp, Options{})
					if err != nil {
						t.Fatal(err)
					}
					exact := known && len(want) < 2*coding.ExactUpTo && len(coded) <= coding.ExactUpTo
					if exact != (resp.ContentLength == int64(len(want))) || exact != (resp.Header.Get("Content-Length") == fmt.Sprint(len(want))) {
						t.Errorf("%s of %d, known %t: length is %d, %v", name, size, known, resp.ContentLength, resp.Header)
					}
					got, err := io.ReadAll(resp.Body)
					if err != nil || !bytes.Equal(got, want) || report.Count() != 1 || resp.Header.Get("Content-Encoding") != "" {
						t.Errorf("%s of %d, known %t, by %s: %d bytes, %v, %d", name, size, known, by, len(got), err, report.Count())
					}
					if exact != (resp.Header.Get("Etag") == "") {
						t.Errorf("%s of %d, known %t: ETag %q", name, size, known, resp.Header.Get("Etag"))
					}
					if err := resp.Body.Close(); err != nil {
						t.Error(err)
					}
					if n, err := resp.Body.Read(make([]byte, 1)); n > 0 || err == nil {
						t.Error("a closed body reads")
					}
				}
			}
		}
	}
}

// Promise: scrubbed-responses
func TestStacked(t *testing.T) {
	s := New(creds())
	for _, inner := range encodings[1:] {
		for _, outer := range encodings[1:] {
			coded := encode(t, outer, encode(t, inner, []byte("a "+canary+" b")))
			resp := respond(int64(len(coded)), bytes.NewReader(coded), "Content-Encoding", label(inner)+", "+label(outer))
			if _, err := s.ScrubResponse(resp, Options{}); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(resp.Body); string(got) != "a STRIPE_AUTH_TOKEN b" || err != nil {
				t.Errorf("%s in %s: %q, %v", inner, outer, got, err)
			}
			_ = resp.Body.Close()
		}
	}
}

// TestMislabelled: what servers name by mistake, and no client decodes, is no reason to refuse a response. Beside
// another encoding it is.
// Promise: scrubbed-responses
func TestMislabelled(t *testing.T) {
	for _, name := range []string{"utf-8", "UTF8", " us-ascii", "ISO-8859-1", "base64", "binary", "none", "7bit", "8bit", "utf-8, identity", "aws-chunked", "AWS-Chunked,identity"} {
		resp := respond(-1, strings.NewReader("a "+canary+" b"), "Content-Encoding", name)
		if _, err := New(creds()).ScrubResponse(resp, Options{}); err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		got, err := io.ReadAll(resp.Body)
		if string(got) != "a STRIPE_AUTH_TOKEN b" || err != nil || len(resp.Header["Content-Encoding"]) > 0 {
			t.Errorf("%q: %q, %v, %v", name, got, err, resp.Header)
		}
	}
	for _, name := range []string{"utf-8, gzip", "gzip, utf-8", "base64, br", "utf-16", "utf-7", "utf-8;gzip", "utf-8 gzip"} {
		resp := respond(-1, strings.NewReader(canary), "Content-Encoding", name)
		if _, err := New(creds()).ScrubResponse(resp, Options{}); !errors.Is(err, ErrEncoding) {
			t.Errorf("%q: got %v", name, err)
		}
	}
}

// Promise: scrubbed-responses
func TestRefused(t *testing.T) {
	for _, header := range [][]string{
		{"Content-Encoding", "compress"}, {"Content-Encoding", "gzip, gzip, gzip"}, {"Content-Encoding", "gzip", "Content-Encoding", "odd"},
		{"Content-Encoding", "gzip;q=1"}, {"Content-Encoding", "aws-chunked, odd"}, {"Content-Encoding", "aws-chunked, utf-8, gzip"}, {"Grpc-Encoding", "gzip"}, {"Connect-Content-Encoding", "br"},
	} {
		resp := respond(-1, strings.NewReader(canary), header...)
		if _, err := New(creds()).ScrubResponse(resp, Options{}); !errors.Is(err, ErrEncoding) {
			t.Errorf("%q: got %v", header, err)
		}
	}
	for _, name := range encodings[1:] {
		coded := encode(t, name, []byte(strings.Repeat(canary, 100)))
		for _, length := range []int64{int64(len(coded)), -1} {
			for what, data := range map[string][]byte{"not encoded": []byte("this is " + canary), "cut": coded[:len(coded)-3]} {
				resp := respond(length, bytes.NewReader(data), "Content-Encoding", label(name))
				_, err := New(creds()).ScrubResponse(resp, Options{})
				var got []byte
				if err == nil {
					got, err = io.ReadAll(resp.Body)
				}
				if !errors.Is(err, coding.ErrBroken) || bytes.Contains(got, []byte(canary)) {
					t.Errorf("%s, %s: got %.40q, %v", name, what, got, err)
				}
			}
		}
	}
}

// Promise: no-truncated-response
func TestAbort(t *testing.T) {
	broken := errors.New("connection reset by " + canary)
	for _, name := range encodings {
		coded := encode(t, name, []byte("one\n"+strings.Repeat("x", 300000)))
		resp := respond(-1, io.MultiReader(bytes.NewReader(coded[:len(coded)/2]), iotest.ErrReader(broken)), "Content-Encoding", label(name))
		if _, err := New(creds()).ScrubResponse(resp, Options{}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); !errors.Is(err, broken) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	// What was held back of a credential when the body broke off is discarded.
	for _, n := range []int{1, 6, len(canary) - 1} {
		text := strings.Repeat("x\n", 1000) + canary[:n]
		resp := respond(-1, io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken)))
		if _, err := New(creds()).ScrubResponse(resp, Options{}); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(resp.Body); !errors.Is(err, broken) || strings.HasSuffix(string(got), canary[:n]) {
			t.Errorf("of %d bytes of the credential: %d of %d bytes left, %v", n, len(got), len(text), err)
		}
	}
	resp := respond(100, io.MultiReader(strings.NewReader("half"), iotest.ErrReader(io.ErrUnexpectedEOF)))
	if _, err := New(creds()).ScrubResponse(resp, Options{}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
}

func TestWithoutBody(t *testing.T) {
	for _, tc := range []struct {
		method string
		status int
	}{{"HEAD", 200}, {"GET", 304}, {"GET", 204}, {"GET", 101}} {
		resp := respond(1234, http.NoBody, "Content-Type", "text/plain")
		resp.StatusCode = tc.status
		if _, err := New(creds()).ScrubResponse(resp, Options{Method: tc.method}); err != nil || resp.ContentLength != 1234 || resp.Header.Get("Content-Length") != "1234" {
			t.Errorf("%s %d: %v, %v", tc.method, tc.status, err, resp.Header)
		}
		resp = respond(1234, http.NoBody, "Content-Encoding", "gzip", "Etag", `"1"`, "Content-Md5", "x")
		resp.StatusCode = tc.status
		_, err := New(creds()).ScrubResponse(resp, Options{Method: tc.method, Sent: []string{"STRIPE_AUTH_TOKEN"}})
		if err != nil || len(resp.Header) != 0 || resp.ContentLength != -1 {
			t.Errorf("%s %d encoded: %v, %v", tc.method, tc.status, err, resp.Header)
		}
		resp = respond(1234, http.NoBody, "Content-Encoding", "aws-chunked")
		resp.StatusCode = tc.status
		_, err = New(creds()).ScrubResponse(resp, Options{Method: tc.method})
		if err != nil || resp.ContentLength != 1234 || resp.Header.Get("Content-Length") != "1234" || len(resp.Header) != 1 {
			t.Errorf("%s %d aws-chunked: %v, %v", tc.method, tc.status, err, resp.Header)
		}
	}
}

// Promise: no-oracle
func TestDigests(t *testing.T) {
	all := []string{"Etag", `"x"`, "Digest", "sha-256=x", "Content-Digest", "x", "Repr-Digest", "x", "Content-Md5", "x", "X-Amz-Checksum-Sha256", "x", "X-Goog-Hash", "x",
		"X-Ms-Blob-Content-Md5", "x", "X-Ms-Content-Crc64", "x", "X-Oss-Hash-Crc64ecma", "x", "X-Bz-Content-Sha1", "x"}
	for _, tc := range []struct {
		name, body string
		length     int64
		sent       []string
		left       int
	}{
		{"small and clean", "clean", 5, []string{"STRIPE_AUTH_TOKEN"}, 11},
		{"small and changed", canary, int64(len(canary)), nil, 0},
		{"streamed", "clean", -1, nil, 1},
		{"streamed, sent", "clean", -1, []string{"STRIPE_AUTH_TOKEN"}, 0},
	} {
		resp := respond(tc.length, strings.NewReader(tc.body), all...)
		if _, err := New(creds()).ScrubResponse(resp, Options{Sent: tc.sent}); err != nil {
			t.Fatal(err)
		}
		resp.Header.Del("Content-Length")
		if len(resp.Header) != tc.left {
			t.Errorf("%s: left %v", tc.name, resp.Header)
		}
	}
}

// Promise: scrubbed-responses
func TestTrailer(t *testing.T) {
	resp := respond(-1, strings.NewReader("body"))
	resp.Trailer = http.Header{"X-Echo": nil, "Digest": nil, "X-Plain": nil}
	resp.Body = io.NopCloser(io.MultiReader(strings.NewReader("body"), ender(func() {
		resp.Trailer["X-Echo"] = []string{canary}
		resp.Trailer["Digest"] = []string{"x"}
		resp.Trailer["X-Plain"] = []string{"plain"}
	})))
	if _, err := New(creds()).ScrubResponse(resp, Options{}); err != nil {
		t.Fatal(err)
	}
	_, err := io.ReadAll(resp.Body)
	if want := (http.Header{"X-Echo": {"STRIPE_AUTH_TOKEN"}, "X-Plain": {"plain"}}); err != nil || fmt.Sprint(resp.Trailer) != fmt.Sprint(want) {
		t.Errorf("got %v, %v", resp.Trailer, err)
	}
}

// ender does something at the end.
type ender func()

func (e ender) Read([]byte) (int, error) { e(); return 0, io.EOF }

// TestNothingToScrub: without a catalog, everything passes as it is.
func TestNothingToScrub(t *testing.T) {
	var s *Scrubber
	text, err := io.ReadAll(s.NewReader(strings.NewReader("as it is"), nil, nil))
	if string(text) != "as it is" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if got := s.CleanForLog("As It Is"); got != "As It Is" || s.Contains("as it is") {
		t.Error(got)
	}
}

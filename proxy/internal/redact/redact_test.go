package redact

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/framing"
)

func request(t testing.TB, url, body string, header ...string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return req
}

func TestRequest(t *testing.T) {
	r := New([]string{"Jane Doe", "jane@example.com", "Ünal/7", ""})
	req := request(t, "https://h/u/Jane%20Doe/%C3%9Cnal%2F7?q=Jane+Doe&m=jane%40example.com&x=1",
		`{"a":"Jane Doe","b":"\u00dcnal\/7","c":"jane doe","d":"Jane%20Doe &#74;ane Doe"}`,
		"X-Note", "for Jane Doe", "X-Note", "and Ünal/7", "Cookie", "m=jane%40example.com", "X-Jane@example.com", "1")
	report := r.RedactRequest(req, framing.None)
	if got, want := req.URL.RequestURI(), "/u/REDACTED/REDACTED?q=REDACTED&m=REDACTED&x=1"; got != want || req.URL.Path != "/u/REDACTED/REDACTED" {
		t.Errorf("got %s, %s, want %s", got, req.URL.Path, want)
	}
	if want := (http.Header{"X-Note": {"for REDACTED", "and REDACTED"}, "Cookie": {"m=REDACTED"}}); fmt.Sprint(req.Header) != fmt.Sprint(want) {
		t.Errorf("got %v", req.Header)
	}
	got, err := io.ReadAll(req.Body)
	if want := `{"a":"REDACTED","b":"REDACTED","c":"jane doe","d":"REDACTED REDACTED"}`; err != nil || string(got) != want || req.ContentLength != int64(len(want)) {
		t.Errorf("got %s of %d, %v", got, req.ContentLength, err)
	}
	if report.Count() != 12 {
		t.Errorf("counted %d", report.Count())
	}
	req = request(t, "https://h/", "n=Jane+Doe&m=1", "Content-Type", "application/x-www-form-urlencoded")
	r.RedactRequest(req, framing.None)
	if got, _ := io.ReadAll(req.Body); string(got) != "n=REDACTED&m=1" {
		t.Errorf("got %s", got)
	}
	if s := r.String("Jane Doe\n" + `\u00dcnal\/7`); s != "REDACTED\nREDACTED" {
		t.Errorf("got %q", s)
	}
}

func TestNothing(t *testing.T) {
	var none *Redactor
	for _, r := range []*Redactor{none, New(nil), New([]string{""})} {
		req := request(t, "https://h/a%20b?c", "body", "Content-Encoding", "odd")
		if r.RedactRequest(req, framing.None).Count() != 0 || r.String("x") != "x" || req.ContentLength != 4 || req.URL.RequestURI() != "/a%20b?c" {
			t.Errorf("changed: %v", req)
		}
	}
}

// TestInsideEscape: a string that is part of an escape leaves no broken path.
func TestInsideEscape(t *testing.T) {
	req := request(t, "https://h/a%2Fb", "")
	New([]string{"2F"}).RedactRequest(req, framing.None)
	if got := req.URL.EscapedPath(); got != "/REDACTED" || req.URL.Path != got {
		t.Errorf("the path is %s, %s", got, req.URL.Path)
	}
	if u, err := url.Parse(req.URL.String()); err != nil || strings.Contains(u.String(), "2F") {
		t.Errorf("got %v, %v", u, err)
	}
}

// TestHeaderCountsOnce: a removed header counts once, also if its value contains a string.
func TestHeaderCountsOnce(t *testing.T) {
	req := request(t, "https://h/", "", "X-Jane", "jane")
	req.Body = http.NoBody
	if n := New([]string{"jane"}).RedactRequest(req, framing.None).Count(); n != 1 || len(req.Header) != 0 || req.Body != http.NoBody {
		t.Errorf("counted %d, left %v", n, req.Header)
	}
	req.Body = nil
	if New([]string{"jane"}).RedactRequest(req, framing.None); req.Body != nil {
		t.Error("a request without a body has one")
	}
}

func TestMatchHost(t *testing.T) {
	var none *Redactor
	r := New([]string{"Jane"})
	if !r.MatchHost("a.jANe.test") || r.MatchHost("jan.test") || none.MatchHost("jane.test") || (*Report)(nil).Count() != 0 {
		t.Error("hosts are not compared without letter case")
	}
	if text, n := none.ReplaceAndCount("jane"); text != "jane" || n != 0 {
		t.Errorf("%q, %d", text, n)
	}
}

func TestBodies(t *testing.T) {
	r := New([]string{"Jane Doe"})
	for _, size := range []int{0, 100, coding.ExactUpTo - 8, coding.ExactUpTo + 1, 1 << 20} {
		for _, encoding := range []string{"", "gzip"} {
			for _, known := range []bool{true, false} {
				text := strings.Repeat("x", size) + "Jane Doe"
				body := text
				if encoding == "gzip" {
					var b bytes.Buffer
					w := gzip.NewWriter(&b)
					_, _ = io.WriteString(w, text)
					_ = w.Close()
					body = b.String()
				}
				req := request(t, "https://h/", body, "Content-Encoding", encoding)
				if !known {
					req.ContentLength = -1
				}
				req.Body = io.NopCloser(iotest.HalfReader(req.Body))
				report := r.RedactRequest(req, framing.None)
				got, err := io.ReadAll(req.Body)
				if err != nil || string(got) != strings.Repeat("x", size)+Mark || report.Count() != 1 || req.Header.Get("Content-Encoding") != "" {
					t.Errorf("%d %s %t: %d bytes, %v, %v", size, encoding, known, len(got), err, req.Header)
				}
				if exact := known && len(body) <= coding.ExactUpTo && len(got) < 2*coding.ExactUpTo; exact != (req.ContentLength == int64(len(got))) {
					t.Errorf("%d %s %t: length %d", size, encoding, known, req.ContentLength)
				}
				_ = req.Body.Close()
			}
		}
	}
	req := request(t, "https://h/", "4;sig\r\nJane Doe\r\n", "Content-Encoding", "aws-chunked")
	r.RedactRequest(req, framing.None)
	if got, _ := io.ReadAll(req.Body); string(got) != "4;sig\r\nREDACTED\r\n" || req.Header.Get("Content-Encoding") != "aws-chunked" {
		t.Errorf("an unknown encoding: %q, %v", got, req.Header)
	}
	for _, length := range []int64{9, -1} {
		req := request(t, "https://h/", "not gzip!", "Content-Encoding", "gzip")
		req.ContentLength = length
		r.RedactRequest(req, framing.None)
		if _, err := io.ReadAll(req.Body); !errors.Is(err, coding.ErrBroken) || req.ContentLength != -1 {
			t.Errorf("got %v, length %d", err, req.ContentLength)
		}
	}
}

func FuzzRequest(f *testing.F) {
	f.Add("Jane Doe", "a Jane Doe b")
	f.Add("ü/7", `"ü/7"`)
	f.Fuzz(func(t *testing.T, secret, text string) {
		if len(secret) < 4 || strings.Contains(Mark, secret) || strings.Contains(url.QueryEscape(Mark), secret) || strings.ToValidUTF8(text, "") != text {
			return
		}
		r := New([]string{secret})
		js, _ := json.Marshal(text)
		req := request(t, "https://h/", string(js))
		req.URL = &url.URL{Scheme: "https", Host: "h", Path: "/" + text, RawQuery: "q=" + url.QueryEscape(text)}
		req.Header.Set("X-A", text)
		r.RedactRequest(req, framing.None)
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Fatal(err)
		}
		var said string
		_ = json.Unmarshal(body, &said)
		query, _ := url.QueryUnescape(req.URL.RawQuery)
		for _, got := range []string{said, query, req.URL.Path, req.Header.Get("X-A"), string(body), req.URL.String()} {
			if strings.Contains(got, secret) && !strings.Contains(strings.ReplaceAll(got, secret, ""), "REDACTED") {
				t.Fatalf("%q is left in %q", secret, got)
			}
		}
	})
}

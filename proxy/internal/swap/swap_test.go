package swap

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/secret"
)

const value = `s3cr/t "va+lue" & <more>`

// credential makes one with surfaces in the notation of config.json.
func credential(name, value string, surfaces ...string) catalog.Credential {
	c := catalog.Credential{Name: name, Value: secret.New(value)}
	for _, s := range surfaces {
		kind, field, _ := strings.Cut(s, ":")
		c.Surfaces = append(c.Surfaces, catalog.Surface{Kind: map[string]catalog.SurfaceKind{
			"header": catalog.SurfaceHeader, "query": catalog.SurfaceQuery, "path": catalog.SurfacePath, "body": catalog.SurfaceBody,
			"cookie": catalog.SurfaceCookie,
		}[kind], Field: field})
	}
	return c
}

// request makes one; header alternates names and values.
func request(t testing.TB, method, url, body string, header ...string) *http.Request {
	t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, r)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return req
}

func basic(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s)) }

// Promise: declared-places-only
func TestHeader(t *testing.T) {
	const v = "s3cr3t-value"
	c := []catalog.Credential{credential("API_KEY", v, "header")}
	s := New(append(c, credential("OTHER_KEY", "another-value", "header")))
	for _, tc := range []struct{ name, in, want, code string }{
		{"X-Api-Key", "API_KEY", v, ""},
		{"X-Api-Key", " API_KEY ", v, ""},
		{"Authorization", "Bearer API_KEY", "Bearer " + v, ""},
		{"Authorization", "token  API_KEY", "token " + v, ""},
		{"X-Auth", "Token API_KEY", "Token " + v, ""},
		{"Authorization", "Token token=API_KEY, x=1", "Token token=" + v + ", x=1", ""},
		{"Authorization", `MediaBrowser Client="a", Token="API_KEY"`, `MediaBrowser Client="a", Token="` + v + `"`, ""},
		{"Authorization", "key=API_KEY", "key=" + v, ""},
		{"Authorization", basic("API_KEY:"), basic(v + ":"), ""},
		{"Authorization", basic("me:API_KEY"), basic("me:" + v), ""},
		{"Authorization", basic("API_KEY"), basic(v), ""},
		{"Authorization", "basic " + strings.TrimRight(basic("a:API_KEY")[6:], "="), "basic " + basic("a:" + v)[6:], ""},
		{"Authorization", "Bearer API_KEY_2", "Bearer API_KEY_2", CodeUnknown}, {"Authorization", "API_KEYS", "API_KEYS", CodeUnknown},
		{"Authorization", "Bearer APIKEY", "Bearer APIKEY", ""}, {"Authorization", "Bearer API_KEY-2x", "Bearer API_KEY-2x", CodeInside}, {"X-Mode", "READ_ONLY", "READ_ONLY", ""},
		{"Authorization", "Bearer xAPI_KEY", "Bearer xAPI_KEY", ""},
		{"Authorization", "Bearer api_key", "Bearer api_key", ""},
		{"Authorization", basic("me:API_KEY2"), basic("me:API_KEY2"), ""},
		{"Authorization", basic("me:x API_KEY"), basic("me:x API_KEY"), CodeInside},
		{"Authorization", basic("API_KEY:API_KEY"), basic(v + ":API_KEY"), CodeRepeated},
		{"Authorization", "Basic !!API_KEY", "Basic !!API_KEY", ""},
		{"Authorization", "Token a=API_KEY/x", "Token a=API_KEY/x", CodeInside},
		{"Authorization", "Token API_KEY=1", "Token API_KEY=1", CodeInside},
		{"Authorization", "Bearer two API_KEY", "Bearer two API_KEY", CodeInside},
		{"X-Note", "my good API_KEY here", "my good API_KEY here", CodeInside},
		{"X-Note", "k=API_KEY", "k=API_KEY", CodeInside},
		{"X-Api-Key", "OTHER_KEY", "OTHER_KEY", CodeOther},
		{"Cookie", "API_KEY", "API_KEY", CodeSink}, {"Cookie", "k=API_KEY; x=y", "k=API_KEY; x=y", CodeUndeclared},
		{"Referer", "API_KEY", "API_KEY", CodeSink}, {"Origin", "API_KEY", "API_KEY", CodeSink}, {"User-Agent", "API_KEY", "API_KEY", CodeSink},
		{"X-Forwarded-For", "API_KEY", "API_KEY", CodeSink}, {"Forwarded", "API_KEY", "API_KEY", CodeSink}, {"Via", "API_KEY", "API_KEY", CodeSink},
		{"From", "API_KEY", "API_KEY", CodeSink}, {"Link", "API_KEY", "API_KEY", CodeSink}, {"X-Amz-Meta-Key", "API_KEY", "API_KEY", CodeSink},
		{"Content-Disposition", "API_KEY", "API_KEY", CodeSink}, {"If-Match", "API_KEY", "API_KEY", CodeSink}, {"Idempotency-Key", "API_KEY", "API_KEY", CodeSink},
		{"Traceparent", "API_KEY", "API_KEY", CodeSink}, {"X-Request-Id", "API_KEY", "API_KEY", CodeSink}, {"Host", "API_KEY", "API_KEY", CodeSink},
		{"X-Goog-Meta-Owner", "API_KEY", "API_KEY", CodeSink}, {"X-Correlation-Id", "API_KEY", "API_KEY", CodeSink},
	} {
		req := request(t, "GET", "https://h/", "", tc.name, tc.in)
		r, err := s.SwapRequest(req, Options{Allowed: c})
		if got := req.Header.Get(tc.name); err != nil || got != tc.want {
			t.Errorf("%s: %q became %q, %v, want %q", tc.name, tc.in, got, err, tc.want)
		}
		code := ""
		for _, seen := range r.Seen() {
			code = seen.Code
		}
		if code != tc.code {
			t.Errorf("%s: %q: code %q, want %q", tc.name, tc.in, code, tc.code)
		}
		if swapped := len(r.Swapped()) > 0; swapped != (tc.in != tc.want && req.Header.Get(tc.name) != tc.in) {
			t.Errorf("%s: %q: swapped %v", tc.name, tc.in, r.Swapped())
		}
	}
}

func TestQuotedParameter(t *testing.T) {
	c := []catalog.Credential{credential("API_KEY", `a"b\c d,e=f`, "header:authorization")}
	for in, want := range map[string]string{
		`X k="API_KEY"`: `X k="a\"b\\c d,e=f"`, `X k=API_KEY`: `X k="a\"b\\c d,e=f"`, `X k="\API_KEY"`: `X k="\API_KEY"`, `X k="API_KEY`: `X k="API_KEY`,
	} {
		req := request(t, "GET", "https://h/", "", "Authorization", in)
		if _, err := New(c).SwapRequest(req, Options{Allowed: c}); err != nil || req.Header.Get("Authorization") != want {
			t.Errorf("%q became %q, %v, want %q", in, req.Header.Get("Authorization"), err, want)
		}
	}
}

// Promise: declared-places-only
func TestSurfaces(t *testing.T) {
	q, p := strings.ReplaceAll(url.QueryEscape(value), "+", "%20"), url.PathEscape(value)
	js := `s3cr/t \"va+lue\" \u0026 <more>`
	const refused = "refused"
	const form, multi = "application/x-www-form-urlencoded", "multipart/form-data; boundary=b"
	part := func(field, text string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"" + field + "\"\r\n\r\n" + text + "\r\n--b--\r\n"
	}
	for _, tc := range []struct{ surface, kind, url, body, wantURL, wantBody, code string }{
		{"query:key", "", "/a?key=API_KEY&x=1", "", "/a?key=" + q + "&x=1", "", ""},
		{"query:key", "", "/a?k%65y=API_KEY", "", "/a?k%65y=" + q, "", ""},
		{"query", "", "/a?a=API_KEY&b=API_KEY", "", "/a?a=" + q + "&b=API_KEY", "", CodeRepeated},
		{"query:key", "", "/a?text=API_KEY", "", "/a?text=API_KEY", "", CodeUndeclared},
		{"query:key", "", "/a?Key=API_KEY", "", "/a?Key=API_KEY", "", CodeUndeclared},
		{"query:key", "", "/a?key=x-API_KEY", "", "/a?key=x-API_KEY", "", CodeInside},
		{"query:key", "", "/a?key=API_KEY_2&API_KEY", "", "/a?key=API_KEY_2&API_KEY", "", CodeInside},
		{"query", "", "/a?any=API_KEY", "", "/a?any=" + q, "", ""},
		{"query", "", "/a?any=x+API_KEY", "", "/a?any=x+" + q, "", ""},
		{"query", "", "/a?any=%20API_KEY%2C", "", "/a?any=%20" + q + "%2C", "", ""},
		{"query", "", "/a?any=%41API_KEYS", "", "/a?any=%41API_KEYS", "", ""},
		{"header", "", "/a?key=API_KEY", "", "/a?key=API_KEY", "", CodeUndeclared},
		{"path", "", "/bot/API_KEY/send", "", "/bot/" + p + "/send", "", ""},
		{"path", "", "/API_KEY", "", "/" + p, "", ""},
		{"path", "", "/API_KEY/API_KEY", "", "/" + p + "/API_KEY", "", CodeRepeated},
		{"path", "", "/bot-API_KEY/send", "", "/bot-API_KEY/send", "", CodeInside},
		{"header", "", "/API_KEY/%20", "", "/API_KEY/%20", "", CodeUndeclared},

		{"body:secret", form, "/", "a=b&secret=API_KEY", "/", "a=b&secret=" + q, ""},
		{"body:secret", form, "/", "secret=API_KEY&text=API_KEY", "/", "secret=" + q + "&text=API_KEY", CodeUndeclared},
		{"body:secret", form, "/", "SECRET=API_KEY", "/", "SECRET=API_KEY", CodeUndeclared},
		{"body:secret", form, "/", "secret=API_KEY+x", "/", "secret=API_KEY+x", CodeInside},
		{"body", form, "/", "any=x+API_KEY", "/", "any=x+" + q, ""},
		{"header", form, "/", "secret=API_KEY", "/", "secret=API_KEY", CodeUndeclared},

		{"body:secret", "application/json", "/", `{"secret": "API_KEY"}`, "/", `{"secret": "` + js + `"}`, ""},
		{"body:secret", "text/plain;charset=UTF-8", "/", ` {"secret":"API_KEY"}`, "/", ` {"secret":"` + js + `"}`, ""},
		{"body:secret", "", "/", `{"secret":"API_KEY"}`, "/", "", refused},
		{"body:secret", "application/vnd.api+json", "/", `[{"x":1},{"s\u0065cret":"API_KEY"}]`, "/", `[{"x":1},{"s\u0065cret":"` + js + `"}]`, ""},
		{"body:a.secret", "application/json", "/", `{"b":{"secret":"API_KEY"},"a":{"x":{},"secret":"API_KEY"}}`, "/", `{"b":{"secret":"API_KEY"},"a":{"x":{},"secret":"` + js + `"}}`, CodeUndeclared},
		{"body:secret", "application/json", "/", `{"a":{"secret":"API_KEY"}}`, "/", `{"a":{"secret":"API_KEY"}}`, CodeUndeclared},
		{"body:secret", "application/json", "/", `{"secret":"x API_KEY"}`, "/", `{"secret":"x API_KEY"}`, CodeInside},
		{"body:secret", "application/json", "/", `{"secret":"\nAPI_KEY"}`, "/", `{"secret":"\nAPI_KEY"}`, CodeInside},
		{"body:secret", "application/json", "/", `{"secret":"API_KEY\"}`, "/", `{"secret":"API_KEY\"}`, CodeInside},
		{"body:secret", "application/json", "/", `{"API_KEY":"secret"}`, "/", `{"API_KEY":"secret"}`, CodeInside},
		{"body:secret", "application/json", "/", `{"x":"\"secret\":","y":"API_KEY"}`, "/", `{"x":"\"secret\":","y":"API_KEY"}`, CodeUndeclared},
		{"body:secret", "application/x-ndjson", "/", "{\"secret\":1}\n{\"secret\":\"API_KEY\"}\n", "/", "{\"secret\":1}\n{\"secret\":\"" + js + "\"}\n", ""},
		{"body", "application/json", "/", `{"q":"use \u002fAPI_KEY or\nAPI_KEY!"}`, "/", `{"q":"use \u002f` + js + ` or\nAPI_KEY!"}`, CodeRepeated},
		{"body", "application/json", "/", `{"q":"\u0041API_KEY API_KEY\u005f2"}`, "/", `{"q":"\u0041API_KEY API_KEY\u005f2"}`, ""},
		{"body", "application/json", "/", `{"q":"\u00API_KEY"}`, "/", `{"q":"\u00API_KEY"}`, ""},
		{"body", "application/json", "/", `{"q":"\z API_KEY"}`, "/", "", refused},
		{"body", form, "/", "a=%41API_KEY&b=API_KEY%5f2&c=%4API_KEY", "/", "a=%41API_KEY&b=API_KEY%5f2&c=%4API_KEY", ""},
		{"body", form, "/", "a=%41API_KEY&d=%+API_KEY", "/", "", refused},
		{"body", "application/json", "/", `{"q":"API_KEY_2 xAPI_KEY"}`, "/", `{"q":"API_KEY_2 xAPI_KEY"}`, ""},

		{"body:secret", multi, "/", part("secret", "API_KEY"), "/", part("secret", value), ""},
		{"body:secret", multi, "/", part("other", "API_KEY"), "/", part("other", "API_KEY"), CodeUndeclared},
		{"body:secret", multi, "/", part(`secret"; filename="a`, "API_KEY"), "/", part(`secret"; filename="a`, "API_KEY"), ""},
		{"body", multi, "/", part("other", "x API_KEY y"), "/", part("other", "x "+value+" y"), ""},
		{"body", "text/xml; charset=utf-8", "/", "<a>API_KEY</a>", "/", "<a>s3cr/t &quot;va+lue&quot; &amp; &lt;more&gt;</a>", ""},
		{"body", "text/csv", "/", "a,API_KEY,b", "/", "a," + value + ",b", ""},
		{"body", "application/octet-stream", "/", "\x00API_KEY\xff", "/", "\x00" + value + "\xff", ""},
		{"body:secret", "text/csv", "/", "a,API_KEY,b", "/", "a,API_KEY,b", CodeUndeclared},
	} {
		c := []catalog.Credential{credential("API_KEY", value, tc.surface)}
		for _, length := range []string{"known", "unknown"} {
			req := request(t, "POST", "https://h"+tc.url, tc.body, "Content-Type", tc.kind)
			if length == "unknown" {
				req.ContentLength = -1
			}
			r, err := New(c).SwapRequest(req, Options{Allowed: c})
			if tc.code == refused {
				if err == nil {
					_, err = io.ReadAll(req.Body)
				}
				if a := (*Ambiguity)(nil); !errors.As(err, &a) {
					t.Errorf("%s, %s, %s: got %v", tc.surface, tc.body, length, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprintf("%s, %s%s, %s", tc.surface, tc.url, tc.body, length)
			if got := req.URL.RequestURI(); got != tc.wantURL {
				t.Errorf("%s: the URL became %q, want %q", name, got, tc.wantURL)
			}
			if tc.body != "" {
				got, err := io.ReadAll(req.Body)
				_, boundary, _ := strings.Cut(req.Header.Get("Content-Type"), "boundary=")
				if tc.kind == multi && boundary == "b" {
					t.Errorf("%s: the boundary is the author's", name)
				}
				if old := tc.wantBody; err != nil || tc.kind != multi && string(got) != old ||
					tc.kind == multi && string(got) != strings.ReplaceAll(old, "--b", "--"+boundary) {
					t.Errorf("%s: the body became %q, %v, want %q", name, got, err, tc.wantBody)
				}
				if length == "known" && req.ContentLength != int64(len(got)) || length == "unknown" && req.ContentLength != -1 {
					t.Errorf("%s: length %d of %d", name, req.ContentLength, len(got))
				}
			}
			if seen := r.Seen(); len(seen) > 0 != (tc.code != "") || len(seen) > 0 && seen[0].Code != tc.code {
				t.Errorf("%s: saw %v, want %q", name, seen, tc.code)
			}
			if swapped := r.Swapped(); len(swapped) > 0 != (tc.url+tc.body != tc.wantURL+tc.wantBody) || len(swapped) > 1 {
				t.Errorf("%s: swapped %v", name, swapped)
			}
		}
	}
}

// TestOnce: one swap per name and surface; another name or surface counts separately.
// Promise: declared-places-only
func TestOnce(t *testing.T) {
	c := []catalog.Credential{
		credential("API_KEY", "first-value", "header", "header:x-two", "query:a", "query:b"),
		credential("API_KEY_2", "second-value", "header"),
	}
	req := request(t, "GET", "https://h/?a=API_KEY&b=API_KEY", "",
		"X-One", "API_KEY", "Authorization", "Bearer API_KEY", "X-Two", "API_KEY", "X-Three", "API_KEY_2")
	r, err := New(c).SwapRequest(req, Options{Allowed: c})
	if err != nil {
		t.Fatal(err)
	}
	want := http.Header{"Authorization": {"Bearer first-value"}, "X-One": {"API_KEY"}, "X-Two": {"first-value"}, "X-Three": {"second-value"}}
	if fmt.Sprint(req.Header) != fmt.Sprint(want) || req.URL.RawQuery != "a=first-value&b=first-value" {
		t.Errorf("got %v, %s", req.Header, req.URL)
	}
	in := []Swap{{"API_KEY", "header:Authorization"}, {"API_KEY_2", "header:X-Three"}, {"API_KEY", "header:X-Two"}, {"API_KEY", "query:a"}, {"API_KEY", "query:b"}}
	if !slices.Equal(r.Swapped(), in) || !slices.Equal(r.Seen(), []SeenName{{"API_KEY", "header", CodeRepeated}}) {
		t.Errorf("got %v, %v", r.Swapped(), r.Seen())
	}
}

// Promise: declared-places-only
func TestNotAllowed(t *testing.T) {
	all := []catalog.Credential{credential("API_KEY", "first-value", "header", "query", "path", "body")}
	for code, o := range map[string]Options{CodeOther: {}, CodeInsecure: {Allowed: all, Insecure: true}} {
		req := request(t, "POST", "https://h/API_KEY?x=API_KEY", "API_KEY", "Authorization", "Bearer API_KEY", "X-A", basic("a:API_KEY"))
		before := fmt.Sprint(req.URL, req.Header)
		r, err := New(all).SwapRequest(req, o)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(req.Body)
		if fmt.Sprint(req.URL, req.Header) != before || string(body) != "API_KEY" || len(r.Swapped()) > 0 {
			t.Errorf("%s: became %v %v %q", code, req.URL, req.Header, body)
		}
		want := []SeenName{{"API_KEY", "header", code}, {"API_KEY", "path", code}, {"API_KEY", "query", code}, {"API_KEY", "body", code}}
		if !slices.Equal(r.Seen(), want) {
			t.Errorf("%s: saw %v", code, r.Seen())
		}
	}
}

// TestCarriesValue: in every place and form the request is refused.
// Promise: leaked-values-stop-here
func TestCarriesValue(t *testing.T) {
	c := []catalog.Credential{credential("API_KEY", "first/value+1", "header", "body")}
	s := New(append(c, credential("INACTIVE_KEY", "second/value+2", "header"), credential("THIRD_KEY", "Third-Value", "header")))
	long := strings.Repeat("x", 300<<10)
	for name, req := range map[string]*http.Request{
		"header":        request(t, "GET", "https://h/", "", "X-A", "is first/value+1"),
		"other":         request(t, "GET", "https://h/", "", "X-A", "second/value+2"),
		"basic":         request(t, "GET", "https://h/", "", "Authorization", basic("me:first/value+1")),
		"cookie":        request(t, "GET", "https://h/", "", "Cookie", "a=first%2Fvalue%2b1"),
		"path":          request(t, "GET", "https://h/first%2Fvalue+1", ""),
		"plain path":    request(t, "GET", "https://h/first/value+1/x", ""),
		"query":         request(t, "GET", "https://h/?q=first%2Fvalue%2B1", ""),
		"hex":           request(t, "GET", "https://h/?q=66697273742f76616c75652b31", ""),
		"body":          request(t, "POST", "https://h/", "is first/value+1"),
		"json":          request(t, "POST", "https://h/", `{"a":"first\/value\u002b1"}`),
		"base64 body":   request(t, "POST", "https://h/", base64.StdEncoding.EncodeToString([]byte(".first/value+1"))),
		"long body":     request(t, "POST", "https://h/", long+"first/value+1"),
		"name and more": request(t, "POST", "https://h/", "API_KEY first/value+1"),
		"header's name": request(t, "GET", "https://h/", "", "X-A-Third-Value", "1"),
		"host":          request(t, "GET", "https://third-value.h/", ""),
		"host in hex":   request(t, "GET", "https://a.54686972642d56616c7565.h/", ""),
	} {
		_, err := s.SwapRequest(req, Options{Allowed: c, Host: req.URL.Host})
		if err == nil && name == "long body" {
			_, err = io.ReadAll(req.Body)
		}
		if !errors.Is(err, ErrCarriesValue) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	req := request(t, "POST", "https://h/first/valu?q=first%2Fvalue%2A1", "first/value-1", "X-A", "first value+1")
	if _, err := s.SwapRequest(req, Options{Allowed: c, Host: "h"}); err != nil {
		t.Errorf("what is no value: %v", err)
	}
	req = request(t, "GET", "https://third-value.h/", "")
	if _, err := s.SwapRequest(req, Options{Allowed: c}); err != nil {
		t.Errorf("a host that an API names: %v", err)
	}
}

func TestRangeIsDropped(t *testing.T) {
	c := []catalog.Credential{credential("API_KEY", "first-value", "header", "body:x")}
	for _, tc := range []struct {
		header, body string
		kept         bool
	}{{"API_KEY", "", false}, {"nothing", "", true}, {"nothing", "x=1", false}} {
		req := request(t, "POST", "https://h/", tc.body, "Range", "bytes=0-3", "If-Range", "x", "X-Auth", tc.header)
		if _, err := New(c).SwapRequest(req, Options{Allowed: c}); err != nil {
			t.Fatal(err)
		}
		if kept := req.Header.Get("Range") != "" && req.Header.Get("If-Range") != ""; kept != tc.kept {
			t.Errorf("%+v: %v", tc, req.Header)
		}
	}
}

// TestRangeNames: the names that servers have for Range, in all spellings.
func TestRangeNames(t *testing.T) {
	c := []catalog.Credential{credential("API_KEY", "first-value", "header")}
	for name, kept := range map[string]string{ // the methods with which it is kept
		"Request-Range": "", "X-Range": "", "X_Range": "", "X-Ms-Range": "PUT", "x_ms_range": "PUT", "X-Ms-Range-Get-Content-Md5": "PUT",
		"Range-Unit": "", "X-Goog-Range": "PUT", "X-Amz-Range": "PUT", "Ranges": "", "If.Range": "", "RANGE": "",
		"Content-Range": "GET POST PUT", "X-Ms-Source-Range": "GET POST PUT", "X-Amz-Copy-Source-Range": "GET POST PUT",
		"X-Arrange": "GET POST PUT", "X-Orange": "GET POST PUT",
	} {
		for _, method := range []string{"GET", "POST", "PUT"} {
			req := request(t, method, "https://h/", "", "Authorization", "API_KEY")
			req.Header[name] = []string{"bytes=0-3"}
			if _, err := New(c).SwapRequest(req, Options{Allowed: c}); err != nil {
				t.Fatal(err)
			}
			if _, left := req.Header[name]; left != strings.Contains(kept, method) {
				t.Errorf("%s %s: left %t", method, name, left)
			}
		}
	}
}

func TestMessage(t *testing.T) {
	c := []catalog.Credential{credential("API_KEY", value, "header", "body:auth.token")}
	s := New(c)
	for _, tc := range []struct {
		in, want string
		text     bool
	}{
		{`{"auth":{"token":"API_KEY"}}`, `{"auth":{"token":"s3cr/t \"va+lue\" \u0026 <more>"}}`, true},
		{`{"auth":{"token":"API_KEY"}}`, `{"auth":{"token":"API_KEY"}}`, false},
		{"API_KEY", "API_KEY", true},
		{"", "", true},
	} {
		got, _, err := s.SwapMessage(tc.in, tc.text, Options{Allowed: c})
		if err != nil || got != tc.want {
			t.Errorf("%q became %q, %v", tc.in, got, err)
		}
	}
	if got, _, err := s.SwapMessage("it is "+value, true, Options{}); !errors.Is(err, ErrCarriesValue) || got != "" {
		t.Errorf("got %q, %v", got, err)
	}
	var none *Swapper
	if got, _, err := none.SwapMessage("x", true, Options{}); got != "x" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

package policy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/costtest"
	"github.com/codeforge-mcp/codeforge/proxy/internal/coding"
	"github.com/codeforge-mcp/codeforge/proxy/internal/formdata"
)

// fullNames are spellings that some server reads as an override, whatever its value, and plainNames those that count
// where the value is a method. Many thousand more were tried with PHP, Rack, qs and Python's parsers.
var (
	fullNames = []string{
		"_method", "_METHOD", "_mEthod", ".method", "[.method", "_method[", "_method[x", "_method[]", "_method[0]", "_method[x][y]", "_method]",
		"[_method]", "[[_method", "]_method", " _method", "   .method", "\t_method", "_method\x00", "_method\x00x", "_method\x00[", "__method",
		"$method", "-method", "_met\x00hod", "\x00_method", "data[_method]", "\u00a0_method", "\ufeff_method", "_me\u200bthod",
		"_HttpMethod", "_httpmethod", "_http_method", ".http.method", "$httpMethod", "_http[method",
		"X-HTTP-Method-Override", "x_http_method_override", "X.HTTP.Method.Override", "XHttpMethodOverride", "x http method override",
		"X-HTTP-Method", "X-Method-Override", "X-HTTP-MethodOverride", "HTTP-Method-Override", "method-override", "methodOverride",
		"__METHOD_OVERRIDE__", "X-Tunneled-Method", "alf_method", "X-Original-Method", "X_HTTP[Method_Override", "X-HTTP-Verb", "_verb",
	}
	plainNames = []string{"method", "METHOD", " method", "method[]", "[method]", "method\x00x", "httpMethod", "http_method", "HTTP-Method", "verb", "requestMethod", "X-Method", "x_method"}
	innocent   = []string{
		"", "a", "payment_method", "paymentMethod", "shipping[method]", "a[method]", "methods", "_methods", "_method_x", "x_method_y", "amethod",
		"Access-Control-Request-Method", "Accept", "Authorization", "X-Api-Method-Name", "method_id", "auth_method", "grant_type", "x", "_m", "ethod",
		"_methodology", strings.Repeat("_method", 50), strings.Repeat("x", 5000),
	}
)

// Promise: restricted-methods
func TestClaims(t *testing.T) {
	for want, names := range map[nameClaim][]string{fullClaim: fullNames, verbClaim: plainNames, noClaim: innocent} {
		for _, name := range names {
			if got := findClaim(name); got != want {
				t.Errorf("%.60q: %d, want %d", name, got, want)
			}
			if got := findClaim(escaped(name, "%%%02x")); got != want && !strings.ContainsAny(name, "%+") {
				t.Errorf("%.60q, percent-encoded: %d, want %d", name, got, want)
			}
			if got := findClaim(escaped(escaped(name, "%%%02X"), "%%%02x")); got != want && len(name) < 100 {
				t.Errorf("%.60q, twice: %d, want %d", name, got, want)
			}
		}
	}
	for _, name := range []string{"_method%zz", "%zz_method%00", "_metho%64%00%zz", "%u005fmethod", "%U005Fmetho%u0064", "x]http[override" + strings.Repeat("-", 5000), "x[x_http[override" + strings.Repeat("-", 200), strings.Repeat("+", 4000) + "_method", "_method%00" + strings.Repeat("x", 5000)} {
		if name != "_method%zz" && findClaim(name) != fullClaim && !strings.HasPrefix(name, "%zz") {
			t.Errorf("%.60q: %d", name, findClaim(name))
		}
	}
}

// TestLongNames: code cannot keep the proxy busy for minutes with the name of one field.
// Promise: bounded-work
func TestLongNames(t *testing.T) {
	for _, piece := range []string{"a[", "[", "-[", "a[]", "a%5b", "%", "%00", "+"} {
		for _, end := range []string{"", "]"} {
			form := strings.Repeat(piece, MaxForm/4/len(piece)) + end + "=x"
			costtest.RequireBounded(t, piece+end, time.Second, func() { ParameterOverrides(form) })
		}
	}
}

func escaped(s, verb string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, verb, s[i])
	}
	return b.String()
}

// TestEveryPlace: one table holds for headers, queries, forms, JSON, multipart bodies and those without a type.
// Promise: restricted-methods
func TestEveryPlace(t *testing.T) {
	restricted := func(list []string) bool {
		for _, m := range list {
			if strings.ToUpper(m) != "GET" {
				return true
			}
		}
		return false
	}
	for place, refused := range map[string]func(name, value string) bool{
		"header": func(name, value string) bool { return restricted(HeaderOverrides(http.Header{name: {value}})) },
		"query": func(name, value string) bool {
			return restricted(ParameterOverrides("a=b&" + escaped(name, "%%%02x") + "=" + value))
		},
		"path": func(name, value string) bool {
			return restricted(PathOverrides("/v1/x%3Fa=b%26" + escaped(escaped(name, "%%%02x"), "%%%02x") + "=" + value))
		},
		"cookie": func(name, value string) bool {
			return restricted(HeaderOverrides(http.Header{"Cookie": {"a=b; " + escaped(name, "%%%02x") + "=" + value}}))
		},
		"headers in a query": func(name, value string) bool {
			return restricted(ParameterOverrides("%24httpHeaders=A%3Ab%0D%0A" + escaped(name, "%%%02x") + "%3A+" + value + "%0D%0A"))
		},
		"form": func(name, value string) bool {
			more, err := sent(t, "application/x-www-form-urlencoded", "a=b;"+escaped(name, "%%%02x")+"="+value)
			return err != nil || restricted(more)
		},
		"no type": func(name, value string) bool {
			_, err := sent(t, "", "a=b&"+escaped(name, "%%%02x")+"="+value)
			return err != nil
		},
		"JSON": func(name, value string) bool {
			_, err := sent(t, "application/json", `{"a": {}, "`+escaped(name, `\u00%02x`)+`" : "`+value+`"}`)
			return err != nil
		},
		"multipart": func(name, value string) bool {
			_, err := sent(t, "multipart/form-data; boundary=b", parts(`name="`+name+`"`, value))
			return err != nil
		},
	} {
		for _, name := range fullNames {
			if !refused(name, "DELETE") {
				t.Errorf("%s: %q passed", place, name)
			}
		}
		for _, name := range plainNames {
			if !refused(name, "DELETE") || !refused(name, "delete") || !refused(name, "%2544elete") {
				t.Errorf("%s: %q passed", place, name)
			}
			clean := !strings.ContainsAny(name, "\x00") && name[0] != '['
			if (refused(name, "GET") || refused(name, "tools/call") || refused(name, "deletes")) && (clean || place != "multipart") {
				t.Errorf("%s: %q with an innocent value was refused", place, name)
			}
		}
		for _, name := range innocent {
			if name != "" && len(name) < 1000 && refused(name, "DELETE") {
				t.Errorf("%s: %.60q was refused", place, name)
			}
		}
	}
}

func parts(disposition, content string) string {
	return "--b\r\nContent-Disposition: form-data; name=\"z\"\r\n\r\ny\r\n--b\r\nContent-Disposition: form-data; " + disposition + "\r\n\r\n" + content + "\r\n--b--\r\n"
}

// sent sends a body, with a known and with an unknown length, in pieces of several sizes. A refused body must not have
// left complete.
func sent(t *testing.T, kind, body string) (more []string, err error) {
	t.Helper()
	for i, wrap := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.HalfReader, iotest.DataErrReader} {
		for _, known := range []bool{true, false} {
			r, _ := http.NewRequest(http.MethodPost, "https://a.test", io.NopCloser(wrap(strings.NewReader(body))))
			if r.ContentLength = -1; known {
				r.ContentLength = int64(len(body))
			}
			if kind != "" {
				r.Header.Set("Content-Type", kind)
			}
			list, now := BodyOverrides(r, permits)
			if now == nil {
				var left []byte
				left, now = io.ReadAll(r.Body)
				if whole := known && len(left) == len(body) || strings.Contains(string(left), "--\r\n"); now != nil && whole && len(body) > 0 {
					t.Errorf("%s: %.60q left whole: %q", kind, body, left)
				}
				if now == nil && known && r.ContentLength != int64(len(left)) && len(left) <= coding.ExactUpTo {
					t.Errorf("%s: %.60q has length %d, not %d", kind, body, len(left), r.ContentLength)
				}
			}
			if (i > 0 || !known) && (fmt.Sprint(now) != fmt.Sprint(err) || fmt.Sprint(list) != fmt.Sprint(more)) {
				t.Errorf("%s: %.60q: %v, %v by one way, %v, %v by another", kind, body, more, err, list, now)
			}
			more, err = list, now
		}
	}
	return more, err
}

// TestBodies: what is an override, what is ambiguous, and what passes.
// Promise: restricted-methods
func TestBodies(t *testing.T) {
	const jsonType, multi, form = "application/json", "multipart/form-data; boundary=b", "application/x-www-form-urlencoded"
	var ambiguous *formdata.Error
	for _, c := range []struct{ kind, body, want string }{
		{jsonType, `{"a": [1, -2.5e7, true, null, "_method", {"b": "_method"}], "c": "\"_method\": \"DELETE\""}`, "passes"},
		{jsonType, `{"code": "fetch(u, {method: \"DELETE\"})", "x": "{\"method\":\"DELETE\"}"}`, "passes"},
		{jsonType, `{"jsonrpc": "2.0", "method": "tools/call", "params": {"method": "get"}}`, "passes"},
		{jsonType, "{\"a\":1}\n{\"b\":2}\n", "passes"}, {jsonType, "\ufeff{}", "passes"}, {jsonType, "", "passes"}, {jsonType, `"DELETE"`, "passes"},
		{jsonType, `{"method": "x", "y": "DELETE"}`, "passes"},
		{jsonType, `{"method": "dele\u0074e"}`, "override"}, {jsonType, `{"requests": [{"method": "DELETE", "url": "/a"}]}`, "override"},
		{jsonType, `{"method": ["DELETE"]}`, "override"}, {jsonType, `{"_method" :null}`, "override"}, {jsonType, `[{"_METHOD":1}]`, "override"},
		{jsonType, `{"\u005f\u006D\u0065\u0074\u0068\u006f\u0064": 1}`, "override"}, {jsonType, `{"a":"` + strings.Repeat("x", 70000) + `","_method":1}`, "override"},
		{"application/vnd.api+json; charset=utf-8", `{"_method":1}`, "override"},
		{jsonType, `{_method: 1}`, "ambiguous"}, {jsonType, `{'_method': 1}`, "ambiguous"}, {jsonType, `{"a":/*1,"_method":*/"DELETE"}`, "ambiguous"},
		{jsonType, "{\"a\":1 // x\n}", "ambiguous"}, {jsonType, "{# x\n}", "ambiguous"}, {jsonType, `{"a": NaN}`, "ambiguous"}, {jsonType, `{"\x5fmethod": 1}`, "ambiguous"},
		{jsonType, `{"_\method": 1}`, "ambiguous"}, {jsonType, "{\"_me\nthod\": 1}", "ambiguous"}, {jsonType, "{\x00\"\x00_\x00", "ambiguous"},
		{jsonType, "\xff\xfe{\x00", "ambiguous"}, {jsonType, "_method=DELETE", "ambiguous"}, {jsonType, `{"a": "`, "ambiguous"}, {jsonType, `{+1: 2}`, "ambiguous"},
		{jsonType, `{"a": 0x10}`, "ambiguous"}, {jsonType, `{1: "_method"}`, "ambiguous"}, {"application/json; charset=utf-16", "{}", "ambiguous"},
		{"application/json, text/plain", "{}", "ambiguous"},
		{jsonType, `{"a": 1,}`, "ambiguous"}, {jsonType, `{"a" 1}`, "ambiguous"}, {jsonType, `{"a": 1`, "ambiguous"}, {jsonType, `[1}`, "ambiguous"},
		{jsonType, `{"a": 1} "_method"`, "ambiguous"}, {jsonType, `"_method" {"a": "DELETE"}`, "ambiguous"}, {jsonType, "{}{} [\"x\"]", "passes"},
		{"application/json-seq", "\x1e{\"a\": 1}\n\x1e{\"a\": 2}\n", "passes"}, {"application/json-seq", "\x1e{}\n\x1e{\"_method\": 2}\n", "override"},

		{multi, parts(`name="x"`, "_method=DELETE"), "passes"}, {multi, parts(`name="x"; filename="_method"`, "DELETE"), "passes"},
		{multi, parts(`name="method"`, strings.Repeat("DELETE", 100000)), "passes"}, {multi, parts(`name="method"; filename="f"`, "DELETE"), "override"},
		{multi, parts(`name=_method`, "DELETE"), "override"}, {multi, parts(`name="%5fmethod"`, "DELETE"), "override"},
		{multi, parts(`name="_m\ethod"`, "DELETE"), "ambiguous"}, {multi, parts(`name*=utf-8''_method`, "DELETE"), "ambiguous"},
		{multi, parts(`name="a"; name*=utf-8''_method`, "DELETE"), "ambiguous"}, {multi, parts("name=\"_method\x00x\"", "DELETE"), "ambiguous"},
		{multi, parts("name=\"a\"\r\nContent-Disposition: form-data; name=\"_method\"", "DELETE"), "ambiguous"},
		{multi, parts(`name="a"; filename="x; name=_method"`, "DELETE"), "ambiguous"},
		{multi, "_method=DELETE", "ambiguous"}, {multi, `{"_method": "DELETE"}`, "ambiguous"},
		{"multipart/form-data; boundary=b; boundary=c", parts(`name="a"`, "x"), "ambiguous"}, {"multipart/form-data", parts(`name="a"`, "x"), "ambiguous"},
		{"multipart/mixed; boundary=b", parts(`name="_method"`, "DELETE"), "override"}, // Rack reads forms in it
		{"multipart/related; boundary=b", "--b\r\nContent-ID: <_method>\r\n\r\nDELETE\r\n--b--", "override"},
		{"multipart/mixed; boundary=b", "--b\r\nContent-Disposition: attachment; filename=\"_method\"\r\n\r\nDELETE\r\n--b--", "override"},
		{"multipart/mixed; boundary=b", "--b\r\nContent-Type: application/http\r\n\r\nGET / HTTP/1.1\r\n\r\n\r\n--b--", "passes"},
		{"multipart/related; boundary=b", "--b\r\nContent-Type: application/json\r\n\r\n{}\r\n--b\r\nContent-Type: image/png\r\n\r\n\x89PNG\r\n--b--", "passes"},

		{form, "a=b&c=d", "passes"}, {form, "a=_method&method=x&b=\"_method\"", "passes"}, {form, `{"_method": "DELETE"}`, "override"},
		{form + "; charset=utf-8", "a=b", "passes"}, {form + "; charset=cp037", "%6D%94%85%A3%88%96%84=DELETE", "ambiguous"}, {form + "; charset=utf-7", "+AF8-method=x", "ambiguous"},
		{"application/connect+json", "\x00\x00\x00\x00\x02{}", "passes"}, {"application/grpc+json", "\x00\x00\x00\x00\x02{}", "passes"},
		{"text/plain", `{"_method": "GET"}`, "override"}, {"text/plain", `{'_method' : "GET"}`, "override"}, {"text/plain", `{"a": "_method", "b": 1}`, "passes"},
		{"text/plain", "{\x00\"\x00_\x00m\x00e\x00t\x00h\x00o\x00d\x00\"\x00:\x00", "override"}, {"text/plain", `say "_method" or method: "DELETE"`, "passes"},
		{"application/octet-stream", `x"\u005fmethod":`, "override"}, {"text/csv; charset=utf-16", "\x00x", "passes"},
		{"", "a=b&_method", "passes"}, {"", "x=1&\n_method=PUT", "override"}, {"", "method=DELETE", "override"}, {"", "method=GET", "passes"}, {"", `{"_method": 1}`, "override"},
		{"", "a;   " + strings.Repeat("+", 3000) + "_method=1", "override"}, {"", "\x00\xff=_method\n", "passes"},
	} {
		more, err := sent(t, c.kind, c.body)
		got := "passes"
		switch {
		case errors.As(err, &ambiguous):
			got = "ambiguous"
		case errors.Is(err, ErrOverrideUnseen) || len(more) > 0:
			got = "override"
		case err != nil:
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %.100q: %s, want %s", c.kind, c.body, got, c.want)
		}
	}
}

// TestLongParts: a long body of known length keeps it, and streams.
func TestLongParts(t *testing.T) {
	body := strings.ReplaceAll(parts(`name="x"`, strings.Repeat("x", coding.ExactUpTo)), "--b", "--boundary-that-is-long-enough-for-it")
	r, _ := http.NewRequest(http.MethodPost, "https://a.test", strings.NewReader(body))
	r.Header.Set("Content-Type", "multipart/form-data; boundary=boundary-that-is-long-enough-for-it")
	if _, err := BodyOverrides(r, permits); err != nil || r.ContentLength != int64(len(body)) {
		t.Fatal(r.ContentLength, err)
	}
	got, err := io.ReadAll(r.Body)
	_, fresh, _ := strings.Cut(r.Header.Get("Content-Type"), "boundary=")
	if err != nil || string(got) != strings.ReplaceAll(body, "boundary-that-is-long-enough-for-it", fresh) || strings.Contains(body, fresh) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestPaddedVerbs: a method is one however many spaces are around it, which servers trim, in each place.
// Promise: restricted-methods
func TestPaddedVerbs(t *testing.T) {
	for _, n := range []int{1, 200, 300, 600, 5000} {
		for _, space := range []string{" ", "\t", "\n"} {
			pad := strings.Repeat(space, n)
			value := pad + "delete" + pad
			escaped := url.QueryEscape(value)
			if got := ParameterOverrides("a=b&method=" + escaped); len(got) != 1 {
				t.Errorf("query, %d of %q: %q", n, space, got)
			}
			for kind, text := range map[string]string{
				"application/json":                  `{"method":"` + strings.NewReplacer("\t", `\t`, "\n", `\n`).Replace(value) + `"}`,
				"":                                  "method=" + escaped,
				"application/x-www-form-urlencoded": "method=" + escaped,
				"multipart/form-data; boundary=b":   "--b\r\nContent-Disposition: form-data; name=\"method\"\r\n\r\n" + value + "\r\n--b--\r\n",
			} {
				r, _ := http.NewRequest("POST", "https://a.test", strings.NewReader(text))
				if kind != "" {
					r.Header.Set("Content-Type", kind)
				}
				more, err := BodyOverrides(r, permits)
				if err == nil {
					_, err = io.ReadAll(iotest.OneByteReader(r.Body))
				}
				if err == nil && len(more) == 0 {
					t.Errorf("%q, %d of %q: passes", kind, n, space)
				}
			}
		}
	}
}

// TestNoSecondBody: a request that is guarded has no second body that is not.
// Promise: restricted-methods
func TestNoSecondBody(t *testing.T) {
	for _, kind := range []string{"", "application/json", "text/plain", "application/x-www-form-urlencoded"} {
		r, _ := http.NewRequest("POST", "https://a.test", strings.NewReader(`{"_method": "DELETE"}`))
		r.Header.Set("Content-Type", kind)
		_, _ = BodyOverrides(r, permits)
		if r.GetBody != nil {
			t.Errorf("%q: a body that nobody looks at is sent where a connection is tried again", kind)
		}
	}
}

// TestBrokenBody: a body that breaks off is not judged by its beginning.
func TestBrokenBody(t *testing.T) {
	broken := errors.New("the connection was reset")
	for _, kind := range []string{"application/x-www-form-urlencoded", "application/json", "multipart/form-data; boundary=b", ""} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://a.test", io.MultiReader(strings.NewReader("a=b"), iotest.ErrReader(broken)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", kind)
		if kind == "" {
			r.Header.Del("Content-Type")
		}
		_, err = BodyOverrides(r, func(string) bool { return false })
		if err == nil {
			_, err = io.ReadAll(r.Body) // it is judged while it is sent
		}
		if err == nil {
			t.Errorf("%q: it counts as whole", kind)
		}
	}
}

// TestFormBound: a form's fields are read at both bounds of its size.
func TestFormBound(t *testing.T) {
	const kind = "application/x-www-form-urlencoded"
	fill := strings.Repeat("x", MaxForm-len("a=&_method=PUT"))
	if more, err := sent(t, kind, "a="+fill+"&_method=PUT"); err != nil || len(more) != 1 {
		t.Errorf("a form of the largest size: %v, %v", more, err)
	}
	if _, err := sent(t, kind, "a="+fill+"x&_method=PUT"); !errors.Is(err, errLongForm) {
		t.Errorf("a larger one: %v", err)
	}
}

// TestPathOverridesOnce lists an override of a plain path once.
func TestPathOverridesOnce(t *testing.T) {
	for path, want := range map[string]int{"/a?_method=DELETE": 1, "/a%3F_method=DELETE": 1, "/a%253F_method=DELETE": 1, "/a": 0} {
		if got := PathOverrides(path); len(got) != want {
			t.Errorf("%s: %q", path, got)
		}
	}
}

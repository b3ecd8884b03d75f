package swap

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/costtest"
)

// TestCookies: a name is swapped as the whole value of the declared cookie. A Cookie header that two servers could split
// differently is refused.
// Promise: declared-places-only
func TestCookies(t *testing.T) {
	const v = "s%3Aabc.d/e+f="
	c := []catalog.Credential{credential("SESSION_KEY", v, "cookie:sid"), credential("HEADER_KEY", "header-value", "header"), credential("ODD_KEY", "a;b=c", "cookie:odd")}
	for in, want := range map[string]struct {
		out  string
		code string
		err  error
	}{
		"sid=SESSION_KEY":                  {"sid=" + v, "", nil},
		"a=b;sid=SESSION_KEY; c=d==":       {"a=b;sid=" + v + "; c=d==", "", nil},
		"sid= SESSION_KEY":                 {"", "", errCookies},
		"sid=SESSION_KEY;":                 {"", "", errCookies},
		"a=b":                              {"a=b", "", nil},
		`a="b, c"; d`:                      {`a="b, c"; d`, "", nil},
		"SID=SESSION_KEY":                  {"SID=SESSION_KEY", CodeUndeclared, nil},
		"other=SESSION_KEY":                {"other=SESSION_KEY", CodeUndeclared, nil},
		"sid=HEADER_KEY":                   {"sid=HEADER_KEY", CodeUndeclared, nil},
		"sid=OTHER_KEY":                    {"sid=OTHER_KEY", "", nil},
		`sid="SESSION_KEY"`:                {`sid="SESSION_KEY"`, CodeSink, nil},
		"sid=s:SESSION_KEY":                {"sid=s:SESSION_KEY", CodeSink, nil},
		"SESSION_KEY":                      {"SESSION_KEY", CodeSink, nil},
		"SESSION_KEY=SESSION_KEY":          {"SESSION_KEY=SESSION_KEY", CodeUndeclared, nil},
		"a=b, sid=SESSION_KEY":             {"a=b, sid=SESSION_KEY", CodeSink, nil},
		"sid=SESSION_KEY, a=b":             {"sid=SESSION_KEY, a=b", CodeSink, nil},
		`a="b; sid=SESSION_KEY; c="`:       {"", "", errCookies},
		"sid=SESSION_KEY; a=b,c":           {"", "", errCookies},
		"sid=SESSION_KEY; Sid=x":           {"", "", errCookies},
		"a.b=1; sid=SESSION_KEY; a_b=2":    {"", "", errCookies},
		"$Version=1; sid=SESSION_KEY":      {"", "", errCookies},
		"a[]=1; sid=SESSION_KEY":           {"", "", errCookies},
		"sid=SESSION_KEY; a=é":             {"", "", errCookies},
		"sid=SESSION_KEY; sid=SESSION_KEY": {"", "", errCookies},
		"odd=ODD_KEY":                      {"", "", errCookieValue},
	} {
		req := request(t, "GET", "https://h/", "", "Cookie", in)
		r, err := New(c).SwapRequest(req, Options{Allowed: c})
		if want.err != nil {
			if !errors.Is(err, want.err) {
				t.Errorf("%s: %v, want %v", in, err, want.err)
			}
			continue
		}
		code := ""
		for _, seen := range r.Seen() {
			code = seen.Code
		}
		if got := req.Header.Get("Cookie"); err != nil || got != want.out || code != want.code {
			t.Errorf("%s: %q, %s, %v, want %q, %s", in, got, code, err, want.out, want.code)
		}
		if in == "sid=SESSION_KEY" && (len(r.Swapped()) != 1 || r.Swapped()[0].In != "cookie:sid") {
			t.Errorf("the report says %v", r.Swapped())
		}
	}
	req := request(t, "GET", "https://h/", "", "Cookie", "sid=SESSION_KEY", "Cookie", "a=b")
	if _, err := New(c).SwapRequest(req, Options{Allowed: c}); !errors.Is(err, errTwice) {
		t.Errorf("two headers %v: %v", req.Header, err)
	}
	for _, name := range []string{"Cookie2", "Set-Cookie", "X-Cookie", "Coo!kie"} {
		req := request(t, "GET", "https://h/", "", name, "sid=SESSION_KEY")
		if _, err := New(c).SwapRequest(req, Options{Allowed: c}); err != nil || req.Header[http.CanonicalHeaderKey(name)][0] != "sid=SESSION_KEY" {
			t.Errorf("%s: %v %v", name, req.Header, err)
		}
	}
}

// TestCookiesLinear: the check of a Cookie header takes time in proportion to its length.
// Promise: bounded-work
func TestCookiesLinear(t *testing.T) {
	costtest.RequireLinear(t, 3000, func(n int) func() {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "c%06d=;", i)
		}
		return func() {
			if !isCookieList(b.String() + "sid=SESSION_KEY") {
				t.Error("the list is refused")
			}
		}
	})
}

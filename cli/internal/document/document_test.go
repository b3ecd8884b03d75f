package document

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/cli/internal/yamltree"
)

func TestParseServer(t *testing.T) {
	for text, want := range map[string]string{
		"https://a.test/v1/":      "https://a.test/v1 a.test",
		"https://a.test:443/":     "https://a.test a.test",
		"http://a.test:80":        "http://a.test a.test",
		"https://a.test:80/x":     "the host of https://a.test:80/x is a name with port 443 or 80",
		"http://a.test:443":       "the host of http://a.test:443 is a name with port 443 or 80",
		"https://a.test/x?q=1#f":  "https://a.test/x a.test",
		"https://u:p@a.test/":     "a server's URL has a user in it",
		"ftp://a.test/":           "ftp://a.test/ is a URL of neither https nor http",
		"https:a.test":            "https:a.test is not a URL with a host",
		"/v1":                     "/v1 is not a URL with a host",
		"https://%zz":             "https://%zz is not a URL with a host",
		"https://*.a.test/":       "the host of https://*.a.test/ is a wildcard",
		"https://a_b.test:99999/": "the host of https://a_b.test:99999/ is ",
	} {
		server, host, err := ParseServer(text)
		got := server + " " + host
		if err != nil {
			got = err.Error()
		}
		if got != want && (err == nil || !strings.HasPrefix(got, want)) || err != nil && server+host != "" {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestFinish sorts the types and counts. A document without operations is not imported.
func TestFinish(t *testing.T) {
	d := &ImportedDocument{Types: []operation.Line{{Type: "b"}, {Type: "a"}}}
	if err := d.Finish(); !errors.Is(err, ErrNoOperations) {
		t.Errorf("without operations: %v", err)
	}
	d.Operations = make([]operation.Line, 3)
	d.Scheme.Tokens = []Token{{Name: "T", Place: "header:X", Value: "T"}}
	if err := d.Finish(); err != nil || d.Types[0].Type != "a" || d.Head.Operations != 3 || d.Head.Types != 2 || len(d.Head.Auth) != 1 || d.Head.Auth[0].Place != "header:X" {
		t.Errorf("%+v, %v", d, err)
	}
	for i := range 2 * maxNotes {
		d.AddNote("note %d", i/2)
		d.AddHost(fmt.Sprint(i / 2))
	}
	d.AddNote("one more")
	if len(d.Notes) != maxNotes || d.Notes[1] != "note 1" || len(d.Hosts) != maxNotes {
		t.Errorf("%d notes, %d hosts", len(d.Notes), len(d.Hosts))
	}
}

// TestWays leaves out a way to authenticate that config.json cannot express.
func TestWays(t *testing.T) {
	header, query, cookie := HeaderWay("h", "X-Key", "Key%: "), QueryWay("q", "key"), CookieWay("c", "sid")
	for _, c := range []struct {
		way       AuthWay
		why, want string
	}{
		{BearerWay("b"), "", "header:Authorization=Bearer A_AUTH_TOKEN"}, {header, "", "header:X-Key=Key: A_API_KEY"}, {query, "", "query:key=A_API_KEY"},
		{cookie, "", "cookie:sid=A_SESSION_KEY"}, {BasicWay("b"), "", `header:Authorization=Basic ${btoa("A_USERNAME:A_PASSWORD")} header:Authorization=Basic ${btoa("A_USERNAME:A_PASSWORD")}`},
		{HeaderWay("h", "a b", ""), "it is sent in the header a b: ", ""}, {QueryWay("q", "a\u202eb"), "it is sent in a parameter with a name that cannot be in config.json", ""},
		{QueryWay("q", ""), "it is sent in a parameter", ""}, {CookieWay("c", "a;b"), "it is sent in a cookie with a name", ""}, {UnusableWay("u", "why"), "why", ""},
		{CombineWays([]AuthWay{header, query}), "", "header:X-Key=Key: A_API_KEY query:key=A_API_KEY_2"},
		{CombineWays([]AuthWay{header, header}), "", "header:X-Key=Key: A_API_KEY"},
		{CombineWays([]AuthWay{header, HeaderWay("k", "X-Key", "")}), "two credentials in one place", ""},
		{CombineWays([]AuthWay{BasicWay("a"), BearerWay("b")}), "two credentials in one place", ""},
		{CombineWays([]AuthWay{BasicWay("a"), query}), "", `header:Authorization=Basic ${btoa("A_USERNAME:A_PASSWORD")} header:Authorization=Basic ${btoa("A_USERNAME:A_PASSWORD")} query:key=A_API_KEY`},
		{CombineWays([]AuthWay{UnusableWay("u", "why"), UnusableWay("v", "else")}), "why", ""},
	} {
		if !strings.HasPrefix(c.way.Why, c.why) || (c.why == "") != (c.way.Why == "") {
			t.Errorf("%s: %q, want %q", c.way.Name, c.way.Why, c.why)
		}
		s, err := c.way.NameTokens("a", nil)
		var got []string
		for _, token := range s.Tokens {
			got = append(got, token.Place+"="+token.Value)
		}
		if text := strings.Join(got, " "); c.why == "" && (text != c.want || err != nil || s.Name != c.way.Name) {
			t.Errorf("%s: %s, %v, want %s", c.way.Name, text, err, c.want)
		}
	}
	if w := CombineWays([]AuthWay{header, query}); w.Name != "h+q" || w.Rank != 5 {
		t.Errorf("%+v", w)
	}
	both := CombineWays([]AuthWay{header, query})
	for want, names := range map[string][]string{
		"": {"MY_TOKEN"}, "3 token names, and h+q has 2": {"AAAAA", "BBBBB", "CCCCC"}, "the token name AAAAA": {"AAAAA", "AAAAA"}, "the token name bad": {"bad"},
	} {
		s, err := both.NameTokens("a", names)
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) || err == nil && (s.Tokens[0].Name != "MY_TOKEN" || s.Tokens[1].Name != "A_API_KEY") {
			t.Errorf("%v: %+v, %v", names, s, err)
		}
	}
}

func TestReadSource(t *testing.T) {
	redirects := 0
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/page":
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprint(w, " <!doctype html>")
		case "/text":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "{}")
		case "/xml":
			w.Header().Set("Content-Type", "text/xml")
			fmt.Fprint(w, "<a/>")
		case "/loop":
			if redirects--; redirects >= 0 {
				http.Redirect(w, r, "/loop", http.StatusFound)
				return
			}
			fmt.Fprint(w, "{}")
		default:
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	defer web.Close()
	secure := httptest.NewTLSServer(web.Config.Handler)
	defer secure.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "a.json")
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, c := range []struct {
		name, want string
		redirects  int
	}{
		{"a.json", file + " {}", 0}, {file, file + " {}", 0}, {dir, "reading the document: " + dir + " is not a regular file", 0},
		{"none.json", "reading the document: ", 0}, {"-", "- typed", 0},
		{web.URL + "/text", web.URL + "/text {}", 0}, {web.URL + "/xml", web.URL + "/xml <a/>", 0}, {web.URL + "/page", "a page of HTML at " + web.URL, 0},
		{web.URL + "/none", strings.TrimPrefix(web.URL, "http://") + " answered 403; want the URL of a document", 0},
		{web.URL + "/loop", web.URL + "/loop {}", 9}, {web.URL + "/loop", "fetching the document: ", 10},
		{secure.URL + "/text", "fetching the document: ", 0},
	} {
		redirects = c.redirects
		s, err := ReadSource(t.Context(), c.name, strings.NewReader("typed"))
		got := s.Name + " " + string(s.Text)
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.HasPrefix(got, c.want)) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	broken := errors.New("broken")
	if _, err := ReadSource(t.Context(), "-", iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("a broken input: %v", err)
	}
	for size, wrong := range map[int]bool{yamltree.MaxSize: false, yamltree.MaxSize + 1: true} {
		text, err := readLimited(strings.NewReader(strings.Repeat(" ", size)))
		if (err != nil) != wrong || err == nil && len(text) != size {
			t.Errorf("%d bytes: %d, %v", size, len(text), err)
		}
	}
}

func TestCleanLine(t *testing.T) {
	for text, want := range map[string]string{
		"a\u200b\u202eb\x1bc": "abc", " a \t\n b ": "a b", "\u202e a": "a", "&lt;b&gt;x": "x", "&amp;lt;b&amp;gt;x": "x", "[a](http://b) **c**": "a c",
		"a\xff": "a", "it\ufffds": "its", strings.Repeat("a", 30): strings.Repeat("a", 17) + "…",
	} {
		if got := CleanLine(text, 20); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"# One. Two.": "One.", "Lists:\n- a": "Lists", "One\n\nTwo": "One", "One\n- two": "One", ". x": ". x", "<b>. Two": ".", "Which? This": "Which?", "no end": "no end", "": "",
	} {
		if got := FirstSentence(text, 20); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

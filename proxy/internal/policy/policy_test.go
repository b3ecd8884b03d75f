package policy

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/costtest"
	"github.com/codeforge-mcp/codeforge/internal/readertext"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// run is the set of APIs a run was narrowed to; nil is all.
type run []string

func (r run) CanUse(api string) bool { return r == nil || slices.Contains(r, api) }

func (r run) IsClosed() bool { return false }

func (run) ClientType() ClientType { return ClientRun }

func load(t testing.TB, apis map[string]string) *catalog.Catalog {
	t.Helper()
	dir := t.TempDir()
	for name, text := range apis {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, problems := catalog.Load(dir, catalog.Options{})
	if len(problems.Errors()) > 0 {
		t.Fatal(problems)
	}
	return c
}

func testCatalog(t *testing.T) *catalog.Catalog {
	api := func(domain, token, extra string) string {
		creds := ""
		if token != "" {
			creds = `"` + token + `": "value-of-` + strings.ToLower(token) + `"`
		}
		return `{"description": "d", "domains": ["` + domain + `"], "credentials": {` + creds + `}` + extra + `}`
	}
	return load(t, map[string]string{
		"plain":   api("open.test", "", ""),
		"first":   api("shared.test", "FIRST_TOKEN", `, "restricted_methods": ["DELETE"]`),
		"second":  api("shared.test", "SECOND_TOKEN", `, "restricted_methods": ["PUT"]`),
		"wild":    api("*.wild.test", "WILD_TOKEN", ""),
		"exact":   api("x.wild.test", "EXACT_TOKEN", ""),
		"off":     api("off.test", "OFF_TOKEN", `, "active": false`),
		"insec":   api("insec.test", "INSEC_TOKEN", `, "allow_http": true`),
		"allowed": api("allowed.test", "ALLOWED_TOKEN", `, "allowed_methods": ["GET", "PROPFIND"]`),
	})
}

// Promise: default-deny, restricted-methods
func TestDecide(t *testing.T) {
	c := testCatalog(t)
	for _, row := range []struct {
		host    string
		plain   bool // over HTTP
		methods string
		upgrade string
		run     run
		yolo    bool
		code    string // empty: allowed
		apis    string // of an allowed request
	}{
		{host: "open.test", methods: "GET", apis: "plain"},
		{host: "open.test", methods: "POST GET", apis: "plain"},
		{host: "open.test", plain: true, methods: "GET", apis: "plain"}, // no credential to protect
		{host: "shared.test", methods: "GET", apis: "first second"},
		{host: "shared.test", methods: "GET", run: run{"second"}, apis: "second"},
		{host: "a.wild.test", methods: "DELETE", apis: "wild"},
		{host: "x.wild.test", methods: "GET", apis: "exact"},
		{host: "insec.test", plain: true, methods: "GET", apis: "insec"},
		{host: "allowed.test", methods: "PROPFIND", apis: "allowed"},
		{host: "other.test", methods: "DELETE", yolo: true},
		{host: "other.test", plain: true, methods: "GET", yolo: true},
		{host: "open.test", methods: "GET", upgrade: "WebSocket", apis: "plain"},

		{host: "other.test", methods: "GET", code: CodeHostUnknown},
		{host: "b.a.wild.test", methods: "GET", code: CodeHostUnknown},
		{host: "wild.test", methods: "GET", code: CodeHostUnknown},
		{host: "", methods: "GET", yolo: true, code: CodeHostInvalid},
		{host: "off.test", methods: "GET", code: CodeAPIInactive},
		{host: "off.test", methods: "GET", yolo: true, code: CodeAPIInactive},
		{host: "open.test", methods: "GET", run: run{"first"}, code: CodeAPINotInRun},
		{host: "open.test", methods: "GET", run: run{"first"}, yolo: true, code: CodeAPINotInRun},
		{host: "x.wild.test", methods: "GET", run: run{"wild"}, code: CodeAPINotInRun},
		{host: "shared.test", methods: "DELETE", code: CodeMethodRestricted},
		{host: "shared.test", methods: "PUT", run: run{"first"}, code: CodeMethodRestricted}, // the other API's rule
		{host: "shared.test", methods: "POST DELETE", code: CodeMethodRestricted},
		{host: "shared.test", methods: "DELETE GET", code: CodeMethodRestricted},
		{host: "shared.test", methods: "MKCOL", code: CodeMethodUnknown},
		{host: "shared.test", methods: "delete", code: CodeMethodRestricted},
		{host: "allowed.test", methods: "POST", code: CodeMethodRestricted},
		{host: "allowed.test", methods: "GET", upgrade: "websocket", code: CodeMethodRestricted}, // it counts as a POST too
		{host: "allowed.test", methods: "MKCOL", code: CodeMethodRestricted},
		{host: "open.test", methods: "TRACE", code: CodeMethodRefused},
		{host: "open.test", methods: "CONNECT", code: CodeMethodRefused},
		{host: "open.test", methods: "GET Trace", code: CodeMethodRefused},
		{host: "open.test", methods: "GET,POST", code: CodeMethodRefused},
		{host: "open.test", methods: "", code: CodeBadRequest},
		{host: "other.test", methods: "TRACE", yolo: true, code: CodeMethodRefused},
		{host: "shared.test", plain: true, methods: "GET", code: CodePlainHTTP},
		{host: "open.test", methods: "GET", upgrade: "h2c", code: CodeUpgradeRefused},
		{host: "open.test", methods: "GET", upgrade: "websocket,h2c", code: CodeUpgradeRefused},
		{host: "open.test", methods: "POST", upgrade: "websocket", code: CodeUpgradeRefused},
	} {
		q := Request{TLS: !row.plain, Methods: strings.Fields(row.methods), Upgrade: row.upgrade}
		if row.host != "" {
			var err error
			if q.Host, err = catalog.ParseHost(row.host); err != nil {
				t.Fatal(err)
			}
		}
		v := Rules{Catalog: c, YOLO: row.yolo}.Decide(row.run, q)
		got := []string{}
		for _, a := range v.APIs {
			got = append(got, a.Name)
		}
		if v.Allow != (row.code == "") || v.Refusal.Code != row.code || strings.Join(got, " ") != row.apis {
			t.Errorf("%+v: allow %t, code %q, APIs %v", row, v.Allow, v.Refusal.Code, got)
		}
		if !v.Allow && (v.Status < 400 || v.Refusal.Error == "" || v.Refusal.Hint == "") {
			t.Errorf("%+v: the refusal is %d %+v", row, v.Status, v.Refusal)
		}
	}
	if (Verdict{}).Allow {
		t.Error("the zero verdict allows")
	}
}

// TestNearest: the refusal of a mistyped host names the catalog's nearest. Other hosts get the command that adds them, under
// a name that its owner registered. Look-alikes get none.
func TestNearest(t *testing.T) {
	r := Rules{Catalog: testCatalog(t)}
	for typed, near := range map[string]string{
		"opem.test": "Did you mean open.test?", "sharedd.test": "Did you mean shared.test?",
		"faraway.example":               "codeforge api add faraway --domain faraway.example",
		"api.stripe.com.evil.co.uk":     "codeforge api add evil --domain api.stripe.com.evil.co.uk",
		"xn--strip-5of.faraway.example": "look-alike",
	} {
		h, err := catalog.ParseHost(typed)
		if err != nil {
			t.Fatal(err)
		}
		v := r.Decide(run(nil), Request{Host: h, TLS: true, Methods: []string{"GET"}})
		for _, hint := range []string{v.Refusal.Hint, v.Refusal.Person} {
			if !strings.Contains(hint, near) || strings.Contains(hint, "api add") && !strings.HasSuffix(hint, near) {
				t.Errorf("%s: %s", typed, hint)
			}
		}
	}
}

// TestUnknownCost: refusing a host that no API has takes hardly longer with 1,000 APIs than with one.
func TestUnknownCost(t *testing.T) {
	rules := func(n int) Rules {
		apis := map[string]string{}
		for i := range n {
			apis[fmt.Sprintf("api%d", i)] = fmt.Sprintf(`{"description": "d", "domains": ["api%d.example.com"]}`, i)
		}
		return Rules{Catalog: load(t, apis)}
	}
	h := host(t, "api0.example.org")
	cost := func(r Rules) time.Duration {
		least := time.Hour
		for range 5 {
			least = min(least, costtest.MeasureTime(func() {
				for range 200 {
					r.Decide(run(nil), Request{Host: h, TLS: true, Methods: []string{"GET"}})
				}
			}))
		}
		return least
	}
	few, many := cost(rules(1)), cost(rules(1000))
	t.Logf("200 refusals: %v among one API, %v among 1,000", few, many)
	if limit := 5 * time.Millisecond; many > few+limit && !testkit.Race || many > few+10*limit {
		t.Errorf("200 refusals take %v among one API, %v among 1,000", few, many)
	}
}

// TestSentences: refusals are constants that never tell the model to change a setting, and speak to a person as to one.
func TestSentences(t *testing.T) {
	for code, s := range refusals {
		if s.error == "" || s.hint == "" || s.status < 400 {
			t.Errorf("%s: %+v", code, s)
		}
		hint := readertext.NewText(s.hint)
		for _, word := range []string{"config.json", "YOLO", ".env", "you can allow", "set the"} {
			if strings.Contains(hint.Model, word) {
				t.Errorf("%s tells the model about %q", code, word)
			}
		}
		for _, word := range []string{"the user", "The user", "list_apis", "execute_code"} {
			if strings.Contains(hint.Person, word) {
				t.Errorf("%s tells a person about %q", code, word)
			}
		}
	}
}

// TestHeaderOverrides: each header from which a framework takes the method counts, in any case and with underscores.
// Promise: restricted-methods
func TestHeaderOverrides(t *testing.T) {
	for _, name := range []string{
		"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X-Original-Method", "X-HTTP-MethodOverride", "X-Method",
		"X-Original-HTTP-Method",
	} {
		for _, written := range []string{name, strings.ToLower(name), strings.ToUpper(name), strings.ReplaceAll(name, "-", "_")} {
			if got := HeaderOverrides(http.Header{written: {"GET", "DELETE"}}); strings.Join(got, " ") != "GET DELETE" {
				t.Errorf("%s: %q", written, got)
			}
		}
	}
	for _, name := range []string{"Authorization", "X-Methods", "X-Payment-Method", "Allow"} {
		if got := HeaderOverrides(http.Header{name: {"DELETE"}}); len(got) != 0 {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestKnown: only a host that a request could go to has an address in the sandbox.
// Promise: default-deny
func TestKnown(t *testing.T) {
	c := testCatalog(t)
	for _, row := range []struct {
		host string
		yolo bool
		want bool
	}{
		{"open.test", false, true}, {"a.wild.test", false, true}, {"shared.test", true, true},
		{"other.test", false, false}, {"wild.test", false, false}, {"b.a.wild.test", false, false}, {"off.test", false, false},
		{"other.test", true, true}, {"off.test", true, false},
	} {
		h, err := catalog.ParseHost(row.host)
		if err != nil {
			t.Fatal(err)
		}
		if got := (Rules{Catalog: c, YOLO: row.yolo}).CanResolve(nil, h); got != row.want {
			t.Errorf("%s, open %t: %t", row.host, row.yolo, got)
		}
	}
}

// Promise: restricted-methods
func TestParameterOverrides(t *testing.T) {
	for query, want := range map[string]string{
		"_method=DELETE": "DELETE", "a=b&_method=PUT": "PUT", "%5fmethod=PUT": "PUT", "_me%74hod=PUT": "PUT",
		"_METHOD=x;_method=y": "x y", "_method": "", "+_method=PUT": "PUT", "_method=%zz": "%zz",
		"_mEthod=PUT": "PUT", "_HttpMethod=PATCH": "PATCH", "method=delete": "DELETE", "_method[]=PUT": "PUT", ".method=PUT": "PUT",
		"_method%00x=PUT": "PUT", "X-HTTP-Method-Override=PUT": "PUT", "x_http_method_override=PUT": "PUT",
		"httpMethod=put": "PUT", "http_method=DELETE": "DELETE", "http.method=DELETE": "DELETE", "[method=PUT": "PUT",
	} {
		got := ParameterOverrides(query)
		if len(got) == 0 || strings.Join(got, " ") != want {
			t.Errorf("%q: %q", query, got)
		}
	}
	for _, query := range []string{"", "a=b", "payment_method=x", "method=flickr.photos.search", "a=_method", "_methods=x", "a%26_method=x"} {
		if got := ParameterOverrides(query); len(got) != 0 {
			t.Errorf("%q: %q", query, got)
		}
	}
}

// permits is the rule of an API that restricts DELETE.
func permits(method string) bool { return method != "DELETE" }

// TestGuardedBody: an override field is found in each kind of body that is checked while it streams, wherever reads
// split it, and other bodies of that kind pass complete.
// Promise: restricted-methods
func TestGuardedBody(t *testing.T) {
	const js, multi = "application/json", "multipart/form-data; boundary=b"
	part := func(disposition string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n" +
			"--b\r\nContent-Disposition: form-data; " + disposition + "\r\n\r\nDELETE\r\n--b--\r\n"
	}
	for _, c := range []struct {
		kind, text string
		bad        bool
	}{
		{js, `{"_method": "DELETE"}`, true},
		{js, `{"a": 1, "_METHOD" : "DELETE"}`, true},
		{js, `{"\u005fmethod": "DELETE"}`, true},
		{js, `{"\U005FMETHOD": 1}`, true},
		{js, `{"_\u006dethod": "DELETE"}`, true},
		{js, `{"\u005f\u006D\u0065\u0074\u0068\u006f\u0064": 1}`, true},
		{js, `{'_method': 'DELETE'}`, true},
		{js, "{\x00\"\x00_\x00m\x00e\x00t\x00h\x00o\x00d\x00\"\x00:\x001\x00}\x00", true},
		{"application/vnd.api+json", `{"_method": "DELETE"}`, true},
		{multi, part(`name="_method"`), true},
		{multi, part(`NAME="_METHOD"`), true},
		{multi, part(`name=_method`), true},
		{multi, part(`name='_method'`), true},
		{multi, part(`name="_m\ethod"`), true},
		{multi, part(`name*=utf-8''_method`), true},
		{multi, part(`name="x"; name="_method"`), true},
		{"multipart/mixed; boundary=b", part(`name="_method"`), true},
		{"", "_method=DELETE", true},
		{"", "a=b&_method=DELETE", true},
		{"", "a=b;%5Fmethod=DELETE", true},
		{"", `{"_method": "DELETE"}`, true},

		{js, `{"payment_method": "x"}`, false},
		{js, `{"method": "paypal"}`, false},
		{js, `["_methods"]`, false},
		{multi, part(`name="payment_method"`), false},
		{multi, part(`name="c"; filename="d"`), false},
		{"", "a=b&payment_method=c", false},
		{"", strings.Repeat("_method", 1000), false},
		{"", "", false},
	} {
		for _, wrap := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.HalfReader, iotest.DataErrReader} {
			r, _ := http.NewRequest("POST", "https://a.test", io.NopCloser(wrap(strings.NewReader(c.text))))
			if c.kind != "" {
				r.Header.Set("Content-Type", c.kind)
			}
			more, err := BodyOverrides(r, permits)
			var got []byte
			if err == nil {
				got, err = io.ReadAll(r.Body)
			}
			want := c.text
			if _, params, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err == nil && params["boundary"] != "" {
				want = strings.ReplaceAll(want, "--b\r\n", "--"+params["boundary"]+"\r\n") // parts leave with a boundary of their own
				want = strings.ReplaceAll(want, "--b--\r\n", "--"+params["boundary"]+"--\r\n")
			}
			if bad := err != nil || len(more) > 0; bad != c.bad || !bad && string(got) != want {
				t.Errorf("%q %.90q: %v %v, passed on %.90q", c.kind, c.text, more, err, got)
			}
		}
	}
}

// TestBodyKinds: the kind of a body depends on all its types, also on a missing one, and on what is inside its
// encoding.
// Promise: restricted-methods
func TestBodyKinds(t *testing.T) {
	pack := func(text string) string {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, _ = io.WriteString(w, text)
		_ = w.Close()
		return packed.String()
	}
	packed := pack(`{"_method": "DELETE"}`)
	part := "--b\r\nContent-Disposition: form-data; name=\"_method\"\r\n\r\nDELETE\r\n--b--\r\n"
	for name, c := range map[string]struct {
		types          []string
		encoding, body string
		bad            bool
	}{
		"no type":              {nil, "", "_method=DELETE", true},
		"no type, later":       {nil, "", "a=b&%5Fmethod=DELETE", true},
		"no type, binary":      {nil, "", "\x00\xff a_method=b", false},
		"two types":            {[]string{"text/plain", "application/x-www-form-urlencoded"}, "", "_method=DELETE", true},
		"form, but JSON":       {[]string{"application/x-www-form-urlencoded", "application/json"}, "", `{"_method": "DELETE"}`, true},
		"JSON in gzip":         {[]string{"application/json"}, "gzip", packed, true},
		"multipart in gzip":    {[]string{"multipart/form-data; boundary=b"}, "gzip", pack(part), true},
		"multipart":            {[]string{"multipart/form-data; boundary=b"}, "", part, true},
		"text that is JSON":    {[]string{"text/plain"}, "", `{"_method": "DELETE"}`, true},
		"parts, but no type":   {nil, "", part, false}, // no server reads them as parts
		"JSON, unknown coding": {[]string{"application/json"}, "rot13", "{}", true},
		"a packed file":        {[]string{"application/octet-stream"}, "gzip", pack("plain"), false},
		"text in gzip":         {[]string{"text/plain"}, "gzip", packed, true},
		"text in deflate":      {[]string{"text/plain"}, "deflate", "\x01\x15\x00\xea\xff" + `{"_method": "DELETE"}`, true},
		"three encodings":      {[]string{"text/plain"}, "gzip, gzip, gzip", pack(pack(packed)), true},
		"two names":            {[]string{"text/plain"}, "aws-chunked, x-gzip", packed, true},
		"no encoding at all":   {[]string{"text/plain"}, "aes128gcm", "\x00\xff", false},
	} {
		r, _ := http.NewRequest("POST", "https://a.test", strings.NewReader(c.body))
		r.Header["Content-Type"] = c.types
		r.Header.Set("Content-Encoding", c.encoding)
		more, err := BodyOverrides(r, permits)
		if err == nil {
			_, err = io.ReadAll(r.Body)
		}
		if bad := err != nil || len(more) > 0; bad != c.bad {
			t.Errorf("%s: %v %v", name, more, err)
		}
	}
}

// closed is a run that may not learn of other APIs.
type closed struct{ run }

func (closed) IsClosed() bool { return true }

// TestClosed: what a closed run is told of the hosts, servers and rules of other APIs is what it is told where there
// are none.
// Promise: tenant-apis
func TestClosed(t *testing.T) {
	r := Rules{Catalog: load(t, map[string]string{
		"mine":   `{"description":"x","domains":["api.mine.com","shared.mine.com"],"credentials":{}}`,
		"secret": `{"description":"x","domains":["api.secret.com","odd.secret.com:8443"],"credentials":{}}`,
		"strict": `{"description":"x","domains":["shared.mine.com"],"restricted_methods":["POST"],"credentials":{}}`,
		"waits":  `{"description":"x","domains":["shared.mine.com"],"credentials":{},"rules":[{"methods":["PUT"],"then":"approve","by":"any"},{"then":"allow"}]}`,
		"off":    `{"description":"x","domains":["api.off.com"],"active":false,"credentials":{}}`,
		"tools":  `{"description":"x","domains":["api.tools.com"],"mcp":{"package":"npm:a@1.0.0"}}`,
	})}
	mine := closed{run{"mine"}}
	ask := func(run Run, method, host string) Verdict {
		h, err := catalog.ParseHost(host)
		if err != nil {
			t.Fatal(err)
		}
		return r.Decide(run, Request{Host: h, Methods: []string{method}, Path: "/", TLS: true}).ForRun(run)
	}
	nowhere := ask(mine, "GET", "api.nowhere.com")
	for _, yolo := range []bool{false, true} {
		r.YOLO = yolo
		for _, host := range []string{"api.secret.com", "odd.secret.com", "api.off.com", "api.secret.co", "api.tools.com"} {
			if yolo && host == "api.secret.co" { // it is in no API
				continue
			}
			got := ask(mine, "GET", host)
			if got.Allow || got.Refusal.Code != nowhere.Refusal.Code || got.Refusal.Hint != nowhere.Refusal.Hint {
				t.Errorf("YOLO %v, %s: %+v, want what api.nowhere.com gets: %+v", yolo, host, got.Refusal, nowhere.Refusal)
			}
			if open := ask(run{"mine"}, "GET", host); open.Refusal.Hint == nowhere.Refusal.Hint {
				t.Errorf("%s: a run that is not closed is told no more: %+v", host, open.Refusal)
			}
		}
	}
	if got := ask(mine, "GET", "api.mine.com"); !got.Allow {
		t.Errorf("its own: %+v", got.Refusal)
	}
	if got := ask(mine, "POST", "shared.mine.com"); got.Allow || strings.Contains(got.Refusal.Hint, "strict") {
		t.Errorf("the rule of another API at its host: %+v", got)
	}
	if got := ask(mine, "PUT", "shared.mine.com"); got.Hold == nil || got.Hold.API != "waits" || got.Hold.ByAny {
		t.Errorf("what a rule of another API holds is the operator's: %+v, %+v", got, got.Hold)
	}
	if got := ask(run{"mine", "waits"}, "PUT", "shared.mine.com"); got.Hold == nil || !got.Hold.ByAny {
		t.Errorf("what its own rule holds: %+v, %+v", got, got.Hold)
	}
	for host, open := range map[string]bool{
		"api.mine.com": true, "shared.mine.com": true, "mcp.codeforge.internal": true,
		"api.secret.com": false, "odd.secret.com": false, "api.off.com": false, "api.tools.com": false,
	} {
		for _, yolo := range []bool{false, true} {
			r.YOLO = yolo
			h, err := catalog.ParseHost(host)
			if err != nil || r.CanResolve(mine, h) != open || r.CanResolve(run{"mine"}, h) != (host != "api.off.com") {
				t.Errorf("%s, YOLO %v: its address is wrong", host, yolo)
			}
		}
	}
	if got := r.explainNotFound(mine, "tools"); got != r.explainNotFound(mine, "absent-server") {
		t.Errorf("the server of another: %+v", got)
	}
}

package policy

import (
	"compress/gzip"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/costtest"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// contentOf reads a request with this query, headers ("Name: value") and body.
func contentOf(t *testing.T, query, body string, headers ...string) *Content {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://a.test/?"+query, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	c, err := ReadContent(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.ReleaseMemory)
	return c
}

const (
	asJSON    = "Content-Type: application/json"
	asForm    = "Content-Type: application/x-www-form-urlencoded"
	asGraphQL = "Content-Type: application/graphql"
)

// TestLookup: a field has a value only if every server reads the same one.
func TestLookup(t *testing.T) {
	nested := func(depth int) string { return strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth) }
	const absent, unclear = "absent", "unclear"
	for _, c := range []struct {
		query, kind, body, field string
		want                     string // the value, or that it is absent or unclear
	}{
		{"", asJSON, `{"a":"x","b":"y"}`, "a", "x"},
		{"", asJSON, `{"a":5.50}`, "a", "5.50"},
		{"", asJSON, `{"a":true}`, "a", "true"},
		{"", asJSON, `{"a":null}`, "a", absent},
		{"", asJSON, `{}`, "a", absent},
		{"", asJSON, ``, "a", absent},
		{"", asJSON, `{"a":[1]}`, "a", unclear},
		{"", asJSON, `{"a":{"b":1}}`, "a", unclear},
		{"", asJSON, `{"a":{"b":"x"}}`, "a.b", "x"},
		{"", asJSON, `{"a":"x"}`, "a.b", unclear},
		{"", asJSON, `{"a":{"c":"x"}}`, "a.b", absent},
		{"", asJSON, `{"A":"x"}`, "a", unclear},
		{"", asJSON, `{"is_admin":1}`, "isAdmin", unclear},
		{"", asJSON, `{"a.b":"x"}`, "a.b", unclear},
		{"", asJSON, `{"a[b]":"x"}`, "a.b", unclear},
		{"", asJSON, `{"a":"x","A":"y"}`, "a", unclear},
		{"", asJSON, `{"a":"x","a":"y"}`, "a", unclear},
		{"", asJSON, "{\"a\":\"x\",\"\u212a\":1,\"k\":2}", "a", unclear}, // the Kelvin sign is a k to Go
		{"", asJSON, "{\"a\":\"x\",\"\u017f\":1,\"s\":2}", "a", unclear}, // the long s is an s to Go
		{"", asJSON, `{"a":"x","$ref":"b"}`, "a", unclear},
		{"", asJSON, `{"a":{"$ref":"x","b":"y"}}`, "a.b", unclear},
		{"", asJSON, `{"a":"x","__proto__":{}}`, "a", unclear},
		{"", asJSON, `{"a":"x","b":{"__PROTO__":{}}}`, "a", unclear},
		{"", asJSON, "{\"a\":\"x\",\"b\\u0000\":1}", "a", unclear},
		{"", asJSON, `[{"a":"x"}]`, "a", unclear},
		{"", asJSON, `"x"`, "a", unclear},
		{"", asJSON, `{"a":"x"} 1`, "a", unclear},
		{"", asJSON, `{"a":"x"`, "a", unclear},
		{"", asJSON, `{"b":` + nested(98) + `,"a":"x"}`, "a", "x"},
		{"", asJSON, `{"b":` + nested(99) + `,"a":"x"}`, "a", unclear},
		{"", asJSON, `{"b":[[1],{}],"a":"x"}`, "a", "x"},
		{"", asJSON, `{"b":[{"c":1,"c":2}],"a":"x"}`, "a", unclear},
		{"", asJSON + "; charset=utf-16", `{"a":"x"}`, "a", unclear},
		{"", asJSON, "{\"a\":\"\xff\"}", "a", unclear},
		{"b=1", asJSON, `{"a":"x"}`, "a", "x"},
		{"a=1", asJSON, `{"a":"x"}`, "a", unclear},
		{"a[c]=1", asJSON, `{"a":"x"}`, "a", unclear},
		{"A=1", asJSON, `{"a":"x"}`, "a", unclear},
		{"b;c", asJSON, `{"a":"x"}`, "a", unclear},
		{"b=%zz", asJSON, `{"a":"x"}`, "a", unclear},
		{"", asForm, "a=x&b=y", "a", "x"},
		{"", asForm, "a=x+y%21&", "a", "x y!"},
		{"", asForm, "b=x", "a", absent},
		{"", asForm, "a=x&a=x", "a", unclear},
		{"", asForm, "A=x", "a", unclear},
		{"", asForm, "a[b]=x", "a.b", "x"},
		{"", asForm, "a.b=x", "a.b", unclear},
		{"", asForm, "a[b]=x", "a", unclear},
		{"", asForm, "ab=x", "a.b", unclear},
		{"", asForm, "a=x", "a.b", absent},
		{"", asForm, "a=x;b", "a", unclear},
		{"", asForm, "a=%zz", "a", unclear},
		{"", asForm, "a%00=x", "a", unclear},
		{"", asForm, "__proto__=x", "a", unclear},
		{"", asGraphQL, "{a}", "a", unclear},
		{"", "Content-Type: text/plain", "a=x", "a", unclear},
	} {
		v, found, err := contentOf(t, c.query, c.body, c.kind).Lookup(c.field)
		got := v.Text
		switch {
		case err != nil:
			got = unclear
		case !found:
			got = absent
		}
		if got != c.want {
			t.Errorf("%s in ?%s %.60s: %s, want %s", c.field, c.query, c.body, got, c.want)
		}
	}
	for value, kind := range map[string]catalog.FieldKind{`"5"`: catalog.KindText, `5`: catalog.KindNumber, `false`: catalog.KindBool} {
		if v, _, err := contentOf(t, "", `{"a":`+value+`}`, asJSON).Lookup("a"); err != nil || v.Kind != kind {
			t.Errorf("%s: %+v, %v", value, v, err)
		}
	}
}

// TestReadContent: cookies, encodings, sizes and upgrades decide whether a body can be judged.
func TestReadContent(t *testing.T) {
	var packed strings.Builder
	w := gzip.NewWriter(&packed)
	_, _ = w.Write([]byte(`{"a":"x"}`))
	_ = w.Close()
	fill := func(n int) string { return `{"a":"x","b":"` + strings.Repeat("y", n-16) + `"}` }
	for name, c := range map[string]struct {
		body    string
		headers []string
		ok      bool
	}{
		"usual":               {`{"a":"x"}`, nil, true},
		"another cookie":      {`{"a":"x"}`, []string{"Cookie: b=1; c=2"}, true},
		"a cookie":            {`{"a":"x"}`, []string{"Cookie: b=1; a=2"}, false},
		"a second cookie":     {`{"a":"x"}`, []string{"Cookie: b=1", "Cookie: a"}, false},
		"compressed":          {packed.String(), []string{"Content-Encoding: gzip"}, true},
		"an unknown encoding": {`{"a":"x"}`, []string{"Content-Encoding: x"}, false},
		"an upgrade":          {`{"a":"x"}`, []string{"Upgrade: websocket"}, false},
		"the largest":         {fill(MaxContent), nil, true},
		"a larger one":        {fill(MaxContent + 1), nil, false},
	} {
		v, found, err := contentOf(t, "", c.body, append(c.headers, asJSON)...).Lookup("a")
		if (err == nil) != c.ok || found != c.ok || c.ok && v.Text != "x" {
			t.Errorf("%s: %+v, %t, %v", name, v, found, err)
		}
	}
	if text, ok := contentOf(t, "", "hello", "Content-Type: text/plain").BodyText(); !ok || text != "hello" {
		t.Errorf("text: %q, %t", text, ok)
	}
	for name, c := range map[string]*Content{
		"nil": nil, "not UTF-8": contentOf(t, "", "\xff", asForm), "too large": contentOf(t, "", fill(MaxContent+1), asJSON),
	} {
		if text, ok := c.BodyText(); ok || text != "" {
			t.Errorf("%s: %q", name, text)
		}
	}
}

// TestOperations lists the operations of all documents that a server may run.
func TestOperations(t *testing.T) {
	doc := func(text string) string { return fmt.Sprintf(`{"query":%q}`, text) }
	batch := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat(doc("{a}")+",", n), ",") + "]" }
	for _, c := range []struct{ query, kind, body, want string }{ // want: the operations, or "" for an error
		{"", asJSON, doc("{a}"), "query"},
		{"", asJSON, doc("mutation{a}"), "mutation"},
		{"", asJSON, `{"query":"query A{a} mutation B{b}","operationName":"A","variables":{}}`, "query mutation"},
		{"", asJSON, `{"query":"{a}","extensions":{}}`, "query"},
		{"", asJSON, `{"query":"{a}","extensions":null}`, "query"},
		{"", asJSON, `{"query":"{a}","extensions":{"persistedQuery":1}}`, ""},
		{"", asJSON, `{"query":"{a}","extensions":[]}`, ""},
		{"", asJSON, `{"query":"{a}","id":1}`, ""},
		{"", asJSON, `{"query":1}`, ""},
		{"", asJSON, `{}`, ""},
		{"", asJSON, batch(2), "query query"},
		{"", asJSON, batch(maxRuleBatch + 1), ""},
		{"", asJSON, `[1]`, ""},
		{"", asJSON, doc("{a"), ""},
		{"", asJSON, doc("fragment F on A{a}"), ""},
		{"", asJSON, doc("{a #\u2028}\n}"), ""},
		{"", asGraphQL, "subscription{a}", "subscription"},
		{"", asForm, "query={a}", ""},
		{"", asJSON, "", ""},
		{"query={a}", asJSON, "", "query"},
		{"query={a}&variables={}", asJSON, "", "query"},
		{"query={a}", asJSON, doc("{a}"), ""},
		{"doc=1", asJSON, doc("{a}"), ""},
		{"Query=1", asJSON, doc("{a}"), ""},
		{"id=1", asJSON, doc("{a}"), ""},
		{"operation_id=1", asJSON, doc("{a}"), ""},
		{"batch=1", asJSON, doc("{a}"), ""},
		{"identity=1", asJSON, doc("{a}"), "query"},
		{"a;b", asJSON, doc("{a}"), ""},
	} {
		list, err := contentOf(t, c.query, c.body, c.kind).Operations()
		if got := strings.Join(list, " "); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("?%s %.60s: %q, %v, want %q", c.query, c.body, got, err, c.want)
		}
	}
	if list, err := contentOf(t, "", batch(maxRuleBatch), asJSON).Operations(); err != nil || len(list) != maxRuleBatch {
		t.Errorf("the largest batch: %d, %v", len(list), err)
	}
}

// TestNeeds: a read takes a call; a write takes a write too, and the amount in its body.
func TestNeeds(t *testing.T) {
	c := load(t, map[string]string{
		"shop": `{"description": "d", "domains": ["shop.test"], "limits": {"calls": "9/h", "writes": "6/h", "sum": {"path": "/refunds", "field": "amount", "max": "100.5/d"}}}`,
		"free": `{"description": "d", "domains": ["shop.test"]}`,
		"ask":  `{"description": "d", "domains": ["ask.test"], "limits": {"writes": "1/h", "over": "approve"}}`,
	})
	holders := c.ListHolders(host(t, "shop.test"))
	for name, tc := range map[string]struct {
		method, path, body string
		want               string // the needs, or the code of the refusal
	}{
		"a read":              {"GET", "/refunds", "", "shop/calls 1"},
		"a write elsewhere":   {"POST", "/other", "", "shop/calls 1, shop/writes 1"},
		"a refund":            {"POST", "/refunds", `{"amount": 7.25}`, "shop/calls 1, shop/writes 1, shop/sum 7250000"},
		"without an amount":   {"POST", "/refunds", `{}`, CodeRuleUnreadable},
		"an amount of text":   {"POST", "/refunds", `{"amount": "x"}`, CodeRuleUnreadable},
		"two amounts":         {"POST", "/refunds", `{"amount": 1, "Amount": 2}`, CodeRuleUnreadable},
		"a path of two kinds": {"POST", "/%2e/refunds", `{"amount": 1}`, CodeAmbiguous},
	} {
		q := Request{Host: host(t, "shop.test"), Methods: []string{tc.method}, Path: tc.path, Content: contentOf(t, "", tc.body, asJSON)}
		needs, v := ListNeeds(q, holders)
		var list []string
		for _, n := range needs {
			list = append(list, fmt.Sprint(n.Key, " ", n.Amount))
		}
		got := strings.Join(list, ", ")
		if !v.Allow {
			got = v.Refusal.Code
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	q := Request{Host: host(t, "shop.test"), Methods: []string{"POST"}, Path: "/refunds"}
	if needs, v := ListNeeds(q, holders); v.Allow || !v.Unread || needs != nil {
		t.Errorf("unread: %v, %+v", needs, v)
	}
	for wait, retry := range map[time.Duration]string{0: "", 1: "1", time.Second: "1", time.Second + 1: "2"} {
		v := DecideBeyondLimit(Verdict{}, q, holders, wait)
		if v.Allow || v.Hold != nil || v.RetryAfter != retry || v.Refusal.Code != CodeLimitReached || (retry == "") != strings.Contains(v.Refusal.Hint, "alone exceeds") {
			t.Errorf("beyond, in %v: %+v", wait, v)
		}
	}
	asks := c.ListHolders(host(t, "ask.test"))
	if needs, v := ListNeeds(q, asks); len(needs) != 1 || needs[0].Key != "ask/writes" || !v.Allow {
		t.Errorf("without a sum: %v, %+v", needs, v)
	}
	v := DecideBeyondLimit(Verdict{APIs: asks}, q, asks, time.Minute)
	if v.Allow || v.Hold == nil || v.Hold.API != "ask" || v.Hold.ByAny || v.Refusal.Code != CodeApprovalNeeded || len(v.APIs) != 1 {
		t.Errorf("with a person: %+v", v)
	}
	if list := joinNames(append(asks, asks...)); list != "ask, ask" {
		t.Errorf("names: %s", list)
	}
	if v := DecideBeyondLimit(Verdict{}, q, append(asks, holders...), 0); v.Hold != nil || v.Refusal.Code != CodeLimitReached {
		t.Errorf("one API asks and the other does not: %+v", v)
	}
}

// TestRules: each API's first rule that matches decides, and a person decides about what no rule refuses.
func TestRules(t *testing.T) {
	c := load(t, map[string]string{
		"shop": `{"description": "d", "domains": ["shop.test"], "rules": [{"methods": ["GET"], "path": "/items/*", "then": "allow"},
			{"methods": ["POST"], "path": "/items", "then": "approve"}, {"methods": ["DELETE"], "path": "/**", "then": "refuse"}]}`,
		"graph": `{"description": "d", "domains": ["graph.test"], "rules": [{"path": "/graphql", "graphql": "query", "then": "allow"}]}`,
	})
	for name, tc := range map[string]struct {
		host, methods, path, body string
		content, early            bool
		want                      string // "", "hold" or the code of the refusal
	}{
		"allowed":              {host: "shop.test", methods: "GET", path: "/items/1"},
		"in lower case":        {host: "shop.test", methods: "get", path: "/items/1"},
		"held":                 {host: "shop.test", methods: "POST", path: "/items", want: "hold"},
		"refused":              {host: "shop.test", methods: "DELETE", path: "/items/1", want: CodeRuleRefused},
		"by no rule":           {host: "shop.test", methods: "GET", path: "/other", want: CodeRuleRefused},
		"allowed and refused":  {host: "shop.test", methods: "GET DELETE", path: "/items/1", want: CodeRuleRefused},
		"an ambiguous path":    {host: "shop.test", methods: "GET", path: "/items/%2e%2e", want: CodeAmbiguous},
		"unread":               {host: "graph.test", methods: "POST", path: "/graphql", want: CodeRuleUnreadable},
		"unread, and early":    {host: "graph.test", methods: "POST", path: "/graphql", early: true},
		"a query":              {host: "graph.test", methods: "POST", path: "/graphql", content: true, body: `{"query":"{a}"}`},
		"a mutation":           {host: "graph.test", methods: "POST", path: "/graphql", content: true, body: `{"query":"mutation{a}"}`, want: CodeRuleRefused},
		"a document by number": {host: "graph.test", methods: "POST", path: "/graphql", content: true, body: `{"id":1}`, want: CodeRuleUnreadable},
	} {
		q := Request{Host: host(t, tc.host), Methods: strings.Fields(tc.methods), Path: tc.path, Early: tc.early}
		if tc.content {
			q.Content = contentOf(t, "", tc.body, asJSON)
		}
		hold, v, ok := checkRules(q, c.ListHolders(q.Host))
		got := v.Refusal.Code
		if hold != nil {
			got = "hold"
		}
		if got != tc.want || ok != (tc.want == "" || tc.want == "hold") || v.Unread != (name == "unread") {
			t.Errorf("%s: %s, %t, want %q", name, got, ok, tc.want)
		}
		if tc.host == "graph.test" && HasOnlyQueries(q, c.ListHolders(q.Host)) != (name == "a query") {
			t.Errorf("%s: Queries is wrong", name)
		}
	}
	q := Request{Host: host(t, "shop.test"), Methods: []string{"GET"}, Path: "/items/1"}
	graph := c.ListHolders(host(t, "graph.test"))
	if HasOnlyQueries(q, c.ListHolders(q.Host)) || HasOnlyQueries(Request{Methods: []string{"GET"}}, nil) || HasOnlyQueries(Request{Path: "/graphql"}, graph) {
		t.Error("a request that is no query is one")
	}
	_, v, _ := checkRules(Request{Host: q.Host, Methods: []string{"GET"}, Path: "/other"}, c.ListHolders(q.Host))
	if !strings.Contains(v.Refusal.Hint, "It permits: GET /items/*; approve POST /items.") {
		t.Errorf("the hint: %s", v.Refusal.Hint)
	}
	var h *Hold
	h = h.addRule("a", "r1", true).addRule("a", "r2", true)
	if h.API != "a" || h.Rule != "r1; r2" || !h.ByAny {
		t.Errorf("%+v", h)
	}
	if h = h.addRule("b", "r1", false).addRule("c", "r1", true); h.API != "a, b, c" || h.Rule != "r1; r2" || h.ByAny {
		t.Errorf("%+v", h)
	}
}

// TestToolRules: a call of a tool is judged by the rules of its server, and other paths of the server are not calls.
func TestToolRules(t *testing.T) {
	rules := Rules{Catalog: load(t, map[string]string{"mail": `{"description": "d", "mcp": {"command": ["x"]}, "rules": [
		{"tools": ["pay"], "body": {"amount": {"max": 50}}, "then": "allow"}, {"tools": ["pay"], "then": "approve"}, {"tools": ["get_*"], "then": "allow"}]}`})}
	for _, c := range []struct {
		path, method, body string
		want               string // "", "hold", "unread" or the code of the refusal
	}{
		{"/mail/get_one", "POST", `{}`, ""},
		{"/mail/pay", "POST", `{"amount": 50}`, ""},
		{"/mail/pay", "POST", `{"amount": 51}`, "hold"},
		{"/mail/pay", "POST", `{"amount": 1, "Amount": 2}`, CodeRuleUnreadable},
		{"/mail/pay", "POST", "unread", "unread"},
		{"/mail/wipe", "POST", `{}`, CodeRuleRefused},
		{"/mail/wipe", "GET", `{}`, ""},
		{"/mail", "POST", `{}`, ""},
		{"/mail/get_one", "PUT", `{}`, CodeBadCall},
		{"/none/get_one", "POST", `{}`, CodeServerNotFound},
	} {
		u, err := url.Parse(c.path)
		if err != nil {
			t.Fatal(err)
		}
		q := Request{Host: host(t, proxyapi.ServersHost), TLS: true, Methods: []string{c.method}}
		if c.body != "unread" {
			q.Content = contentOf(t, "", c.body, asJSON)
		}
		v, _ := rules.DecideCall(asker{kind: ClientRun}, q, u)
		got := v.Refusal.Code
		switch {
		case v.Hold != nil:
			got = "hold"
		case v.Unread:
			got = "unread"
		}
		if got != c.want || v.Allow != (c.want == "") {
			t.Errorf("%s %s %s: %q, %t, want %q", c.method, c.path, c.body, got, v.Allow, c.want)
		}
	}
}

// TestManyRules: a rule does not split and fold all names of a body again. Code could otherwise keep the proxy busy for
// ten seconds with one body.
// Promise: bounded-work
func TestManyRules(t *testing.T) {
	var object strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&object, `,"k%d":1`, i)
	}
	for name, c := range map[string]struct{ kind, body string }{
		"form":   {asForm, strings.Repeat("a&", MaxContent/2)},
		"object": {asJSON, "{" + object.String()[1:] + "}"},
	} {
		content := contentOf(t, "", c.body, c.kind)
		costtest.RequireBounded(t, name, 4*time.Second, func() {
			for i := range 200 {
				if _, found, err := content.Lookup(fmt.Sprintf("field%d", i)); found || err != nil {
					t.Fatal(found, err)
				}
			}
		})
	}
}

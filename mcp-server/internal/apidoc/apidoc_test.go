package apidoc

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/costtest"
)

const shop = `{"format":1,"server":"https://api.shop.test/v1","auth":[{"token":"SHOP_TOKEN","place":"header:Authorization","value":"Bearer SHOP_TOKEN"}],"operations":5,"types":2}
{"type":"Refund","ts":"{ id: string; charge: Charge }"}
{"m":"POST","p":"/refunds","s":"Create a refund","t":["Refunds"],"b":"{ charge: string; amount?: number }","a":"Refund"}
{"m":"GET","p":"/refunds","s":"List all refunds","t":["Refunds"],"a":"Refund[]"}
{"m":"GET","p":"/refunds/{id}","s":"Retrieve a refund","t":["Refunds"],"a":"Refund"}
{"m":"DELETE","p":"/customers/{id}","t":["Customers"]}
{"m":"GET","p":"/old","d":true}
{"type":"Charge","ts":"{ id: string }"}
`

func read(t testing.TB, text string) *Document {
	t.Helper()
	d, err := ReadDocument("shop", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestRead: every operation and type is found again, whatever the order and however many blocks there are.
func TestRead(t *testing.T) {
	d := read(t, shop)
	if d.OperationCount() != 5 || d.OperationKey(0) != "POST /refunds" || d.Operation(4).Path != "/old" || d.Index.Len() != 5 {
		t.Errorf("%d operations, %q", d.OperationCount(), d.OperationKey(0))
	}
	if l, ok := d.Type("Charge"); !ok || l.TS != "{ id: string }" {
		t.Errorf("type: %+v, %v", l, ok)
	}
	if _, ok := d.Type("Nothing"); ok {
		t.Error("a type that there is not")
	}
	var b strings.Builder
	const n = 3000
	fmt.Fprintf(&b, `{"format":1,"server":"https://a.test","operations":%d,"types":0}`+"\n", n)
	for i := range n {
		fmt.Fprintf(&b, `{"m":"GET","p":"/things/%d","s":"Thing %d","a":"{ %s }"}`+"\n", i, i, strings.Repeat("x?: string; ", i%40))
	}
	many := read(t, b.String())
	if len(many.blocks) < 20 {
		t.Errorf("%d blocks", len(many.blocks))
	}
	for i := 0; i < n; i += 23 {
		if l := many.Operation(i); l.Path != fmt.Sprintf("/things/%d", i) || l.Summary != fmt.Sprintf("Thing %d", i) {
			t.Fatalf("%d: %+v", i, l)
		}
	}
	for _, bad := range []string{"", "{}\n", strings.Replace(shop, "Create", "Cre\u202eate", 1), strings.Replace(shop, `"operations":5`, `"operations":6`, 1)} {
		if d, err := ReadDocument("shop", strings.NewReader(bad)); err == nil {
			t.Errorf("%.60q gives %+v", bad, d)
		}
	}
}

// TestHeader: a user name and a password, which are two tokens, are one header.
func TestHeader(t *testing.T) {
	const basic = `"place":"header:Authorization","value":"Basic ${btoa(\"U_TOKEN:P_TOKEN\")}"}`
	d := read(t, `{"format":1,"server":"https://api.shop.test","auth":[{"token":"U_TOKEN",`+basic+`,{"token":"P_TOKEN",`+basic+
		`,{"token":"K_TOKEN","place":"query:key","value":"K_TOKEN"}],"operations":0,"types":0}`+"\n")
	const want = "# shop https://api.shop.test  Authorization: Basic ${btoa(\"U_TOKEN:P_TOKEN\")}  key: K_TOKEN"
	if got := d.HostAndTokens([]string{"U_TOKEN", "P_TOKEN", "K_TOKEN"}); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestCookieHeader: two tokens in cookies are one header.
func TestCookieHeader(t *testing.T) {
	d := read(t, `{"format":1,"server":"https://api.shop.test","auth":[{"token":"A_TOKEN","place":"cookie:a","value":"A_TOKEN"}`+
		`,{"token":"B_TOKEN","place":"cookie:b","value":"B_TOKEN"}],"operations":0,"types":0}`+"\n")
	tokens := []string{"A_TOKEN", "B_TOKEN"}
	if got := d.HostAndTokens(tokens); !strings.HasSuffix(got, "  Cookie: a=A_TOKEN  Cookie: b=B_TOKEN") {
		t.Error(got)
	}
	if got := d.tokenPlaces(tokens); len(got) != 1 || got[0].Header != "Cookie" || got[0].Value != "a=A_TOKEN; b=B_TOKEN" {
		t.Errorf("%+v", got)
	}
}

func TestMiss(t *testing.T) {
	d := read(t, shop)
	for asked, want := range map[string]string{
		"404 GET https://api.shop.test/v1/refund":           "GET /refund is no operation of shop; nearest: GET /refunds.",
		"404 GET https://api.shop.test/v1/refund/re_1?x":    "GET /refund/re_1 is no operation of shop; nearest: GET /refunds/{id}.",
		"404 GET https://api.shop.test/refunds":             "GET /refunds is no operation of shop; nearest: GET /refunds at https://api.shop.test/v1.",
		"405 PUT https://api.shop.test/v1/refunds":          "PUT /refunds is no operation of shop, but POST and GET is.",
		"404 GET https://api.shop.test/v1/refunds/re_1":     "",
		"400 POST https://api.shop.test/v1/refunds":         `POST /refunds of shop takes other input: list_apis with "operation": "POST /refunds" shows which.`,
		"404 GET https://api.shop.test/v1/zebra/crossing/x": "GET /zebra/crossing/x is no operation of shop: list_apis with query finds one.",
		"404 GET https://other.test/v1/refund":              "",
		"404 GET ::":                                        "",
	} {
		var status int
		var method, address string
		if _, err := fmt.Sscan(asked, &status, &method, &address); err != nil {
			t.Fatal(err)
		}
		if got := d.ExplainMiss(method, address, status); got != want {
			t.Errorf("%s:\n got %s\nwant %s", asked, got, want)
		}
	}
}

// TestHostile: a document that was made to make its reader slow, or its answers long, does neither.
// Promise: documents-are-data
func TestHostile(t *testing.T) {
	const n = 150_000
	text := func(graphql bool, line string) string {
		head := fmt.Sprintf(`{"format":1,"server":"https://a.test","graphql":%v,"operations":%d,"types":0}`, graphql, n)
		return head + "\n" + strings.Repeat(line+"\n", n)
	}
	d := read(t, text(true, `{"m":"POST","p":"/{a}","id":"query f"}`))
	costtest.RequireBounded(t, "looking up an operation and the groups", 5*time.Second, func() {
		if _, ok := d.FindOperation("query g"); ok {
			t.Error("found what is not there")
		}
		if i, ok := d.FindOperation("query f"); !ok || i != 0 {
			t.Errorf("found %d, %v", i, ok)
		}
		if got := d.OperationGroups(); len(got) != 1 || got[0] != fmt.Sprintf("/ %d", n) {
			t.Errorf("groups: %.100q", got)
		}
	})
	d = read(t, text(false, `{"m":"POST","p":"/{a}"}`))
	if got, want := d.ExplainMiss("GET", "https://a.test/x", 404), "GET /x is no operation of shop, but POST is."; got != want {
		t.Errorf("got %.100s, want %s", got, want)
	}
}

func TestShorten(t *testing.T) {
	long := `{ a?: string; b: { x: number; y: { z: string; more: number; and: string; on: string; it: string } }; c?: "one" | "two" | "three;{" | "four" | "five" | "six" | "seven" | "eight" | "nine"; d: number; e?: { f: string }[]; g?: string }`
	for most, want := range map[int]string{
		1000: `{ b: { x: number; y: { z: string; more: number; and: string; on: string; it: string } }; d: number; a?: string; c?: "one" | "two" | "three;{" | "four" | "five" | "six" | "seven" | "eight" | "nine"; e?: { f: string }[]; g?: string }`,
		120:  `{ b: {…}; d: number; a?: string; c?: "one" | "two" | "three;{" | "four" | "five" | "six" | "seven" | …; …2 more }`,
		30:   `{ b: {…}; d: number; …4 more }`,
		5:    `{ b:…; …5 more }`,
	} {
		if got := shortenType(long, most); got != want {
			t.Errorf("%d:\n got %s\nwant %s", most, got, want)
		}
	}
	if got := shortenType("A | B | "+strings.Repeat("é", 200), 20); len(got) > 22 || !strings.HasSuffix(got, "…") {
		t.Errorf("%q", got)
	}
}

func TestFindAndGroups(t *testing.T) {
	d := read(t, shop)
	for text, want := range map[string]int{"POST /refunds": 0, " POST   /refunds ": 0, "/customers/{id}": 3, "/refunds": -1, "GET /nothing": -1} {
		i, ok := d.FindOperation(text)
		if !ok {
			i = -1
		}
		if i != want {
			t.Errorf("%q: %d, want %d", text, i, want)
		}
	}
	if got := strings.Join(d.OperationGroups(), ", "); got != "Refunds 3, Customers 1, old 1" {
		t.Errorf("groups: %s", got)
	}
	if full := d.ShowAll(0); !strings.Contains(full, "\ntype Refund = { id: string; charge: Charge }") {
		t.Errorf("full: %s", full)
	}
	if full, ok := d.FullType("Refund"); !ok || full != "type Refund = { id: string; charge: Charge }\ntype Charge = { id: string }" {
		t.Errorf("full type: %s", full)
	}
}

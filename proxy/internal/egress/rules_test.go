package egress_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// shopRules are those of an API on which a model may read, refund up to 50.00 and ask questions by GraphQL.
const shopRules = `, "rules": [
	{"path": "/v1/admin/**", "then": "refuse"},
	{"methods": ["POST"], "path": "/v1/users", "body": {"role": {"is": ["admin", "owner"]}}, "then": "refuse"},
	{"methods": ["POST"], "path": "/v1/users", "body": {"is_admin": {"is": true}}, "then": "refuse"},
	{"methods": ["POST"], "path": "/v1/users", "body": {"level": {"is": [1, 5000]}}, "then": "refuse"},
	{"methods": ["POST"], "path": "/v1/users", "then": "allow"},
	{"methods": ["POST"], "path": "/v1/mail", "body": {"send": {"is": false}}, "then": "allow"},
	{"methods": ["POST"], "path": "/v1/refunds", "body": {"amount": {"max": 5000}, "meta.kind": {"is": "goodwill"}}, "then": "allow"},
	{"graphql": "query", "path": "/graphql", "then": "allow"},
	{"methods": ["GET"], "path": "/v1/**", "then": "allow"}]`

// TestRules: what the rules of an API permit passes with its body as it was sent, and nothing else does.
// Promise: rules
func TestRules(t *testing.T) {
	const js, form, gql = "application/json", "application/x-www-form-urlencoded", "application/graphql"
	const good = `{"amount":5000,"meta":{"kind":"goodwill"},"note":"x"}`
	const refused, unclear, ambiguous = "rule_refused", "rule_unreadable", "ambiguous_request"
	long := `{"amount":1,"meta":{"kind":"goodwill"},"x":"` + strings.Repeat("a", 256<<10) + `"}`
	rows := []struct{ line, header, kind, body, code string }{
		// paths
		{"GET /v1/items", "", "", "", ""},
		{"GET /v1/items?x=1", "", "", "", ""},
		{"GET /v1", "", "", "", ""},
		{"GET /v1/caf%C3%A9", "", "", "", ""},
		{"GET /v2/items", "", "", "", refused},
		{"GET /V1/items", "", "", "", refused},
		{"GET /", "", "", "", refused},
		{"HEAD /v1/items", "", "", "", refused},
		{"GET /v1/admin", "", "", "", refused},
		{"GET /v1/admin/", "", "", "", refused},
		{"GET /v1/admin/users", "", "", "", refused},
		{"GET /v1/Admin/users", "", "", "", refused},
		{"GET /v1/%61dmin/users", "", "", "", refused},
		{"GET /v1/admin%20/users", "", "", "", refused},
		{"GET /v1/admin./users", "", "", "", refused},
		{"GET /v1/admin.json", "", "", "", refused},
		{"GET /v1/%EF%BD%81dmin", "", "", "", refused}, // a full-width a
		{"GET /v1/adm%C4%B1n-of-no-one", "", "", "", ""},
		{"GET /v1/adm%C4%B1n", "", "", "", refused}, // a dotless i
		{"GET /v1/ADM%C4%B0N", "", "", "", refused},
		{"GET /v1/%20admin", "", "", "", refused},
		{"POST /v1/%75sers", "", js, `{"name":"x"}`, refused}, // another path to a server that does not decode
		{"GET /v1/./admin", "", "", "", ambiguous},
		{"GET /v1/x/../admin", "", "", "", ambiguous},
		{"GET /v1/x/%2e%2e/admin", "", "", "", ambiguous},
		{"GET /v1//admin", "", "", "", ambiguous},
		{"GET //v1/admin", "", "", "", ambiguous},
		{"GET /v1%2fadmin", "", "", "", ambiguous},
		{"GET /v1%5cadmin", "", "", "", ambiguous},
		{"GET /v1/admin;x", "", "", "", ambiguous},
		{"GET /v1/;x/admin", "", "", "", ambiguous},
		{"GET /v1/%2561dmin", "", "", "", ambiguous},
		{"GET /v1/admin%3f", "", "", "", ambiguous},
		{"GET /v1/admin%00", "", "", "", ambiguous},
		{"GET /v1/%c0%afadmin", "", "", "", ambiguous},
		{"GET /v1/items", "X-Original-URL: /v1/admin", "", "", ambiguous},
		{"GET /v1/items", "X_Rewrite_Url: /v1/admin", "", "", ambiguous},
		{"GET /v1/items", "X-Forwarded-Path: /v1/admin", "", "", ambiguous},
		// methods
		{"DELETE /v1/items", "", "", "", refused},
		{"POST /v1/items", "", "", "", refused},
		{"GET /v1/items", "X-HTTP-Method-Override: DELETE", "", "", refused},
		{"GET /v1/items?_method=DELETE", "", "", "", refused},
		{"POST /v1/users", "", form, "name=a&_method=DELETE", refused},
		// fields of JSON
		{"POST /v1/refunds", "", js, good, ""},
		{"POST /v1/refunds", "", js, strings.Replace(good, "5000", `"5000"`, 1), ""},
		{"POST /v1/refunds", "", js, strings.Replace(good, "5000", "5001", 1), refused},
		{"POST /v1/refunds", "", js, strings.Replace(good, "5000", "5000.01", 1), refused},
		{"POST /v1/refunds", "", js, strings.Replace(good, "5000", "1e9", 1), unclear},
		{"POST /v1/refunds", "", js, strings.Replace(good, "5000", `"0x10"`, 1), unclear},
		{"POST /v1/refunds", "", js, strings.Replace(good, "5000", "[9]", 1), unclear},
		{"POST /v1/refunds", "", js, strings.Replace(good, "5000", "true", 1), unclear},
		{"POST /v1/refunds", "", js, strings.Replace(good, "5000", "null", 1), refused},
		{"POST /v1/refunds", "", js, `{"meta":{"kind":"goodwill"}}`, refused}, // without an amount all of it is refunded
		{"POST /v1/refunds", "", js, strings.Replace(good, "goodwill", "Goodwill", 1), refused},
		{"POST /v1/refunds", "", js, strings.Replace(good, `{"kind"`, `{"kind":"fraud","kind"`, 1), unclear},
		{"POST /v1/refunds", "", js, strings.Replace(good, `"note"`, `"amount"`, 1), unclear},
		{"POST /v1/refunds", "", js, strings.Replace(good, `"note":"x"`, `"Amount":9999`, 1), unclear},
		{"POST /v1/refunds", "", js, strings.Replace(good, `"note":"x"`, `"meta.kind":"fraud"`, 1), unclear},
		{"POST /v1/refunds", "", js, strings.Replace(good, `"note"`, `"\u0061mount"`, 1), unclear},
		{"POST /v1/refunds?amount=9999", "", js, good, unclear},
		{"POST /v1/refunds?amount%5B%5D=9999", "", js, good, unclear},
		{"POST /v1/refunds?expand=x", "", js, good, ""},
		{"POST /v1/refunds", "Cookie: a=b; amount=9999", js, good, unclear},
		{"POST /v1/refunds", "Cookie: meta[kind]=fraud", js, good, unclear},
		{"POST /v1/refunds", "Cookie: session=amount; theme=meta", js, good, ""},
		{"POST /v1/refunds", "", js, strings.Replace(good, `{"kind"`, `{"$ref":"$.note","kind"`, 1), unclear},
		{"POST /v1/refunds", "", js, strings.Replace(good, `"x"`, `{"$ref":"$.meta"}`, 1), ""},
		{"POST /v1/refunds", "", js, "[" + good + "]", unclear},
		{"POST /v1/refunds", "", js, `"x"`, unclear},
		{"POST /v1/refunds", "", js, long, unclear},
		{"POST /v1/refunds", "", "text/plain", good, unclear},
		{"POST /v1/refunds", "", "", "", refused},
		{"POST /v1/refunds", "Content-Encoding: br", js, good, "request_body_unreadable"},
		// fields of forms
		{"POST /v1/refunds", "", form, "amount=5000&meta%5Bkind%5D=goodwill&expand[]=a&expand[]=b", ""},
		{"POST /v1/refunds", "", form, "amount=5001&meta[kind]=goodwill", refused},
		{"POST /v1/refunds", "", form, "amount=1&amount=9999&meta[kind]=goodwill", unclear},
		{"POST /v1/refunds", "", form, "amount=1&amount[]=9999&meta[kind]=goodwill", unclear},
		{"POST /v1/refunds", "", form, "amount=1&+amount=9999&meta[kind]=goodwill", unclear},
		{"POST /v1/refunds", "", form, "amount=1;amount=9999&meta[kind]=goodwill", unclear},
		{"POST /v1/refunds", "", form, "amount=1&meta.kind=goodwill", unclear},
		{"POST /v1/refunds", "", form, "amount=%zz&meta[kind]=goodwill", unclear},
		// what is refused is refused in other spellings too
		{"POST /v1/users", "", js, `{"role":"member"}`, ""},
		{"POST /v1/users", "", js, `{"name":"x"}`, ""},
		{"POST /v1/users", "", js, `{"role":"admin"}`, refused},
		{"POST /v1/users", "", js, `{"role":" Admin"}`, refused},
		{"POST /v1/users", "", js, `{"Role":"admin"}`, unclear},
		{"POST /v1/users", "", js, `{"role":["admin"]}`, unclear},
		{"POST /v1/users", "", form, "role=OWNER", refused},
		{"POST /v1/users", "", form, "role=admin%00x", refused},
		{"POST /v1/users", "", js, `{"role":"admin\u0000x"}`, refused},
		{"POST /v1/users", "", js, `{"role\u0000x":"admin"}`, unclear},
		{"POST /v1/users", "", js, `{"__proto__":{"role":"admin"}}`, unclear},
		{"POST /v1/users", "", form, "__proto__[role]=admin", unclear},
		{"POST /v1/users", "Cookie: role=admin", js, `{"name":"x"}`, unclear},
		{"POST /v1/users", "Cookie: is%20admin=1", form, "name=x", unclear},
		{"POST /v1/users", "", js, `{"is_admin":true}`, refused},
		{"POST /v1/users", "", js, `{"is_admin":"1"}`, refused},
		{"POST /v1/users", "", js, `{"is_admin":false}`, ""},
		{"POST /v1/users", "", js, `{"isAdmin":true}`, unclear},
		{"POST /v1/users", "", js, `{"is-admin":true}`, unclear},
		{"POST /v1/users", "", form, "is.admin=1", unclear},
		{"POST /v1/users", "", form, "is+admin=1", unclear},
		{"POST /v1/users?is%20admin=1", "", js, `{"name":"x"}`, unclear},
		{"POST /v1/users", "", js, `{"is_admin":"false"}`, unclear}, // true to JavaScript
		{"POST /v1/users", "", form, "is_admin=false", unclear},
		{"POST /v1/users", "", js, `{"level":1.0}`, refused},
		{"POST /v1/users", "", js, `{"level":"5000.00"}`, refused},
		{"POST /v1/users", "", js, `{"level":5e3}`, unclear},
		{"POST /v1/users", "", js, `{"level":"10E-1"}`, unclear},
		{"POST /v1/users", "", form, "level=05000", refused},
		{"POST /v1/users", "", form, "level=%2B1", refused},
		{"POST /v1/users", "", form, "level=0x1388", unclear},
		{"POST /v1/users", "", form, "level=5001", ""},
		{"POST /v1/users", "", js, `{"level":2}`, ""},
		// the type of what is allowed
		{"POST /v1/mail", "", js, `{"send":false}`, ""},
		{"POST /v1/mail", "", js, `{"send":"false"}`, refused}, // true to JavaScript
		{"POST /v1/mail", "", form, "send=false", refused},
		{"POST /v1/Users", "", js, `{"role":"admin"}`, refused},
		// GraphQL
		{"POST /graphql", "", js, `{"query":"{ me { name } }"}`, ""},
		{"POST /graphql", "", js, `{"query":"query A { a } query B { b }","operationName":"A"}`, ""},
		{"POST /graphql", "", js, `[{"query":"{a}"},{"query":"{b}"}]`, ""},
		{"GET /graphql?query=%7Bme%7D", "", "", "", ""},
		{"POST /graphql", "", gql, "{ me }", ""},
		{"POST /graphql", "", js, `{"query":"mutation { drop }"}`, refused},
		{"POST /graphql", "", js, `{"query":"query A { a } mutation B { drop }","operationName":"A"}`, refused},
		{"POST /graphql", "", js, `[{"query":"{a}"},{"query":"mutation{drop}"}]`, refused},
		{"POST /graphql", "", js, `{"query":"subscription { a }"}`, refused},
		{"POST /graphql", "", gql, "mutation { drop }", refused},
		{"GET /graphql?query=mutation%7Bdrop%7D", "", "", "", refused},
		{"POST /graphql?query=mutation%7Bdrop%7D", "", js, `{"query":"{a}"}`, unclear},
		{"POST /graphql", "", js, `{"id":"x","extensions":{"persistedQuery":{"sha256Hash":"y"}}}`, unclear},
		{"POST /graphql", "", js, `{"query":"{a}","doc_id":"1"}`, unclear},
		{"POST /graphql", "", js, `{"query":"{a}","extensions":{},"variables":{"x":1}}`, ""},
		{"POST /graphql?extensions=%7B%7D", "", js, `{"query":"{a}"}`, unclear},
		{"POST /graphql", "", js, `{"query":"fragment F on T { a }"}`, unclear},
		{"POST /graphql", "", js, `{"query":"{ a"}`, unclear},
		{"POST /graphql", "", js, `{"query":"{a}","Query":"mutation{drop}"}`, unclear},
		{"POST /graphql", "", form, "query=mutation%7Bdrop%7D", unclear},
		{"POST /graphql", "", "", "", unclear},
		{"GET /graphql?query=%7Bme%7D", "Upgrade: websocket\r\nConnection: Upgrade", "", "", unclear},
		{"POST /graphql?doc_id=1", "", js, `{"query":"{a}"}`, unclear},
		{"POST /graphql?queryId=1", "", js, `{"query":"{a}"}`, unclear},
		{"POST /graphql?operations=x", "", js, `{"query":"{a}"}`, unclear},
		{"POST /graphql?api-version=2", "", js, `{"query":"{a}"}`, ""},
	}
	for _, row := range rows {
		t.Run(row.line+" "+row.header+" "+row.body[:min(len(row.body), 60)], func(t *testing.T) {
			r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(shopRules)}})
			var up seen
			r.upstreams.https(up.echo())
			end := r.begin()
			text := row.line + " HTTP/1.1\r\nHost: " + demoHost + "\r\n"
			for name, value := range map[string]string{"": row.header, "Content-Type: ": row.kind} {
				if value != "" {
					text += name + value + "\r\n"
				}
			}
			if row.body != "" {
				text += fmt.Sprintf("Content-Length: %d\r\n", len(row.body))
			}
			in, _ := r.raw(demoHost, text+"\r\n"+row.body)
			method, _, _ := strings.Cut(row.line, " ")
			req, _ := http.NewRequest(method, "https://"+demoHost, nil)
			resp, err := http.ReadResponse(in, req)
			check(t, err)
			if row.code == "" {
				if resp.StatusCode != 200 || up.count() != 1 || row.body != "" && up.bodies[0] != row.body {
					t.Fatalf("got %d %s", resp.StatusCode, body(t, resp))
				}
				return
			}
			if up.count() != 0 {
				t.Error("the upstream was reached")
			}
			rec := end()
			if resp.StatusCode/100 != 4 || len(rec.Exchanges) != 1 || rec.Exchanges[0].Code != row.code {
				t.Errorf("got %d, the receipt says %+v", resp.StatusCode, rec)
			}
		})
	}
}

// TestPathThatNoRuleReads: if each rule of the host's APIs is for all paths, and nothing else there depends on the path, a
// path that servers read in different ways passes as it was sent. Else it is refused, whichever rule would match.
// Promise: rules
func TestPathThatNoRuleReads(t *testing.T) {
	const all = `, "rules": [{"methods": ["DELETE"], "path": "/**", "then": "refuse"}, {"path": "/**", "then": "allow"}]`
	other := func(extra string) string {
		return strings.NewReplacer(tokenName, "OTHER_API_TOKEN", secretValue, "another-value-of-ours").Replace(demoAPI(extra))
	}
	const operations = `, "operations": `
	inPath := strings.Replace(demoAPI(all), `"`+secretValue+`"`, `{"value": "`+secretValue+`", "in": ["header", "path"]}`, 1)
	for name, row := range map[string]struct {
		apis map[string]string
		want int
	}{
		"all paths":                   {map[string]string{"demo": demoAPI(all)}, 200},
		"no path":                     {map[string]string{"demo": demoAPI(`, "rules": [{"then": "allow"}]`)}, 200},
		"limits of calls":             {map[string]string{"demo": demoAPI(all + `, "limits": {"calls": "9/h", "writes": "9/h"}`)}, 200},
		"idempotency":                 {map[string]string{"demo": demoAPI(all + `, "idempotency": "Idempotency-Key"`)}, 200},
		"a path of another method":    {map[string]string{"demo": demoAPI(strings.Replace(all, `"/**"`, `"/admin/**"`, 1))}, 400},
		"a path in a later rule":      {map[string]string{"demo": demoAPI(strings.Replace(all, `"allow"}]`, `"allow"}, {"path": "/never", "then": "refuse"}]`, 1))}, 400},
		"the path /*":                 {map[string]string{"demo": demoAPI(`, "rules": [{"path": "/*", "then": "allow"}]`)}, 400},
		"a path in another API":       {map[string]string{"demo": demoAPI(all), "other": other(strings.Replace(all, `"/**"`, `"/admin/**"`, 1))}, 400},
		"a sum on a path":             {map[string]string{"demo": demoAPI(all + `, "limits": {"sum": {"path": "/pay", "field": "amount", "max": "9/h"}}`)}, 400},
		"a sum on a path of another":  {map[string]string{"demo": demoAPI(all), "other": other(`, "limits": {"sum": {"path": "/pay", "field": "amount", "max": "9/h"}}`)}, 400},
		"a key that goes into a path": {map[string]string{"demo": inPath}, 400},
		"a key in a path of another":  {map[string]string{"demo": demoAPI(all), "other": strings.NewReplacer(tokenName, "OTHER_API_TOKEN", secretValue, "another-value-of-ours").Replace(inPath)}, 400},
		"operations":                  {map[string]string{"demo": demoAPI(all + operations + `{"only": false}`)}, 200},
		"permitted operations":        {map[string]string{"demo": demoAPI(all + operations + `{"only": true}`)}, 403},
		"operations of another":       {map[string]string{"demo": demoAPI(all), "other": other(all + operations + `{"only": true}`)}, 403},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{apis: row.apis})
			for name, text := range row.apis {
				if strings.Contains(text, operations) {
					const listed = `{"format":1,"server":"https://` + demoHost + `","operations":1,"types":0}` + "\n" + `{"m":"GET","p":"/a","s":""}` + "\n"
					check(t, os.WriteFile(filepath.Join(r.apis, name, "operations.jsonl"), []byte(listed), 0o600))
				}
			}
			r.reloader.Load()
			var mu sync.Mutex
			var got []string
			r.upstreams.https(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, req.RequestURI)
			}))
			r.begin()
			var sent []string
			for _, path := range []string{"/a%2Fb", "/a%25b", "/a//b", "//a", "/a;b=c", "/admin%2fx"} {
				if row.want == 200 {
					sent = append(sent, path)
				}
				in, _ := r.raw(demoHost, "GET "+path+" HTTP/1.1\r\nHost: "+demoHost+"\r\n\r\n")
				resp, err := http.ReadResponse(in, nil)
				check(t, err)
				if resp.StatusCode != row.want {
					t.Errorf("%s: %d", path, resp.StatusCode)
				}
			}
			for line, want := range map[string]int{"DELETE /a//b": 403, "GET /a//b;_method=DELETE": 403, "GET /a%0d%0ab": 400} {
				if !strings.Contains(row.apis["demo"], "DELETE") || row.want != 200 {
					continue
				}
				in, _ := r.raw(demoHost, line+" HTTP/1.1\r\nHost: "+demoHost+"\r\n\r\n")
				resp, err := http.ReadResponse(in, nil)
				check(t, err)
				if resp.StatusCode != want {
					t.Errorf("%s: %d", line, resp.StatusCode)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(got, sent) {
				t.Errorf("at the upstream: %q", got)
			}
		})
	}
}

// TestRulesOfTwo: where two APIs hold a host, the rules of both must permit a request.
// Promise: rules
func TestRulesOfTwo(t *testing.T) {
	other := strings.Replace(demoAPI(`, "rules": [{"methods": ["GET"], "then": "allow"}]`), tokenName, "OTHER_API_TOKEN", 1)
	r := newRig(t, setup{apis: map[string]string{"demo": demoAPI(shopRules), "other": strings.Replace(other, secretValue, "another-value-of-ours", 1)}})
	var up seen
	r.upstreams.https(up.echo())
	r.begin()
	for line, status := range map[string]int{"GET /v1/items": 200, "GET /v2/items": 403, "POST /v1/users": 403} {
		in, _ := r.raw(demoHost, line+" HTTP/1.1\r\nHost: "+demoHost+"\r\nContent-Length: 0\r\n\r\n")
		resp, err := http.ReadResponse(in, nil)
		check(t, err)
		if resp.StatusCode != status {
			t.Errorf("%s: %d", line, resp.StatusCode)
		}
	}
}

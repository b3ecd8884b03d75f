package runner

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// pagesOf answers a list of seven, three at a time, in one of the ways of APIs.
func pagesOf(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	number := func(name string) int { n, _ := strconv.Atoi(q.Get(name)); return n } // 0 is the first
	from := 0
	switch way := strings.TrimPrefix(r.URL.Path, "/pages/"); way {
	case "link", "number", "elsewhere", "null", "beyond", "broken":
		from = 3 * (max(number("page"), 1) - 1)
	case "spring", "zero":
		from = 3 * number("page")
	case "cursor", "url", "again", "uri":
		from = number("cursor")
	case "offset", "capped", "counted":
		from = number("offset")
	case "after":
		from = number("starting_after")
	}
	items := []map[string]any{}
	for i := from; i < min(from+3, 7); i++ {
		items = append(items, map[string]any{"id": i + 1})
	}
	more, body := from+3 < 7, any(nil)
	next := fmt.Sprintf("http://%s%s?page=%d", r.Host, r.URL.Path, from/3+2)
	switch strings.TrimPrefix(r.URL.Path, "/pages/") {
	case "link":
		if more {
			w.Header().Set("Link", fmt.Sprintf(`<%s>; rel="next", <http://x/>; rel="last"`, next))
		}
		body = items
	case "elsewhere":
		w.Header().Set("Link", `<https://evil.test/>; rel="next"`)
		body = items
	case "number", "broken":
		body = map[string]any{"results": items, "count": 7}
	case "cursor":
		meta := map[string]any{"next_cursor": ""}
		if more {
			meta["next_cursor"] = strconv.Itoa(from + 3)
		}
		body = map[string]any{"channels": items, "response_metadata": meta}
	case "null": // as Django's REST framework
		page := map[string]any{"count": 7, "next": nil, "results": items}
		if more {
			page["next"] = next
		}
		if from >= 7 {
			w.WriteHeader(http.StatusNotFound)
		}
		body = page
	case "capped": // whatever limit is asked for
		body = map[string]any{"items": items}
	case "counted": // on this page
		body = map[string]any{"items": items, "count": len(items)}
	case "beyond": // as WordPress
		if from >= 7 {
			w.WriteHeader(http.StatusBadRequest)
		}
		body = items
	case "whole": // whatever page is asked for
		body = []map[string]any{{"id": 1}, {"id": 2}}
	case "spring": // whose first page is 0
		body = map[string]any{"content": items, "number": from / 3, "totalPages": 3, "last": !more}
	case "zero":
		body = items
	case "uri": // as Twilio
		page := map[string]any{"calls": items, "page": from / 3, "next_page_uri": nil}
		if more {
			page["next_page_uri"] = fmt.Sprintf("%s?cursor=%d", r.URL.Path, from+3)
		}
		body = page
	case "url":
		page := map[string]any{"value": items}
		if more {
			page["@odata.nextLink"] = fmt.Sprintf("http://%s%s?cursor=%d", r.Host, r.URL.Path, from+3)
		}
		body = page
	case "again": // the same page for ever
		body = map[string]any{"data": items, "next_cursor": "0"}
	case "offset":
		body = map[string]any{"items": items, "total": 7}
	case "after":
		body = map[string]any{"data": items, "has_more": more}
	case "links":
		body = map[string]any{"_links": []any{map[string]any{"rel": "self"}}, "links": []any{}, "tickets": items[:1]}
	case "two":
		body = map[string]any{"tickets": items[:1], "users": []any{map[string]any{"id": 9}}, "deep": map[string]any{"rows": items[1:2]}}
	case "none":
		body = map[string]any{"a": 1}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

// TestClient: requests are written as the document says, with the token's name, and pages followed in the ways of APIs.
func TestClient(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/pages/", pagesOf)
	mux.HandleFunc("/pages/broken", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("page") == "3" {
			w.WriteHeader(http.StatusPaymentRequired)
			return
		}
		pagesOf(w, r)
	})
	mux.HandleFunc("/fail", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusPaymentRequired)
		_, _ = io.WriteString(w, `{"error":"no money"}`)
	})
	mux.HandleFunc("/planned", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Codeforge-Planned", "3")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{"planned": 3}`)
	})
	mux.HandleFunc("/empty", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // what there is
		_, _ = fmt.Fprintf(w, "%s %s | %s | %s | %s | %s", r.Method, r.RequestURI, r.Header.Get("Authorization"), r.Header.Get("X-Key"),
			r.Header.Get("Content-Type"), body)
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	page := []string{"page", "cursor", "offset", "starting_after", "limit"}
	only := func(name string) []string { return []string{name} }
	table := Table{
		Name: "shop", Call: "shop", Server: s.URL,
		Auth: []Auth{{Header: "Authorization", Basic: []string{"USER_TOKEN", "PASS_TOKEN"}}, {Header: "X-Key", Value: "Key SHOP_KEY"}, {Query: "key", Value: "QUERY_KEY"}},
		Operations: []Operation{
			{Key: "POST /form/{id}/x", Media: "application/x-www-form-urlencoded", Styles: [][2]string{{"list", "comma"}, {"deep", "deep"}, {"__proto__", "json"}}},
			{Key: "PUT /json/{path+}"}, {Key: "POST /multi", Media: "multipart/form-data"}, {Key: "POST /text", Media: "text/plain"},
			{Key: "GET /?Action=Do"}, {Key: "GET /fail"}, {Key: "GET /empty"},
			{Key: "GET /pages/link", Query: []string{"page", "per_page"}}, {Key: "GET /pages/elsewhere", Query: page}, {Key: "GET /pages/number", Query: only("page")},
			{Key: "GET /pages/cursor", Query: only("cursor")}, {Key: "GET /pages/url"}, {Key: "GET /pages/again", Query: only("cursor")},
			{Key: "GET /pages/offset", Query: only("offset")}, {Key: "GET /pages/after", Query: []string{"starting_after", "limit"}}, {Key: "GET /pages/none"},
			{Key: "GET /pages/capped", Query: []string{"offset", "limit"}}, {Key: "GET /pages/counted", Query: only("offset")},
			{Key: "GET /pages/beyond", Query: []string{"page", "per_page"}}, {Key: "GET /pages/whole", Query: []string{"page", "per_page"}},
			{Key: "GET /pages/spring", Query: only("page")}, {Key: "GET /pages/zero", Query: only("page")},
			{Key: "GET /pages/links"}, {Key: "GET /pages/two"}, {Key: "GET /pages/two#", List: "users"}, {Key: "POST /planned"},
			{Key: "GET /users('{id}')/x(a='{a}',b={b})"}, {Key: "GET /dash", Query: []string{"page-size", "address1", "sort"}},
			{Key: "GET /pages/null", Query: only("page")}, {Key: "GET /pages/broken", Query: only("page")}, {Key: "GET /pages/uri", Query: []string{"Page", "PageToken"}},
		},
	}
	const auth = " | Basic VVNFUl9UT0tFTjpQQVNTX1RPS0VO | Key SHOP_KEY | "
	for code, want := range map[string]string{
		`await shop("POST /form/{id}/x", {path: {id: "a/../b?"}, query: {list: [1, 2], deep: {a: {b: 1}, c: ["x"]}, plain: ["p", "q"], obj: {k: "v"}, none: undefined, ["__proto__"]: {a: 1}},
			body: {amount: 5, nested: {a: {b: true}}, items: [{x: 1}, {x: 2}], tags: ["t", "u"], gone: null}})`: `POST /form/a%2F..%2Fb%3F/x?list=1%2C2&deep%5Ba%5D%5Bb%5D=1&deep%5Bc%5D%5B0%5D=x&plain=p&plain=q&k=v&__proto__=%7B%22a%22%3A1%7D&key=QUERY_KEY` + auth +
			`application/x-www-form-urlencoded;charset=UTF-8 | amount=5&nested%5Ba%5D%5Bb%5D=true&items%5B0%5D%5Bx%5D=1&items%5B1%5D%5Bx%5D=2&tags=t&tags=u`,
		`await shop("PUT /json/{path+}", {path: {path: "a b/c"}, body: {a: [1], d: new Date(0)}, headers: {"X-Key": "other"}})`: `PUT /json/a%20b/c?key=QUERY_KEY | Basic VVNFUl9UT0tFTjpQQVNTX1RPS0VO | other | application/json | {"a":[1],"d":"1970-01-01T00:00:00.000Z"}`,
		`(await shop("POST /multi", {body: {file: new Blob(["data"]), n: 1}})).includes('name="file"; filename="blob"')`:        `true`,
		`await shop("POST /text", {body: "plain"})`:            `POST /text?key=QUERY_KEY` + auth + `text/plain | plain`,
		`await shop("GET /?Action=Do", {query: {key: "own"}})`: `GET /?Action=Do&key=own` + auth + ` | `,
		`await shop("GET /empty")`:                             `undefined`,
		`(await shop.raw("GET /fail")).status`:                 `402`,
		`await shop("GET /fail").catch((e) => [e.name, e.status, e.body.error, e.message, e.stack.includes("main.ts")].join())`: `ApiError,402,no money,GET /fail: 402 {"error":"no money"},true`,
		`await shop("POST /form/{id}/x", {path: {id: "a"}})`:                                                                    "POST /form/a/x?key=QUERY_KEY" + auth + "application/x-www-form-urlencoded;charset=UTF-8 | ",
		`await shop("POST /form/{id}/x", {}).catch((e) => e.message)`:                                                           `POST /form/{id}/x needs path: {"id": ...}`,
		`await shop("POST /form/{id}/x", {path: {id: ".."}}).catch((e) => e.message)`:                                           `POST /form/{id}/x: ".." is no id`,
		`await shop("PUT /json/{path+}", {path: {path: "a/../../b"}}).catch((e) => e.message)`:                                  `PUT /json/{path+}: "a/../../b" is no path`,
		`await shop("GET /empty", {params: 1}).catch((e) => e.message)`:                                                         `GET /empty: "params" is not a part of a request; want path, query, headers, body, signal`,
		`await shop("__proto__").catch((e) => e.message.slice(0, 40).trim())`:                                                   `"__proto__" is no operation of shop that`,
		`await ids("GET /pages/link")`:                                                                                          "1234567", `await ids("GET /pages/number")`: "1234567", `await ids("GET /pages/cursor")`: "1234567",
		`await ids("GET /pages/url")`: "1234567", `await ids("GET /pages/offset")`: "1234567", `await ids("GET /pages/after", {query: {limit: 3}})`: "1234567",
		`await ids("GET /pages/capped", {query: {limit: 5}})`: "1234567", `await ids("GET /pages/counted")`: "1234567",
		`await ids("GET /pages/beyond", {query: {per_page: 5}})`: "1234567", `await ids("GET /pages/beyond", {query: {page: 3, per_page: 5}})`: "7",
		`await ids("GET /pages/beyond", {query: {page: 4}}).catch((e) => e.status)`: "400", `await ids("GET /pages/whole", {query: {per_page: 5}})`: "12",
		`await ids("GET /pages/whole")`:  "12",
		`await ids("GET /pages/spring")`: "1234567", `await ids("GET /pages/zero", {query: {page: 0}})`: "1234567",
		`await ids("GET /pages/null")`: "1234567", `await ids("GET /pages/null", {query: {page: 3}})`: "7", `await ids("GET /pages/uri")`: "1234567",
		`await ids("GET /pages/again")`:                             "123123",
		`await ids("GET /pages/elsewhere").catch((e) => e.message)`: `GET /pages/elsewhere: the next page is at https://evil.test`,
		`await ids("GET /pages/links")`:                             "1", `await ids("GET /pages/two#")`: "9",
		`await (async () => { let all = ""; for await (const i of shop.pages("GET /pages/two", {}, "deep/rows")) all += i.id; return all; })()`: "2",
		`await ids("GET /pages/two").catch((e) => e.message)`:                                             `GET /pages/two answers no list: ["deep","tickets","users"]; name the right one: shop.pages("GET /pages/two", {...}, "tickets")`,
		`await shop.pages("GET /pages/two", {}, "deep").next().catch((e) => e.message.slice(0, 44))`:      `GET /pages/two answers no list at "deep": ["`,
		`await shop("GET /users('{id}')/x(a='{a}',b={b})", {path: {id: "O'Brien/x", a: "')/y('", b: 5}})`: "GET /users('O''Brien%2Fx')/x(a=''')%2Fy(''',b=5)?key=QUERY_KEY" + auth + " | ",
		`await shop("GET /dash", {query: {page_size: 5}}).catch((e) => e.message)`:                        `GET /dash: query has no "page_size"; did you mean "page-size"?`,
		`await shop("GET /dash", {query: {pageSizes: 5}}).catch((e) => e.message)`:                        `GET /dash: query has no "pageSizes"; did you mean "page-size"?`,
		`await shop("GET /dash", {query: {address2: 5, other: 1, "page-size": 2, page_size: 3}})`:         "GET /dash?address2=5&other=1&page-size=2&page_size=3&key=QUERY_KEY" + auth + " | ",
		`await shop("GET /dash", {query: {pgae_size: 5}}).catch((e) => e.message)`:                        `GET /dash: query has no "pgae_size"; did you mean "page-size"?`,
		`await shop("POST /planned").then((r) => Deno.inspect(r) + JSON.stringify([r]) + r.planned)`:      `{ planned: 3 }[{"planned":3}]3`,
		`await shop("POST /planned").then(({ id }) => id).catch((e) => e.message)`:                        `POST /planned was not sent: it is step 3 of the plan of this dry run, so its answer has no "id". Approve the plan up to it, or run without dry_run`,
		`await shop("POST /planned").then((r) => "/x/" + r).catch((e) => e.name)`:                         `TypeError`,
		`await ids("GET /pages/none").catch((e) => e.message)`:                                            `GET /pages/none answers no list: ["a"]`,
		`await (async () => { for await (const i of shop.pages("GET /pages/link")) return i.id; })()`:     "1",

		// The items before a failure stay with the code.
		`await (async () => { let n = 0; try { for await (const _ of shop.pages("GET /pages/broken")) n++; } catch (e) { return n + " " + e.status; } })()`: "6 402",
	} {
		if got := runClient(t, table, code); got != want {
			t.Errorf("%s\n got %s\nwant %s", code, got, want)
		}
	}
}

// TestClientTriesAgain: a client repeats only repeatable requests while a server is busy. Near the run's end the code
// gets the error.
func TestClientTriesAgain(t *testing.T) {
	var mu sync.Mutex
	tries := map[string]int{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		tries[r.URL.Path]++
		n := tries[r.URL.Path]
		mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		if n == 3 {
			_, _ = w.Write(append([]byte("served "), body...))
			return
		}
		for name, after := range map[string]string{"/long": "31", "/soon": "1", "/bare": "", "/past": time.Now().UTC().Format(http.TimeFormat)} {
			if r.URL.Path == name {
				w.Header().Set("Retry-After", after)
			}
		}
		status := map[string]int{"/bare": 429, "/limited": 429, "/failed": 500, "/wrong": 501}[r.URL.Path]
		switch {
		case r.URL.Path == "/bare":
			w.Header().Del("Retry-After")
		case w.Header().Get("Retry-After") == "":
			w.Header().Set("Retry-After", "0")
		}
		w.WriteHeader(cmp.Or(status, 503))
		if r.URL.Path == "/refused" {
			_, _ = io.WriteString(w, `{"error":"no","code":"limit_reached","hint":"wait"}`)
		}
	}))
	defer s.Close()
	table := Table{Name: "shop", Call: "shop", Server: s.URL, End: time.Now().Add(time.Hour).UnixMilli()}
	for _, key := range []string{"GET /limited", "PUT /put", "POST /post", "GET /bare", "GET /failed", "GET /wrong", "GET /long", "GET /past", "GET /refused", "GET /raw", "GET /soon"} {
		table.Operations = append(table.Operations, Operation{Key: key})
	}
	for code, want := range map[string]string{
		`await shop("GET /limited")`:                        "served  3",
		`await shop("PUT /put", {body: {a: 1}})`:            `served {"a":1} 3`,
		`await shop("POST /post").catch((e) => e.status)`:   "503 1",
		`await shop("GET /bare")`:                           "served  3",
		`await shop("GET /failed")`:                         "served  3",
		`await shop("GET /wrong").catch((e) => e.status)`:   "501 1",
		`await shop("GET /long").catch((e) => e.status)`:    "503 1",
		`await shop("GET /past")`:                           "served  3",
		`await shop("GET /refused").catch((e) => e.status)`: "503 1",
		`(await shop.raw("GET /raw")).status`:               "503 1",
	} {
		got := runClient(t, table, code)
		path, _, _ := strings.Cut(strings.Fields(code[strings.Index(code, "/"):])[0], `"`)
		if got = fmt.Sprint(got, " ", tries[path]); got != want {
			t.Errorf("%s: %s, want %s", code, got, want)
		}
	}
	table.End = time.Now().Add(2 * time.Second).UnixMilli()
	if got := runClient(t, table, `await shop("GET /soon").catch((e) => e.status)`); got != "503" || tries["/soon"] != 1 {
		t.Errorf("near the end: %s after %d tries", got, tries["/soon"])
	}
}

// runClient prints an expression of code that imports a client.
func runClient(t *testing.T, table Table, expression string) string {
	t.Helper()
	dir := t.TempDir()
	text, err := ClientModule(table)
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "client.ts"), text, 0o600))
	code := `import { ` + table.Call + ` } from "./client.ts";
const ids = async (o, input) => { let all = ""; for await (const i of ` + table.Call + `.pages(o, input)) all += i.id; return all; };
console.log(String(` + expression + `));`
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "main.ts"), []byte(code), 0o600))
	cmd := exec.CommandContext(t.Context(), testkit.DenoPath(t), "run", "--no-config", "--no-remote", "--allow-net=127.0.0.1", filepath.Join(dir, "main.ts")) //nolint:gosec // the pinned Deno
	cmd.Env = []string{"NO_COLOR=1", "HOME=" + dir, "DENO_DIR=" + dir}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", expression, err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// TestClientHostile: whatever a document says, a client is its script, and one literal that holds all of it.
func TestClientHostile(t *testing.T) {
	for _, evil := range []string{
		`"+evil()+"`, "`${evil()}`", `\"); evil(); //`, "*/ evil() /*", "</script><!--", "\u2028evil()\u2029", "\u202e\u2066", "\x00\n\r", "__proto__", "constructor", "\U0001f600", "\xff\xfe",
	} {
		table := Table{
			Name: evil, Call: "shop", Server: "http://127.0.0.1:9/" + evil, Note: evil, Auth: []Auth{{Header: evil, Value: evil, Basic: []string{evil}}},
			Operations: []Operation{{Key: "GET /" + evil, Media: evil, Server: evil, Styles: [][2]string{{evil, evil}}, Query: []string{evil}, Fields: []string{evil}}},
		}
		text, err := ClientModule(table)
		testkit.Must(t, err)
		first, rest, _ := strings.Cut(string(text), "\n")
		if !strings.HasSuffix(rest, clientScript+"\nexport { api as shop, ApiError };\nexport default api;\n") || len(rest) != len(clientScript)+len("\nexport { api as shop, ApiError };\nexport default api;\n") {
			t.Errorf("%q changes the script", evil)
		}
		literal := strings.TrimSuffix(strings.TrimPrefix(first, `const table = JSON.parse("`), `");`)
		for i, r := range literal {
			if r < ' ' || r > '~' || strings.ContainsRune("\"'`<$*/", r) || r == '\\' && literal[i+1] != 'u' {
				t.Fatalf("%q: %q in %s", evil, r, literal)
			}
		}
		if got := runClient(t, table, "typeof shop + typeof evil + ({}).media"); got != "functionundefinedundefined" {
			t.Errorf("%q gives %s", evil, got)
		}
	}
	for _, name := range []string{"", "a-b", "a b", "1a", "é", "a;evil()", "a}"} {
		if text, err := ClientModule(Table{Call: name}); err == nil {
			t.Errorf("%q is imported: %.60s", name, text)
		}
	}
}

package skill_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/skills"
)

const openAPI = `{"openapi": "3.1.0", "paths": {
	"/v1/invoices": {"get": {"summary": "List invoices", "tags": ["billing"], "parameters": [{"$ref": "#/components/parameters/Limit"}]},
	                 "post": {"operationId": "createInvoice", "requestBody": {"$ref": "#/components/schemas/Node"}}},
	"/v1/a~b": {"get": {"summary": "Other"}}},
	"components": {"parameters": {"Limit": {"name": "limit", "in": "query"}},
	               "schemas": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Node"}}}}}}`

// upstream is an API with an OpenAPI document and lists paged in three ways. It is busy once.
func upstream(t *testing.T) string {
	t.Helper()
	busy := true
	answer := func(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }
	items := func(from, to int) []map[string]any {
		var out []map[string]any
		for i := from; i < to; i++ {
			out = append(out, map[string]any{"id": i, "name": fmt.Sprint("n", i)})
		}
		return out
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/openapi.json", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(openAPI)) })
	mux.HandleFunc("/cursor", func(w http.ResponseWriter, r *http.Request) {
		if busy {
			busy = false
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		from, _ := strconv.Atoi(r.FormValue("after"))
		answer(w, map[string]any{"data": items(from, from+10), "has_more": from < 20, "next": from + 10})
	})
	mux.HandleFunc("/link", func(w http.ResponseWriter, r *http.Request) {
		page, _ := strconv.Atoi(r.FormValue("page"))
		if page < 2 {
			w.Header().Set("Link", fmt.Sprintf(`<http://%s/link?page=0>; rel="first", </link?page=%d>; rel="next"`, r.Host, page+1))
		}
		answer(w, items(page*5, page*5+5))
	})
	mux.HandleFunc("/many", func(w http.ResponseWriter, r *http.Request) {
		page, _ := strconv.Atoi(r.FormValue("page"))
		w.Header().Set("Link", fmt.Sprintf(`</many?page=%d>; rel="next"`, page+1))
		answer(w, items(page, page+1))
	})
	mux.HandleFunc("/loop", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", `</loop>; rel="next"`)
		answer(w, items(0, 1))
	})
	mux.HandleFunc("/elsewhere", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", `<http://evil.example.com/x>; rel=next`)
		answer(w, items(0, 1))
	})
	mux.HandleFunc("/broken", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("page") != "" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		w.Header().Set("Link", `</broken?page=1>; rel="next"`)
		answer(w, items(0, 5))
	})
	mux.HandleFunc("/denied", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) })
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// TestShippedInDeno runs the shipped skills in real Deno against a real server.
func TestShippedInDeno(t *testing.T) {
	deno := testkit.DenoPath(t)
	dir, url := t.TempDir(), upstream(t)
	if err := os.CopyFS(dir, skills.Files); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, code, want string }{
		{"find", `import { load, find } from "./explore-openapi.ts"; console.log(find(await load(URL + "/openapi.json"), "INVOICE"))`,
			"GET /v1/invoices  List invoices  [billing]\nPOST /v1/invoices  createInvoice\n"},
		{"show resolves and ends", `import { load, show } from "./explore-openapi.ts"; const d = await load(URL + "/openapi.json"); console.log(show(d, "GET /v1/invoices").includes('"in": "query"'), show(d, "post /v1/invoices").includes('"$ref"'))`,
			"true true\n"},
		{"no such operation", `import { load, show } from "./explore-openapi.ts"; try { show(await load(URL + "/openapi.json"), "GET /x") } catch (e) { console.log(e.message) }`,
			"no operation GET /x; find() lists them\n"},
		{"no document", `import { load } from "./explore-openapi.ts"; try { await load(URL + "/denied") } catch (e) { console.log(e.message.includes("answered 403: no")) }`, "true\n"},
		{"cursor, busy once", `import { all } from "./page-through.ts"; const x = await all(URL + "/cursor", { next: (b) => b.has_more ? { after: b.next } : null }); console.log(x.length, x[29].id)`, "30 29\n"},
		{"link header", `import { all } from "./page-through.ts"; console.log((await all(URL + "/link")).length)`, "15\n"},
		{"more pages than the default", `import { all } from "./page-through.ts"; try { await all(URL + "/many") } catch (e) { console.log(e.message) }`, "stopped after 100 pages, and there are more: give maxPages\n"},
		{"as many pages as asked for", `import { all } from "./page-through.ts"; console.log((await all(URL + "/many", { maxPages: 3 })).length)`, "3\n"},
		{"a loop ends", `import { all } from "./page-through.ts"; try { await all(URL + "/loop") } catch (e) { console.log(e.message.includes("was read before")) }`, "true\n"},
		{"credentials stay with their origin", `import { all } from "./page-through.ts"; try { await all(URL + "/elsewhere") } catch (e) { console.log(e.message.includes("another origin")) }`, "true\n"},
		{"an error has the earlier items", `import { all } from "./page-through.ts"; try { await all(URL + "/broken") } catch (e) { console.log(e.message.includes("answered 403"), e.items.length, e.items[4].id) }`, "true 5 4\n"},
		{"pages before an error", `import { pages } from "./page-through.ts"; let n = 0; try { for await (const _ of pages(URL + "/broken")) n++ } catch { console.log(n) }`, "5\n"},
		{"refused", `import { all } from "./page-through.ts"; try { await all(URL + "/denied") } catch (e) { console.log(e.message.includes("answered 403")) }`, "true\n"},
		{"compare", `import { compare, table } from "./compare-lists.ts";
			const r = compare([{e: "a", n: 1}, {e: "b", n: 2}, {e: "b", n: 3}, {e: "", n: 0}], [{m: "b", n: 5}, {m: "c", n: 6}], { left: (x) => x.e, right: (x) => x.m, fields: { n: [(x) => x.n, (x) => x.n] } });
			console.log(table(r))`,
			"both 1, only left 1, only right 1, fields that differ 1\nleft: 1 keys occur twice, e.g. b\nleft: 1 items have no key\nb  n: 2 | 5\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			main := filepath.Join(dir, "main.ts")
			if err := os.WriteFile(main, []byte(strings.ReplaceAll(c.code, "URL +", strconv.Quote(url)+" +")), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), deno, "run", "--no-prompt", "--no-config", "--no-remote", "--allow-net="+strings.TrimPrefix(url, "http://"), main)
			cmd.Env = []string{"NO_COLOR=1", "HOME=" + dir, "DENO_DIR=" + filepath.Join(dir, ".deno"), "DENO_NO_UPDATE_CHECK=1"}
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != c.want {
				t.Errorf("%v\n got %q\nwant %q", err, out, c.want)
			}
		})
	}
}

package apidoc

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runner"
)

var imported = flag.String("imported", "", "a `folder` of APIs, all of whose operations.jsonl TestDeclarations reads too")

// hostile has everything in a name that could end a literal, a comment or a declaration, or that JavaScript knows.
const hostile = `{"format":1,"title":"*/ ` + "`" + `${x}","server":"https://api.shop.test/${evil}","auth":[{"token":"SHOP_TOKEN","place":"header:Authorization","value":"\"+evil()+\"${evil()}` + "`" + ` */ SHOP_TOKEN"}],"operations":6,"types":3,"common":"{ __proto__?: string }"}
{"type":"__proto__","ts":"{ __proto__: __proto__[]; constructor?: string }"}
{"type":"constructor","ts":"\"*/\" | \"` + "`" + `${evil()}\" | \"\\\"; evil(); //\" | \"\\u202e\""}
{"type":"Any","ts":"{ unknown: unknown; \"unknown?\"?: unknown; \"a: b\": \"unknown\" }"}
{"m":"POST","p":"/{__proto__}/${evil()}/*/` + "`" + `/\"+evil()+\"/{constructor+}","id":"__proto__","s":"*/ evil() /*","q":"{ \"*/\": string; \"${evil()}\"?: number; \"a?: b\"?: string[]; __proto__?: string; \"\\u202e\\u{1f600}\": number }","qs":{"__proto__":"deep","*/":"json"},"h":"{ \"` + "`" + `\": string; \"X-A\"?: string }","b":"{ \"\\\"; evil(); //\": string; toString: number }","bm":"application/x-www-form-urlencoded","a":"constructor[]"}
{"m":"GET","p":"/__proto__","a":"Any"}
{"m":"GET","p":"/'+evil()+'","pp":"{ x: number }","a":"__proto__ & { data: constructor[] }"}
{"m":"GET","p":"/unicode","s":"日本語 ñ","q":"{ \"日本語\"?: \"ñ\"; [key: string]: unknown }","b":"unknown"}
{"m":"PUT","p":"/{a}/{a}","b":"Blob | string","bm":"text/*/","bo":true,"a":"Blob","srv":"https://other.test/*"}
{"m":"GET","p":"/list","q":"{ ids?: number[]; sort?: (\"a\" | \"b\")[]; tags?: Any[]; flag: boolean }","qs":{"tags":"deep"},"a":"{ items: { id: string }[] } | null"}
`

// client is what a client begins with: one string of printable ASCII, in which every quote is written as a number.
var clientText = regexp.MustCompile(`^const table = JSON\.parse\("(?:[ !#%&()+,\-.:;=?@A-Z\[\]^_a-z{|}~0-9]|\\u[0-9a-f]{4}|\\u\{[0-9a-f]{5,6}\})*"\);\n`)

// TestFindKeys: code names operations in quotes of each kind, also those whose paths have quotes.
func TestFindKeys(t *testing.T) {
	for code, want := range map[string]string{
		`shop("GET /users('{id}')/x")`: "GET /users('{id}')/x", `shop('GET /users(\'{id}\')')`: "GET /users('{id}')",
		"shop(`GET /users('{id}')`)": "GET /users('{id}')", `shop('GET /a', "x"); y = "b"`: "GET /a",
		`"GET /a b"`: "", `'GET /a"`: "", `"GET /a\n"`: "",
	} {
		if got := slices.Sorted(maps.Keys(findKeys(code))); strings.Join(got, " ") != want {
			t.Errorf("%s names %q, want %q", code, got, want)
		}
	}
}

// TestFindList: of several arrays in an answer, the list is the one of objects, or the one that the path names.
func TestFindList(t *testing.T) {
	d := read(t, `{"format":1,"server":"https://a.test","operations":1,"types":3}
{"type":"Link","ts":"{ rel: string }"}
{"type":"Tickets","ts":"Ticket[]"}
{"type":"Ticket","ts":"{ id: number }"}
{"m":"GET","p":"/x"}
`)
	for answer, want := range map[string]string{
		"{ _links?: Link[]; links: Link[]; tickets?: Ticket[]; total: number }": "tickets", "{ links: Link[]; tickets: Tickets }": "tickets",
		"{ tags: string[]; rows: Ticket[]; \"kinds\"?: (\"a\" | \"b\")[] }": "rows", "{ users: Ticket[]; tickets: Ticket[] }": "tickets",
		"{ ids: string[]; names: string[] }": "", "{ id: number }": "", "Ticket[]": "", "{ users: Ticket[]; groups: Ticket[] }": "", "{ Errors: Link[]; Result: Ticket[] }": "Result",
	} {
		if got := d.findList(operation.Line{Path: "/v1/{id}/tickets.json", Answer: answer}); got != want {
			t.Errorf("%s: %q, want %q", answer, got, want)
		}
	}
}

// TestDeclarations: what is generated of a document compiles strictly, whatever names the document has, and nothing of
// it is code but one literal.
// Promise: documents-are-data
func TestDeclarations(t *testing.T) {
	files := map[string]string{"hostile": hostile, "shop": shop}
	if *imported != "" {
		paths, err := filepath.Glob(filepath.Join(*imported, "*", "operations.jsonl"))
		testkit.Must(t, err)
		if len(paths) == 0 {
			t.Fatal("no operations.jsonl in " + *imported)
		}
		for _, path := range paths {
			files[filepath.Base(filepath.Dir(path))] = path
		}
	}
	rest := ""
	checkDeclarations(t, files, func(name string, table runner.Table) {
		text, err := runner.ClientModule(table)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		begin := clientText.Find(text)
		if begin == nil {
			t.Fatalf("%s: %.400s", name, text)
		}
		same := strings.ReplaceAll(string(text[len(begin):]), "api as "+table.Call+",", "api as NAME,")
		if rest == "" {
			rest = same
		}
		if same != rest {
			t.Errorf("%s: another client", name)
		}
	})
}

// checkDeclarations generates declarations of all operations and has the compiler check them: as many at a time as have
// room for all of their types.
func checkDeclarations(t *testing.T, files map[string]string, each func(name string, table runner.Table)) {
	t.Helper()
	dir := t.TempDir()
	globals, err := os.ReadFile(filepath.Join(testkit.RootDir(t), "sandbox-image", "internal", "typecheck", "globals.d.ts"))
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "globals.d.ts"), globals, 0o600))
	var batch []string
	size, documents, operations, declared := 0, 0, 0, 0
	flush := func() {
		if len(batch) > 0 {
			compileStrictly(t, dir, batch)
		}
		for _, f := range batch {
			_ = os.Remove(filepath.Join(dir, f))
		}
		batch, size = nil, 0
	}
	for name, path := range files {
		var d *Document
		if path[0] == '{' {
			d = read(t, path)
		} else {
			f, err := os.Open(path)
			testkit.Must(t, err)
			d, err = ReadDocument(name, f)
			_ = f.Close()
			testkit.Must(t, err)
		}
		documents++
		var declare func(from, to int)
		declare = func(from, to int) {
			keys := map[string]bool{}
			for i := from; i < to; i++ {
				keys[d.OperationKey(i)] = true
			}
			table, types := d.ClientTable(keys, []string{"SHOP_TOKEN"})
			if to-from > 1 && crowded(d, types) {
				declare(from, (from+to)/2)
				declare((from+to)/2, to)
				return
			}
			each(name, table)
			if types == "" {
				return
			}
			operations += len(table.Operations)
			file := fmt.Sprintf("%s-%d.d.ts", name, from)
			testkit.Must(t, os.WriteFile(filepath.Join(dir, file), []byte(types), 0o600))
			declared += len(types)
			batch, size = append(batch, file), size+len(types)
			if size > 24<<20 {
				flush()
			}
		}
		for from := 0; from < d.OperationCount(); from += maxCalled {
			declare(from, min(from+maxCalled, d.OperationCount()))
		}
	}
	flush()
	t.Logf("%d documents, %d operations, %d MB of declarations compile strictly", documents, operations, declared>>20)
}

// crowded reports whether declarations have a type as any that the document says more of.
func crowded(d *Document, types string) bool {
	for _, m := range asAny.FindAllStringSubmatch(types, -1) {
		if known, ok := d.Type(m[1]); ok && widenType(known.TS) != "any" {
			return true
		}
	}
	return false
}

var asAny = regexp.MustCompile(`(?m)^type (.+) = any;$`)

// compileStrictly has the compiler check files with all that it can check.
func compileStrictly(t *testing.T, dir string, files []string) {
	t.Helper()
	config, err := json.Marshal(map[string]any{
		"compilerOptions": map[string]any{
			"strict": true, "noEmit": true, "target": "esnext", "module": "esnext", "moduleResolution": "bundler",
			"lib": []string{"esnext"}, "types": []string{}, "skipLibCheck": false,
		},
		"files": append([]string{"globals.d.ts"}, files...),
	})
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "tsconfig.json"), config, 0o600))
	out, err := exec.CommandContext(t.Context(), filepath.Join(testkit.TypeScript(t), "tsc"), "-p", dir, "--pretty", "false").CombinedOutput() //nolint:gosec // the pinned compiler
	if err != nil {
		lines := strings.SplitN(string(out), "\n", 30)
		t.Errorf("%v\n%s", err, strings.Join(lines[:min(len(lines), 29)], "\n"))
	}
}

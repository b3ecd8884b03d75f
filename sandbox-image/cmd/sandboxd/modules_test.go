package main

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runner"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

const shopTypes = `export {};
type input = { path: { id: string }; body?: { amount?: number; reason?: "duplicate" | "fraud" } };
interface operations { "POST /refunds/{id}": { input: [input: input]; answer: { id: string } } }
declare const api: { <K extends keyof operations>(o: K, ...i: operations[K]["input"]): Promise<operations[K]["answer"]>; raw: any };
export { api as shop };
`

// shop is a client of an API that nothing answers.
func shop(t *testing.T, types string) []sandboxapi.Module {
	t.Helper()
	table, err := json.Marshal(runner.Table{
		Name: "shop", Call: "shop", Server: "http://127.0.0.1:9",
		Operations: []runner.Operation{{Key: "POST /refunds/{id}"}},
	})
	testkit.Must(t, err)
	return []sandboxapi.Module{{Name: "shop", Table: table, Types: types}}
}

// TestModules: code imports its clients from /apis/, is checked by their types in its slot, and is not run if it has
// mistakes. What is wrong in other ways is not a mistake.
func TestModules(t *testing.T) {
	RunInModes(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 2, Warm: 1, TypeScript: true})
		h, err := w.Client.Health(t.Context())
		if err != nil || h.TypeScript == "" {
			t.Fatalf("%+v %v", h, err)
		}
		w.Modules = shop(t, shopTypes)
		const begin = `import { shop } from "/apis/shop.ts";` + "\n"
		for code, want := range map[string]string{
			`console.log(typeof shop, typeof shop["raw"])`:                                                     "function function",
			`const f = () => shop("POST /refunds/{id}", {path: {id: "1"}, body: {amount: 1}}); console.log(1)`: "1",
			`let n: number = "x"; console.log(n, undeclared?.x)`:                                               "ReferenceError",
			`const f = () => shop("POST /refunds/{id}", {path: {id: "1"}, body: {amountt: 1}});`:               "2:69 2561",
			`const f = () => shop("POST /refunds/{id}", {path: {id: "1"}, body: {reason: "fraude"}});`:         "2:69 2820",
			`const f = () => shop("POST /refunds/{id}");`:                                                      "2:17 2554",
			`const f = () => shop("POST /refund/{id}", {path: {id: "1"}});`:                                    "2:22 2345",
			`const f = async () => (await shop("POST /refunds/{id}", {path: {id: "1"}})).idd;`:                 "2:77 2339",
			"// @ts-ignore\n" + `const f = () => shop("POST /refunds/{id}"); console.log("ignored")`:           "ignored",
		} {
			if m != Root && !testkit.IsThorough() && want != "2:69 2561" && want != "1" {
				continue // the compiler decides alike in all modes; two rows show that it works in each
			}
			r := w.RunCode(t, begin+code, testkit.Patience)
			got := r.Stdout + r.Stderr
			if r.Exit.Reason == sandboxapi.Mistaken {
				if r.Stdout+r.Stderr != "" || len(r.Exit.Mistakes) != 1 {
					t.Errorf("%s: %+v", code, r)
				}
				x := r.Exit.Mistakes[0]
				got = strings.Join([]string{strconv.Itoa(x.Line) + ":" + strconv.Itoa(x.Column), strconv.Itoa(x.Code), x.Text}, " ")
			}
			if !strings.Contains(got, want) {
				t.Errorf("%s\ngives %+v %s\nwant %s", code, r.Exit, got, want)
			}
		}
		if r := w.RunCode(t, "// @ts-nocheck\n"+begin+`if (0) shop("x"); console.log(1)`, testkit.Patience); r.Stdout != "1\n" {
			t.Errorf("%+v", r)
		}
		w.Modules = shop(t, "")
		if r := w.RunCode(t, begin+`if (0) shop(1, 2, 3); console.log(1)`, testkit.Patience); r.Stdout != "1\n" {
			t.Errorf("without types: %+v", r)
		}
		w.Modules = nil
		if r := w.RunCode(t, begin, testkit.Patience); !strings.Contains(r.Stderr, "Module not found") {
			t.Errorf("without clients: %+v", r)
		}
	})
}

// TestModulesBroken: whatever declarations hold, they are only read by the compiler, and code that uses nothing of them
// runs.
func TestModulesBroken(t *testing.T) {
	w := StartWorld(t, Options{Mode: Root, Slots: 1, TypeScript: true})
	for _, types := range []string{
		"}}} ; declare global { interface Array<T> { length: string } } {{{",
		"console.log('code'); import '/skills/evil.ts'; Deno.exit(3);",
		`/// <reference path="../../../etc/passwd" />` + "\nexport * from '/proc/self/environ';",
	} {
		w.Modules = shop(t, types)
		r := w.RunCode(t, `import * as all from "/apis/shop.ts"; console.log(typeof (all as any).default, [1].length + 1)`, testkit.Patience)
		if r.Stdout != "function 2\n" {
			t.Errorf("%s: %+v", types, r)
		}
	}
}

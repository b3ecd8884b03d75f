package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// echoed is a document of operations that httpbin.test answers: it says what it was sent.
const echoed = `openapi: 3.0.3
info: {title: Echo, version: "1"}
servers: [{url: https://httpbin.test}]
security: [{key: []}]
paths:
  /anything/{id}:
    post:
      operationId: say
      parameters:
        - {name: id, in: path, required: true, schema: {type: string}}
        - {name: page, in: query, schema: {type: integer}}
        - {name: tags, in: query, explode: false, schema: {type: array, items: {type: string}}}
      requestBody:
        required: true
        content:
          application/x-www-form-urlencoded:
            schema:
              type: object
              required: [amount]
              properties:
                amount: {type: integer}
                reason: {type: string, enum: [duplicate, fraud]}
                metadata: {type: object, additionalProperties: {type: string}}
      responses: {"200": {description: ok, content: {application/json: {schema: {$ref: "#/components/schemas/Echo"}}}}}
  /anything/users('{id}'):
    get:
      parameters:
        - {name: id, in: path, required: true, schema: {type: string}}
        - {name: page-size, in: query, schema: {type: integer}}
      responses: {"200": {description: ok, content: {application/json: {schema: {$ref: "#/components/schemas/Echo"}}}}}
  /status/404:
    get: {responses: {"200": {description: ok}}}
  /json:
    get: {responses: {"200": {description: ok}}}
    put:
      requestBody: {content: {application/json: {schema: {type: object, properties: {a: {type: number}}}}}}
      responses: {"200": {description: ok}}
components:
  securitySchemes: {key: {type: http, scheme: bearer}}
  schemas:
    Echo:
      type: object
      properties:
        method: {type: string}
        url: {type: string}
        headers: {type: object, additionalProperties: {type: array, items: {type: string}}}
        form: {type: object, additionalProperties: {type: array, items: {type: string}}}
`

// imported is the operations.jsonl that codeforge api add makes of a document.
func imported(t *testing.T, document, token string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "echo.yaml"), []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	program, err := world.Program("codeforge")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "api", "add", "shop", "--openapi", "echo.yaml", "--token", token, "--apis", "apis") //nolint:gosec // the product
	cmd.Stdin = strings.NewReader("not the credential of the test\n")
	cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "apis", "shop", "operations.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTypedClient: code imports the client of a document that was imported. Its requests are swapped, scrubbed, decided
// and on the receipt as those of fetch are; and mistakes are found before anything is sent.
func TestTypedClient(t *testing.T) {
	operations := imported(t, echoed, "OTHER_TOKEN")
	w := world.Start(t, world.Config{Change: func(apis []world.API) []world.API {
		for i, a := range apis {
			if a.Name == "other" {
				a.Name, a.Operations = "shop", operations
				a.Config["domains"] = []string{"httpbin.test"}
				a.Config["restricted_methods"] = []string{"PUT"}
				apis[i] = a
			}
		}
		return apis
	}})
	const begin = `import { shop } from "/apis/shop.ts";` + "\n"
	t.Run("request", func(t *testing.T) {
		res := w.MustExecute(t, begin+`const answer = await shop("POST /anything/{id}", {
  path: { id: "a/b c" }, query: { page: 2, tags: ["x", "y"] }, body: { amount: 5, reason: "fraud", metadata: { k: "v" } },
});
console.log(answer.method, answer.url, JSON.stringify(answer.form), answer.headers["Authorization"][0], answer.headers["Content-Type"][0]);
`, "shop")
		want := `POST http://httpbin.test/anything/a%2Fb%20c?page=2&tags=x%2Cy {"amount":["5"],"metadata[k]":["v"],"reason":["fraud"]} ` +
			"Bearer OTHER_TOKEN application/x-www-form-urlencoded;charset=UTF-8\n"
		if res.IsError || res.Out != want {
			t.Errorf("out  %q\nwant %q\n%s", res.Out, want, res.Notes)
		}
		ex := res.Receipt.Exchanges
		if len(ex) != 1 || len(ex[0].Swapped) != 1 || ex[0].Swapped[0].Name != "OTHER_TOKEN" || ex[0].Sanitized == 0 {
			t.Errorf("receipt %+v", res.Receipt)
		}
		if where := w.Leak(res.JSON); where != "" {
			t.Errorf("the result holds a credential: %s", where)
		}
	})
	t.Run("a path with quotes", func(t *testing.T) {
		for _, literal := range []string{`"GET /anything/users('{id}')"`, `'GET /anything/users(\'{id}\')'`} {
			res := w.MustExecute(t, begin+`console.log((await shop(`+literal+`, { path: { id: "O'Brien" } })).url);`, "shop")
			if want := "http://httpbin.test/anything/users('O''Brien')\n"; res.IsError || res.Out != want {
				t.Errorf("%s: out %q, want %q\n%s", literal, res.Out, want, res.Notes)
			}
		}
	})
	t.Run("a parameter misspelt where types cannot tell", func(t *testing.T) {
		res := w.MustExecute(t, begin+`const query: any = JSON.parse('{"page_size": 5}');
await shop("GET /anything/users('{id}')", { path: { id: "1" }, query });`, "shop")
		if !strings.Contains(res.JSON, `did you mean \\\"page-size\\\"`) && !strings.Contains(res.JSON, `did you mean \"page-size\"`) || len(res.Receipt.Exchanges) != 0 {
			t.Errorf("%s %+v", res.JSON, res.Receipt)
		}
	})
	t.Run("a step that needs an answer of a dry run", func(t *testing.T) {
		code := begin + `const order = await shop("POST /anything/{id}", { path: { id: "1" }, body: { amount: 5 } });
await shop("POST /anything/{id}", { path: { id: "2" }, body: { amount: 5, reason: (order as any).reason } });`
		p, r := dry(t, w, "", code, "typed")
		if p == nil || p.Writes != 1 || !strings.Contains(p.Picture[0], "INCOMPLETE") || !strings.Contains(p.Ended, "exit code 1") ||
			!strings.Contains(r.JSON, "step 1 of the plan") || !strings.Contains(r.Notes, "INCOMPLETE") {
			t.Errorf("%+v\n%s\n%s", p, r.Out, r.Notes)
		}
	})
	t.Run("error", func(t *testing.T) {
		res := w.MustExecute(t, begin+`try { await shop("GET /status/404"); } catch (e) { console.log(e.name, e.status, e.message.slice(0, 20)); }
await shop("PUT /json", { body: { a: 1 } });`, "shop")
		if !res.IsError || !strings.Contains(res.Out, "ApiError 404 GET /status/404: 404") || !strings.Contains(res.Out, "PUT /json: 403") || !strings.Contains(res.Out, "main.ts:3") {
			t.Errorf("%v %q %q", res.IsError, res.Out, res.Notes)
		}
	})
	t.Run("mistakes", func(t *testing.T) {
		for code, want := range map[string]string{
			`await shop("POST /anything/{id}", { path: { id: "1" }, body: { amountt: 1 } });`:                 `2:64 'amountt' does not exist in 'the body of POST /anything/{id}'. Did you mean 'amount'?`,
			`await shop("POST /anythin/{id}", { path: { id: "1" }, body: { amount: 1 } });`:                   `2:12 'POST /anythin/{id}' is no operation of shop; nearest: POST /anything/{id}`,
			`await shop("POST /anything/{id}", { path: { id: "1" } });`:                                       "Property 'body' is missing in type",
			`const a = await shop("POST /anything/{id}", { path: { id: "1" }, body: { amount: 1 } }); a.uri;`: `2:92 Property 'uri' does not exist on type 'Echo'.`,
		} {
			res := w.MustExecute(t, begin+code, "shop")
			if !res.IsError || !strings.HasPrefix(res.Out, "Type errors, not run:\n") || !strings.Contains(res.Out, want) || len(res.Receipt.Exchanges) != 0 {
				t.Errorf("%s\ngives %v %s\n%+v\nwant %s", code, res.IsError, res.Out, res.Receipt, want)
			}
		}
		res := w.MustExecute(t, "// @ts-nocheck\n"+begin+`console.log((await shop("POST /anything/{id}", { path: { id: "1" }, body: { amountt: 1 } })).method);`, "shop")
		if res.IsError || res.Out != "POST\n" {
			t.Errorf("%v %q", res.IsError, res.Out)
		}
	})
	t.Run("skill", func(t *testing.T) {
		res := w.MustExecute(t, `await Deno.writeTextFile("/skills/echo.ts", `+quoted(`/** @description echoes */
import { shop } from "/apis/shop.ts";
export const say = async (amount: number) => (await shop("POST /anything/{id}", { path: { id: "s" }, body: { amount } })).form;
`)+`); console.log("written");`)
		if res.IsError || strings.Contains(res.JSON, "does not load") {
			t.Fatalf("%s %s", res.Out, res.JSON)
		}
		res = w.MustExecute(t, `import { say } from "/skills/echo.ts"; console.log(JSON.stringify(await say(7)));`, "shop")
		if res.IsError || res.Out != `{"amount":["7"]}`+"\n" {
			t.Errorf("%v %q %s", res.IsError, res.Out, res.Notes)
		}
	})
	t.Run("without a document", func(t *testing.T) {
		res := w.MustExecute(t, `import { httpbin } from "/apis/httpbin.ts"; await httpbin("GET /get");`)
		if !res.IsError || !strings.Contains(res.Out, "has no list of operations") {
			t.Errorf("%v %q", res.IsError, res.Out)
		}
	})
}

// quoted is a string of JavaScript.
func quoted(s string) string {
	text, _ := json.Marshal(s) // it is UTF-8
	return string(text)
}

package policy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// TestOnly: where an API permits its operations only, every method that a request may stand for must be one of them, on
// the path that is sent. Another API of the host cannot open it.
// Promise: documented-operations
func TestOnly(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("shop/config.json", `{"description": "d", "domains": ["shop.test"], "operations": {"only": true}}`)
	write("open/config.json", `{"description": "d", "domains": ["shop.test", "open.test"]}`)
	write("shop/operations.jsonl", `{"format":1,"server":"https://shop.test/v1","operations":3,"types":0}
{"m":"GET","p":"/refunds"}
{"m":"POST","p":"/refunds"}
{"m":"GET","p":"/refunds/{id}"}
`)
	c, problems := catalog.Load(dir, catalog.Options{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for request, code := range map[string]string{
		"GET /v1/refunds": "", "HEAD /v1/refunds": "", "GET,POST /v1/refunds": "", "GET /v1/refunds/re_1": "",
		"GET,DELETE /v1/refunds":                 CodeOperationUnknown,
		"GET /v1/refund":                         CodeOperationUnknown,
		"GET /v1/refunds/re_1/../../../v1/admin": CodeOperationUnknown,
		"GET /v1/refunds/%2e%2e":                 CodeOperationUnknown,
		"OPTIONS /v1/refunds":                    CodeOperationUnknown,
		"GET ":                                   CodeOperationUnknown,
	} {
		methods, path, _ := strings.Cut(request, " ")
		host, err := catalog.ParseHost("shop.test")
		if err != nil {
			t.Fatal(err)
		}
		v := Rules{Catalog: c, YOLO: true}.Decide(run(nil), Request{Host: host, TLS: true, Methods: strings.Split(methods, ","), Path: path})
		if v.Refusal.Code != code || v.Allow != (code == "") {
			t.Errorf("%s: %+v", request, v)
		}
		if request == "GET /v1/refund" && (!strings.HasSuffix(v.Refusal.Hint, "The nearest is GET /v1/refunds.") || !strings.HasSuffix(v.Refusal.Person, "The nearest is GET /v1/refunds.")) {
			t.Errorf("hint: %q and %q", v.Refusal.Hint, v.Refusal.Person)
		}
	}
	// Without its file, or with a broken one, the API does not open: neither does its host, under YOLO_MODE.
	for _, text := range []string{"", "{}\n"} {
		write("shop/operations.jsonl", text)
		broken, problems := catalog.Load(dir, catalog.Options{})
		if broken.API("shop") != nil || len(problems.Errors()) != 1 {
			t.Errorf("%q: %s", text, problems)
		}
		kept, _ := catalog.Load(dir, catalog.Options{Previous: c})
		if a := kept.API("shop"); a.Stale == "" || a.Only == nil || a.Only.Allows("shop.test", "GET", "/v1/admin") || !a.Only.Allows("shop.test", "GET", "/v1/refunds") {
			t.Errorf("%q: kept %+v", text, a)
		}
	}
	// Switching only on and off takes effect though the file of operations stays the same.
	write("shop/operations.jsonl", `{"format":1,"server":"https://shop.test","operations":1,"types":0}
{"m":"GET","p":"/x"}
`)
	for range 2 {
		write("shop/config.json", `{"description": "d", "domains": ["shop.test"], "operations": {"only": false}}`)
		off, _ := catalog.Load(dir, catalog.Options{Previous: c})
		write("shop/config.json", `{"description": "d", "domains": ["shop.test"], "operations": {"only": true}}`)
		on, _ := catalog.Load(dir, catalog.Options{Previous: off})
		if off.API("shop").Only != nil || !on.API("shop").Only.Allows("shop.test", "GET", "/x") || on.Version() == off.Version() {
			t.Error("only does not follow its setting")
		}
		c = on
	}
}

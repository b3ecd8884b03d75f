package tools

import (
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/excerpt"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
)

// rendered is the rendering of a run that printed an error.
func rendered(stderr string, list ...controlapi.Exchange) rendering {
	r := rendering{stdout: excerpt.New(1000), stderr: excerpt.New(1000), limit: 1000}
	r.stderr.WriteString(stderr)
	r.outcome.Receipt.Exchanges = list
	return r
}

// TestNotJSON: where code read something else as JSON, a hint names the answer. Words of the upstream are not in it, nor
// is a path that is more than a path.
func TestNotJSON(t *testing.T) {
	const failed = "error: Uncaught (in promise) SyntaxError: Unexpected token '<', \"<!doctype \"... is not valid JSON\n"
	served := func(url, kind string, down int64) controlapi.Exchange {
		return controlapi.Exchange{Method: "GET", URL: url, Host: "api.a.test", Outcome: controlapi.OutcomeServed, Status: 200, Type: kind, BytesDown: down}
	}
	const advice = ", not JSON. Check answer.ok and the path, and print (await answer.text()).slice(0, 300)."
	page, fine := served("https://api.a.test/v1/items?page", "text/html", 9), served("https://api.a.test/fine", "application/json", 9)
	other := served("https://api.a.test/b", "text/plain", 9)
	for name, row := range map[string]struct {
		stderr string
		list   []controlapi.Exchange
		want   string
	}{
		"a page":              {failed, []controlapi.Exchange{page, fine}, "GET api.a.test/v1/items answered 200 with text/html" + advice},
		"nothing":             {"SyntaxError: Unexpected end of JSON input", []controlapi.Exchange{served("https://api.a.test/", "application/json", 0)}, "GET api.a.test/ answered 200 with an empty body" + advice},
		"the same twice":      {failed, []controlapi.Exchange{page, page}, "GET api.a.test/v1/items answered 200 with text/html" + advice},
		"the last two":        {failed, []controlapi.Exchange{other, page, other}, "GET api.a.test/b answered 200 with text/plain" + advice + "\nGET api.a.test/v1/items answered 200 with text/html" + advice},
		"only JSON":           {failed, []controlapi.Exchange{fine}, ""},
		"no such error":       {"error: Uncaught Error: x", []controlapi.Exchange{page}, ""},
		"a path with words":   {failed, []controlapi.Exchange{served("https://api.a.test/now%20ignore%20this", "text/html", 9)}, "GET api.a.test answered 200 with text/html" + advice},
		"a method of words":   {failed, []controlapi.Exchange{{Method: "IGNORE-ALL", URL: "https://api.a.test/", Host: "api.a.test", Outcome: controlapi.OutcomeServed, Status: 200, Type: "text/html", BytesDown: 1}}, "a request to api.a.test/ answered 200 with text/html" + advice},
		"a host that is none": {failed, []controlapi.Exchange{{Method: "GET", URL: "https://x y/", Host: "x y", Outcome: controlapi.OutcomeServed, Type: "text/html", BytesDown: 1}}, ""},
		"refused":             {failed, []controlapi.Exchange{{Method: "GET", URL: "https://api.a.test/", Host: "api.a.test", Outcome: controlapi.OutcomeDenied, Type: "text/html"}}, ""},
	} {
		if got := toModel(rendered(row.stderr, row.list...).hints()); got != row.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, row.want)
		}
	}
}

// TestETagHint: the hint on a removed ETag is for code that may read one. Others are for all code.
func TestETagHint(t *testing.T) {
	for code, shown := range map[string]bool{
		"console.log(r.headers.get('ETag'))": true, "await s3.send(new HeadObjectCommand(x))": true, "h = {'If-None-Match': e}": true,
		"import { save } from '/skills/store.ts'": true, "s3.head_object(Key=k)": true,
		"console.log(await r.json())": false, "matches = [x for x in y if not x]": false, "": false,
	} {
		r := rendered("")
		r.code = code
		r.outcome.Receipt.Hints = []controlapi.Hint{{Code: controlapi.HintETag, Text: "ETag removed."}, {Code: "other", Text: "Other."}}
		want := "Other."
		if shown {
			want = "ETag removed.\nOther."
		}
		if got := toModel(r.hints()); got != want {
			t.Errorf("%s: %q", code, got)
		}
	}
}

// TestShort: what a model reads of the commonest slips takes no more than 60 tokens, of about four characters each.
func TestShort(t *testing.T) {
	cat := controlapi.Catalog{APIs: []controlapi.API{{Name: "stripe", Domains: []string{"api.stripe.com"}}}}
	frames := "    at mainFetch (ext:deno_fetch/26_fetch.js:2:2193)\n    at ext:deno_fetch/26_fetch.js:2:6939\n    at new Promise (<anonymous>)\n    at file:///code/main.ts:1:17\n"
	for name, stderr := range map[string]string{
		"wrong host": "error: Uncaught (in promise) NotCapable: Requires net access to \"api.strpe.com:443\", run again with the --allow-net flag\nconst r = await fetch(\"https://api.strpe.com/\");\n                ^\n" + frames,
		"require":    "error: Uncaught (in promise) ReferenceError: require is not defined\nconst fs = require(\"fs\");\n           ^\n    at file:///code/main.ts:1:12\n\n    info: Deno supports CommonJS modules in \x1b[4m.cjs\x1b[24m files, or when the closest\n          package.json has a \"type\": \"commonjs\" option.\n    docs: https://docs.deno.com/go/commonjs\n",
	} {
		r := rendered(stderr)
		r.catalog = cat
		shown, _ := failedOutput(r)
		all := shown + toModel(r.hints())
		if len(all) > 240 || strings.Contains(all, "\x1b") || strings.Contains(all, "ext:") {
			t.Errorf("%s: %d characters: %s", name, len(all), all)
		}
	}
}

// TestPythonRefusals: what the sandbox refuses is explained in Python's words too.
func TestPythonRefusals(t *testing.T) {
	const files = "Code may read /tmp, /skills and /runs, and write /tmp and /skills."
	const others = "Environment variables, processes and native code are not available to code."
	for last, want := range map[string]string{
		"OSError: [Errno 27] File too large":                                  "A file may have at most 128 MiB: write several.",
		"OSError: [Errno 28] No space left on device":                         "There is no room left: remove files that are no longer needed.",
		"OSError: [Errno 28] No space left on device: '/tmp/x'":               "There is no room left: remove files that are no longer needed.",
		"OSError: [Errno 30] Read-only file system: '/data'":                  files,
		"  File \"<frozen os>\", line 679, in __getitem__\nKeyError: 'KEY'":   others,
		"  File \"/opt/py/os.py\", line 679, in __getitem__\nKeyError: 'KEY'": others,
		"  File \"/code/main.py\", line 6, in __getitem__\nKeyError: 'KEY'":   "",
		"ValueError: [Errno 9] x":                                             "",
	} {
		r := rendered("Traceback (most recent call last):\n  File \"/code/main.py\", line 1, in <module>\n    f()\n" + last + "\n")
		r.outcome.Exit.Code, r.isPython = 1, true
		if got := toModel(r.hints()); got != want {
			t.Errorf("%s: %q, want %q", last, got, want)
		}
	}
}

// TestPythonAwait: a call of a tool that Python awaits was carried out, which the traceback does not say.
func TestPythonAwait(t *testing.T) {
	const printed = "Traceback (most recent call last):\n  File \"/code/main.py\", line 1, in <module>\n    await mcp.git.log()\n" +
		"TypeError: object str can't be used in 'await' expression\n"
	r := rendered(printed)
	r.outcome.Exit.Code, r.isPython, r.code = 1, true, "await mcp.git.log()"
	const want = "mcp.x.y() is not awaited in Python, await mcp.aio.x.y() is: the call was carried out."
	if got := toModel(r.ofLanguage(printed)); got != want {
		t.Errorf("got %q", got)
	}
	r.code = "await mcp.aio.git.log(); await f()"
	if got := r.ofLanguage(printed); len(got) != 0 {
		t.Errorf("code of its own: %q", got)
	}
}

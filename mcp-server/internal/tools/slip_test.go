package tools

import (
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// TestUnfence: only a text that is one fenced block is taken for the code inside, which keeps its line numbers.
func TestUnfence(t *testing.T) {
	for name, row := range map[string]struct {
		code, inside, tag string
		fenced            bool
	}{
		"typescript":             {"```ts\nconsole.log(1)\n```", "\nconsole.log(1)\n", "ts", true},
		"no word":                {"\n\n```\nx\ny\n```\n\n", "\n\n\nx\ny\n", "", true},
		"line feeds of Windows":  {"```python\r\nprint(1)\r\n```\r\n", "\nprint(1)\r\n", "python", true},
		"indented":               {"  ```JS \nx\n  ```", "\nx\n", "JS", true},
		"a template inside":      {"```ts\nconst a = `x`;\n```", "\nconst a = `x`;\n", "ts", true},
		"a shell":                {"```bash\nls\n```", "\nls\n", "bash", true},
		"text before":            {"Here:\n```ts\nx\n```", "", "", false},
		"text behind":            {"```ts\nx\n```\nThis prints x.", "", "", false},
		"two blocks":             {"```ts\nx\n```\n```ts\ny\n```", "", "", false},
		"not closed":             {"```ts\nx\n", "", "", false},
		"only a fence":           {"```", "", "", false},
		"code":                   {"console.log(1)\n", "", "", false},
		"a string in Python":     {"md = '''\n```ts\nx\n```\n'''\nprint(md)", "", "", false},
		"a comment":              {"/*\n```ts\nx\n```\n*/\nf()", "", "", false},
		"a template":             {"``\n`x`\n``", "", "", false},
		"a fence on one line":    {"```ts x```", "", "", false},
		"a template in the tail": {"```ts\nx(``)\n", "", "", false},
		"empty":                  {"", "", "", false},
	} {
		if !row.fenced {
			row.inside = row.code
		}
		inside, tag, fenced := removeFence(row.code)
		if inside != row.inside || tag != row.tag || fenced != row.fenced {
			t.Errorf("%s: got %q, %q, %v", name, inside, tag, fenced)
		}
	}
}

// TestFencedLanguage: the word behind a fence counts if the argument language is missing, and must not contradict it.
func TestFencedLanguage(t *testing.T) {
	s := &Surface{}
	s.report.Store(&sandboxapi.Health{Python: sandboxapi.Python{Version: "3.11"}})
	for _, row := range []struct {
		tag, argument string
		python        bool
		mistake       string
	}{
		{"python", `{}`, true, ""},
		{"PY", `{}`, true, ""},
		{"ts", `{}`, false, ""},
		{"", `{}`, false, ""},
		{"", `{"language":"python"}`, true, ""},
		{"py", `{"language":"python"}`, true, ""},
		{"js", `{"language":"python"}`, true, `language: found "python" for code in a fence of "js"`},
		{"bash", `{}`, false, `code: found a fence of "bash", want TypeScript or Python`},
	} {
		a := readArguments([]byte(row.argument), argumentSpec{Tool: "execute_code", Names: []string{"language"}, Example: "{}", MaxBytes: 1000})
		got := s.readLanguage(a, row.tag)
		said := ""
		if err := a.Err(); err != nil {
			said = err.Error()
		}
		if got.IsPython() != row.python || row.mistake == "" && said != "" || !strings.Contains(said, row.mistake) {
			t.Errorf("%q with %s: got %v, %s", row.tag, row.argument, got, said)
		}
	}
}

// TestSlips: what a model gets wrong most often has the remedy as a hint. An empty hint: code that resembles it, and is
// something else.
func TestSlips(t *testing.T) {
	const (
		module  = "The code is a module and not a function: print the result instead of returning it."
		quoted  = `A token name is text: write "STRIPE_AUTH_TOKEN" in quotes, where the credential belongs.`
		noEnv   = "The environment has variables only for the token names of this run's APIs."
		away    = "This run has no variable STRIPE_AUTH_TOKEN. If the run is narrowed, add the API with this token name to \"apis\"."
		noMCP   = "No MCP server is configured, so there is no mcp. The user can add one as apis/<name>/config.json."
		noNPM   = "Code can import no URL, and no package. Use what Deno has built in (\"node:fs\" too), fetch, and modules in /skills. The user can add a package with: codeforge package add npm:NAME."
		noFiles = "Only this module is sent. Put the code of others into it, or write them to /skills/<name>.ts first and import them from there."
	)
	uncaught := func(s string) string {
		return "error: Uncaught (in promise) " + s + "\n    at file:///code/main.ts:1:1\n"
	}
	traceback := func(s string) string {
		return "Traceback (most recent call last):\n  File \"/code/main.py\", line 1, in <module>\n    f()\n" + s + "\n"
	}
	noParse := func(s string) string { return "  File \"/code/main.py\", line 1\n    x\n    ^\n" + s + "\n" }
	cat := proxyapi.Catalog{APIs: []proxyapi.API{{Name: "stripe", Domains: []string{"api.stripe.com"}, Credentials: []proxyapi.Token{{Name: "STRIPE_AUTH_TOKEN"}}}}}
	for name, row := range map[string]struct {
		python             bool
		code, stderr, want string
	}{
		"return":                       {false, "return 1", "error: Uncaught SyntaxError: Illegal return statement\nreturn 1\n^\n    at <anonymous> (file:///code/main.ts:1:1)\n", module},
		"return in Python":             {true, "return 1", noParse("SyntaxError: 'return' outside function"), module},
		"return in a skill":            {false, "import '/skills/a.ts'", "error: Uncaught SyntaxError: Illegal return statement\n    at <anonymous> (file:///skills/a.ts:2:1)\n", ""},
		"return in a skill in Python":  {true, "from skills import a", "  File \"/skills/a.py\", line 1\n    return 1\nSyntaxError: 'return' outside function\n", ""},
		"code prints such an error":    {false, "console.error(e); throw new Error('x')", "SyntaxError: Illegal return statement\nReferenceError: STRIPE_AUTH_TOKEN is not defined\n" + uncaught("Error: x"), ""},
		"a token":                      {false, "f(STRIPE_AUTH_TOKEN)", uncaught("ReferenceError: STRIPE_AUTH_TOKEN is not defined"), quoted},
		"a token with a slip":          {false, "f(STRIPE_AUTH_TOKN)", uncaught("ReferenceError: STRIPE_AUTH_TOKN is not defined"), quoted},
		"a token in Python":            {true, "f(STRIPE_AUTH_TOKEN)", traceback("NameError: name 'STRIPE_AUTH_TOKEN' is not defined"), quoted},
		"another constant":             {false, "f(MAX_PAGES)", uncaught("ReferenceError: MAX_PAGES is not defined"), ""},
		"a small variable":             {false, "f(stripe_auth_token)", uncaught("ReferenceError: stripe_auth_token is not defined"), ""},
		"a variable in Python":         {true, "os.environ['STRIPE_AUTH_TOKEN']", traceback("  File \"<frozen os>\", line 679, in __getitem__\nKeyError: 'STRIPE_AUTH_TOKEN'"), away + "\n" + noEnv},
		"a variable with a slip":       {true, "os.environ['STRIPE_AUTH_TOKN']", traceback("  File \"<frozen os>\", line 679, in __getitem__\nKeyError: 'STRIPE_AUTH_TOKN'"), quoted + "\n" + noEnv},
		"a variable that is there":     {true, "print(os.environ.get('STRIPE_AUTH_TOKEN'))", "", ""},
		"a variable that is None":      {true, "print(os.environ.get('STRIPE_AUTH_TOKN'))", "", quoted},
		"a variable and another value": {true, "print(os.environ.get('STRIPE_AUTH_TOKEN', 'STRIPE_AUTH_TOKEN'), os.getenv(\"STRIPE_AUTH_TOKEN\") or 'x')", "", ""},
		"fetch in Python":              {true, "r = fetch('https://x')\nprint(r)", traceback("NameError: name 'fetch' is not defined"), ""},
		"all of it is TypeScript":      {true, "console.log(1)", traceback("NameError: name 'console' is not defined"), "The code looks like TypeScript, and its language was Python: leave \"language\" out."},
		"a name of its own":            {true, "print(total)", traceback("NameError: name 'total' is not defined"), ""},
		"print in TypeScript":          {false, "const x = 1;\nprint(x);", uncaught("ReferenceError: print is not defined"), ""},
		"a name of its own, again":     {false, "f(total)", uncaught("ReferenceError: total is not defined"), ""},
		"apis in Python":               {true, "from apis import stripe", traceback("ModuleNotFoundError: No module named 'apis'"), "Typed clients are only for TypeScript: call the API by its URL."},
		"one of apis in Python":        {true, "from apis.stripe import x", traceback("ModuleNotFoundError: No module named 'apis'"), "Typed clients are only for TypeScript: call the API by its URL."},
		"mcp as a module":              {true, "import mcp", traceback("ModuleNotFoundError: No module named 'mcp'"), noMCP},
		"a package like it":            {true, "import apistar", traceback("ModuleNotFoundError: No module named 'apistar'"), "apistar is not installed here. There is the standard library. To add packages the user can ."},
		"a client's path":              {false, "import { stripe } from './apis/stripe.ts'", "error: Module not found \"file:///code/apis/stripe.ts\".\n    at file:///code/main.ts:1:1\n", `Import the typed client by its whole path: "/apis/stripe.ts".`},
		"a slip in a client":           {false, "import { stripe } from '/apis/strpe.ts'", "error: Module not found \"file:///code/apis/strpe.ts\".\n", `/apis: there is no active API "strpe"; did you mean "stripe"?`},
		"a client without a slash":     {false, "import { stripe } from 'apis/stripe'", "error: Import \"apis/stripe\" not a dependency\n", `Import it by its whole path: "/apis/stripe.ts".`},
		"a skill without a slash":      {false, "import { f } from 'skills/f.ts'", "error: Import \"skills/f.ts\" not a dependency\n", `Import it by its whole path: "/skills/f.ts".`},
		"a package":                    {false, "import x from 'apis'", "error: Import \"apis\" not a dependency\n", noNPM},
		"a file":                       {false, "import x from './lib.ts'", "error: Module not found \"file:///code/lib.ts\".\n", noFiles},
	} {
		r := rendered(row.stderr)
		r.code, r.catalog = row.code, cat
		if row.python {
			r.language = sandboxapi.LanguagePython
		}
		if row.stderr != "" {
			r.outcome.Exit.Code = 1
		}
		if got := toModel(r.listHints()); got != row.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, row.want)
		}
	}
}

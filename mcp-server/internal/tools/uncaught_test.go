package tools

import "testing"

func TestShortenError(t *testing.T) {
	for name, row := range map[string]struct {
		explained bool
		in, want  string
	}{
		"nothing":           {false, "", ""},
		"what code printed": {false, "warning: x\n    at work (ext:mine)\n", "warning: x\n    at work (ext:mine)\n"},
		"without a newline": {false, "err", "err"},
		"colours":           {false, "\x1b[31mred\x1b[0m\n", "red\n"},
		"frames of one's own": {false, "error: Uncaught (in promise) Error: boom\nthrow new Error(\"boom\")\n      ^\n    at f (file:///code/main.ts:1:7)\n    at Array.map (<anonymous>)\n    at <anonymous> (file:///code/main.ts:9:1)\n",
			"error: Uncaught (in promise) Error: boom\nthrow new Error(\"boom\")\n      ^\n    at f (file:///code/main.ts:1:7)\n    at <anonymous> (file:///code/main.ts:9:1)\n"},
		"a host": {true, "mine\nerror: Uncaught (in promise) NotCapable: Requires net access to \"a.test:443\", run again with the --allow-net flag\nawait fetch(\"https://a.test\")\n      ^\n    at mainFetch (ext:deno_fetch/26_fetch.js:2:2193)\n    at ext:deno_fetch/26_fetch.js:2:6939\n    at new Promise (<anonymous>)\n    at Object.fetch (ext:deno_fetch/26_fetch.js:2:6346)\n    at file:///code/main.ts:1:7\n",
			"mine\nNotCapable: Requires net access to \"a.test:443\"\n    at file:///code/main.ts:1:7\n"},
		"require": {true, "error: Uncaught (in promise) ReferenceError: require is not defined\nconst fs = require(\"fs\");\n           ^\n    at file:///code/main.ts:1:12\n\n    info: Deno supports CommonJS modules in \x1b[4m.cjs\x1b[24m files, or when the closest\n          \x1b[4mpackage.json\x1b[24m has a \"type\": \"commonjs\" option.\n    hint: Rewrite this module to ESM,\n          or change the file extension to .cjs.\n    docs: \x1b[4mhttps://docs.deno.com/go/commonjs\x1b[24m\n",
			"ReferenceError: require is not defined\n    at file:///code/main.ts:1:12\n"},
		"an import": {true, "error: Import \"lodash\" not a dependency\n  hint: If you want to use the npm package, try running `deno add npm:lodash`\n    at file:///code/main.ts:1:23\n",
			"Import \"lodash\" not a dependency\n    at file:///code/main.ts:1:23\n"},
		"no memory":             {false, "mine\n\n<--- Last few GCs --->\n\n[2:0x5] 5745 ms: Scavenge\n\n#\n# Fatal JavaScript out of memory: x\n#\n==== C stack trace ====\n", "mine"},
		"no memory, from first": {false, "\n<--- Last few GCs --->\n\n[2:0x5]", ""},
		"a message of lines":    {false, "error: Uncaught Error: one\n    hint: two\n    at file:///code/main.ts:1:7\n", "error: Uncaught Error: one\n    hint: two\n    at file:///code/main.ts:1:7\n"},
		"only a message":        {true, "error: Module not found \"file:///code/lib.ts\".\n", "Module not found \"file:///code/lib.ts\".\n"},
	} {
		if got := shortenError(row.in, row.explained); got != row.want {
			t.Errorf("%s:\n got %q\nwant %q", name, got, row.want)
		}
	}
}

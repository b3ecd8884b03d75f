package tools

import (
	"testing"

	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestPackageHint: each way in which Deno refuses a package leads to the list of packages.
func TestPackageHint(t *testing.T) {
	for _, refusal := range []string{
		`Import "lodash" not a dependency and not in import map from "file:///code/main.ts"`,
		`npm package not found in cache: "lodash", --cached-only is specified.`,
		"Could not find npm package 'stripe' matching '17'.",
		"The lockfile is out of date. Run `deno install --frozen=false`, or rerun with `--frozen=false` to update it.",
	} {
		r := rendered("error: " + refusal + "\n    at file:///code/main.ts:1:15\n")
		r.outcome.Exit.Code = 1
		r.catalog = proxyapi.Catalog{Packages: []string{"npm:stripe@18.1.0", "npm:zod@4.6.7"}}
		const want = "Code can import no URL, and only these packages: npm:stripe@18.1.0, npm:zod@4.6.7. Use what Deno has built " +
			"in (\"node:fs\" too), fetch, and modules in /skills. The user can add a package with: codeforge package add npm:NAME."
		if got := toModel(r.listHints()); got != want {
			t.Errorf("%s:\n got %s\nwant %s", refusal, got, want)
		}
	}
}

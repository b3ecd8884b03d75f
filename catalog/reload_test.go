package catalog_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

func api(host, token, value string) string {
	return `{"description": "x", "domains": ["` + host + `"], "credentials": {"` + token + `": "` + value + `"}}`
}

func mustHost(t *testing.T, s string) catalog.Host {
	t.Helper()
	h, err := catalog.ParseHost(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func matched(t *testing.T, c *catalog.Catalog, host string) string {
	t.Helper()
	var out []string
	for _, a := range c.ListHolders(mustHost(t, host)) {
		out = append(out, a.Name)
	}
	return strings.Join(out, " ")
}

func clean(t *testing.T, dir string, previous *catalog.Catalog) *catalog.Catalog {
	t.Helper()
	c, problems := catalog.Load(dir, catalog.Options{Previous: previous})
	if len(problems) > 0 {
		t.Fatalf("problems where there should be none:\n%s", problems)
	}
	return c
}

// TestReloadKeepsLastGood breaks one of two APIs, then mends it.
// Promise: configuration-fails-closed
func TestReloadKeepsLastGood(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"a/config.json": api("a.example.com", "A_TOKEN", "first-value"),
		"b/config.json": api("b.example.com", "B_TOKEN", "other-value"),
	})
	first := clean(t, dir, nil)
	write(t, dir, "a/config.json", `{"domains": ["*.com"], "restricted_methods": ["POST"]}`)
	second, problems := catalog.Load(dir, catalog.Options{Previous: first})
	a := second.API("a")
	if a == nil || a.Stale == "" || a.Credentials[0].Value.Reveal() != "first-value" || matched(t, second, "a.example.com") != "a" {
		t.Fatalf("the last good version is not kept: %+v", a)
	}
	if len(problems.Errors()) != 1 || !strings.Contains(a.Stale, problems.Errors()[0].String()) {
		t.Errorf("stale says %q; problems:\n%s", a.Stale, problems)
	}
	if first.API("a").Stale != "" {
		t.Error("the catalog in use was changed")
	}
	if second.API("b") != first.API("b") || second.API("b").Stale != "" {
		t.Error("the API beside it did not keep its pointer")
	}
	if second.Version() == first.Version() {
		t.Error("going stale did not change the version")
	}
	third, _ := catalog.Load(dir, catalog.Options{Previous: second})
	if third.API("a") != second.API("a") || third.Version() != second.Version() {
		t.Error("a second look at the same mistake changed something")
	}
	write(t, dir, "a/config.json", api("a.example.com", "A_TOKEN", "second-value"))
	fourth := clean(t, dir, third)
	if a := fourth.API("a"); a.Stale != "" || a.Credentials[0].Value.Reveal() != "second-value" {
		t.Errorf("mended, but %+v", a)
	}
}

func TestReloadRemoves(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"a/config.json": api("a.example.com", "A_TOKEN", "first-value"),
		"b/config.json": api("b.example.com", "B_TOKEN", "other-value"),
	})
	first := clean(t, dir, nil)
	if err := os.Remove(filepath.Join(dir, "a", "config.json")); err != nil {
		t.Fatal(err)
	}
	second := clean(t, dir, first)
	if names(second) != "b" || second.MayHold(mustHost(t, "a.example.com")) || len(second.AllCredentials()) != 1 {
		t.Errorf("a removed API is still there: %s", names(second))
	}
}

// TestReloadUnreadableFolder: apis/ itself gone is a fault of the machine, not the wish to have no API.
func TestReloadUnreadableFolder(t *testing.T) {
	dir := writeTree(t, map[string]string{"a/config.json": api("a.example.com", "A_TOKEN", "first-value")})
	first := clean(t, dir, nil)
	second, problems := catalog.Load(filepath.Join(dir, "nowhere"), catalog.Options{Previous: first})
	if a := second.API("a"); a == nil || a.Stale != "apis: no such file" {
		t.Errorf("without apis/: %+v", a)
	}
	if got := listing(problems); got != "error: apis: no such file; want a directory with one folder per API\n" {
		t.Errorf("problems: %s", got)
	}
	empty, problems := catalog.Load(filepath.Join(dir, "nowhere"), catalog.Options{})
	if empty == nil || names(empty) != "" || len(problems) != 1 {
		t.Errorf("without apis/ and a previous catalog: %v, %v", empty, problems)
	}
}

// TestTokenNameConflict: the API that had a token name keeps it, whatever the order of names.
func TestTokenNameConflict(t *testing.T) {
	dir := writeTree(t, map[string]string{"m/config.json": api("m.example.com", "SHARED_TOKEN", "value-of-m")})
	first := clean(t, dir, nil)
	write(t, dir, "a/config.json", api("a.example.com", "SHARED_TOKEN", "value-of-a"))
	second, problems := catalog.Load(dir, catalog.Options{Previous: first})
	if names(second) != "m" || second.API("m").Stale != "" {
		t.Errorf("loaded: %s\n%s", names(second), problems)
	}
	if want := "error: apis/a/config.json: credentials.SHARED_TOKEN: a token name that apis/m has too; want a token name that no other API has\n"; listing(problems) != want {
		t.Errorf("problems: %s", listing(problems))
	}
	if !second.MayHold(mustHost(t, "a.example.com")) || matched(t, second, "a.example.com") != "" {
		t.Error("the host of the refused API is not closed")
	}
	fresh, _ := catalog.Load(dir, catalog.Options{})
	if names(fresh) != "a" {
		t.Errorf("without a previous catalog: %s, want the first by name", names(fresh))
	}
}

// TestTokenNameMovesToStale: an API that goes stale keeps its token names against one that takes them meanwhile.
func TestTokenNameMovesToStale(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"a/config.json": api("a.example.com", "A_TOKEN", "value-of-a"),
		"b/config.json": api("b.example.com", "B_TOKEN", "value-of-b"),
	})
	first := clean(t, dir, nil)
	write(t, dir, "a/config.json", api("a.example.com", "B_TOKEN", "value-of-a"))
	write(t, dir, "b/config.json", `{broken`)
	second, problems := catalog.Load(dir, catalog.Options{Previous: first})
	for _, name := range []string{"a", "b"} {
		if got := second.API(name); got == nil || got.Stale == "" || got.Credentials[0].Name != strings.ToUpper(name)+"_TOKEN" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if len(problems.Errors()) != 2 {
		t.Errorf("problems:\n%s", problems)
	}
}

// TestOldVersionBringsConflict: an API that must keep its old version, for showing a credential, takes its token name
// back from the API that has it in its new version.
func TestOldVersionBringsConflict(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"a/config.json": api("a.example.com", "A_TOKEN", "value-of-a"),
		"b/config.json": api("b.example.com", "B_TOKEN", "value-of-b"),
	})
	first := clean(t, dir, nil)
	write(t, dir, "a/config.json", `{"description": "like value-of-b", "domains": ["a.example.com"]}`)
	write(t, dir, "b/config.json", `{"description": "x", "domains": ["b.example.com"], "credentials": {"B_TOKEN": "value-of-b", "A_TOKEN": "value-of-a"}}`)
	second, problems := catalog.Load(dir, catalog.Options{Previous: first})
	want := "error: apis/a/config.json: description: the credential of B_TOKEN, where the model reads it; want text without it\n" +
		"error: apis/b/config.json: credentials.A_TOKEN: a token name that apis/a has too; want a token name that no other API has\n"
	if got := listing(problems); got != want {
		t.Errorf("problems:\n%swant:\n%s", got, want)
	}
	var all []string
	for _, cred := range second.AllCredentials() {
		all = append(all, cred.Name)
	}
	if strings.Join(all, " ") != "A_TOKEN B_TOKEN" || second.API("a").Stale == "" || second.API("b").Stale == "" {
		t.Errorf("credentials %v", all)
	}
}

// TestSourceGoes: when the credential that a fetch uses is renamed, moved or removed, the load ends, with a problem, and
// what changed is in force; the API that fetched is not, and its hosts are closed.
func TestSourceGoes(t *testing.T) {
	const fetching = `{"description": "x", "domains": ["a.example.com"], "credentials": {"ACME_TOKEN": {"fetch":
		{"url": "https://vault.example.com/v1", "headers": {"X-Vault-Token": "VAULT_TOKEN"}, "json": "/data"}}}}`
	for name, changed := range map[string]string{
		"renamed": api("vault.example.com", "HCV_TOKEN", "hunter2-hunter2"),
		"moved":   api("vault2.example.com", "VAULT_TOKEN", "hunter2-hunter2"),
		"removed": "",
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeTree(t, map[string]string{
				"vault/config.json": api("vault.example.com", "VAULT_TOKEN", "hunter2-hunter2"), "acme/config.json": fetching,
				"b/config.json": api("b.example.com", "B_TOKEN", "other-value"),
			})
			first := clean(t, dir, nil)
			if changed == "" {
				testkit.Must(t, os.RemoveAll(filepath.Join(dir, "vault")))
			} else {
				write(t, dir, "vault/config.json", changed)
			}
			testkit.Must(t, os.RemoveAll(filepath.Join(dir, "b")))
			loaded := make(chan *catalog.Catalog, 1)
			go func() {
				c, problems := catalog.Load(dir, catalog.Options{Previous: first})
				if len(problems.Errors()) == 0 {
					t.Error("no problem is told")
				}
				loaded <- c
			}()
			select {
			case c := <-loaded:
				if c.API("acme") != nil || c.API("b") != nil || (c.API("vault") == nil) != (changed == "") {
					t.Errorf("in force: %v", c.APIs())
				}
				if !c.MayHold(mustHost(t, "a.example.com")) {
					t.Error("the host of the API that fetched is not closed")
				}
			case <-time.After(10 * time.Second):
				t.Fatal("the load does not end")
			}
		})
	}
}

// TestNewCredentialInOldText: a text that must stay as it is and shows a new credential keeps the credential out.
func TestNewCredentialInOldText(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"a/config.json": plainConfig, "a/types.d.ts": "// example: renewed-secret-of-b",
		"b/config.json": api("b.example.com", "B_TOKEN", "value-of-b"),
	})
	first := clean(t, dir, nil)
	write(t, dir, "a/config.json", "{")
	write(t, dir, "b/config.json", api("b.example.com", "B_TOKEN", "renewed-secret-of-b"))
	second, problems := catalog.Load(dir, catalog.Options{Previous: first})
	want := "error: apis/a/config.json: line 1, column 2: the end of the file; want the quotes, brackets and braces closed\n" +
		"error: apis/b/config.json: credentials.B_TOKEN: a credential that apis/a shows to the model; want another credential\n"
	if got := listing(problems); got != want {
		t.Errorf("problems:\n%swant:\n%s", got, want)
	}
	if got := second.API("b").Credentials[0].Value.Reveal(); got != "value-of-b" {
		t.Errorf("the credential in force is %q", got)
	}
	third, _ := catalog.Load(dir, catalog.Options{Previous: second})
	if third.Version() != second.Version() {
		t.Error("another look changed something")
	}
	// The same with a text that is not stale, only older.
	write(t, dir, "a/config.json", plainConfig)
	fourth, problems := catalog.Load(dir, catalog.Options{Previous: first})
	if got := listing(problems); got != "error: apis/b/config.json: credentials.B_TOKEN: a credential that apis/a shows to the model; want another credential\n" || fourth.API("a").Stale != "" {
		t.Errorf("problems:\n%s", got)
	}
}

// TestVersion changes one thing at a time: each gives another version, and going back gives the first again.
func TestVersion(t *testing.T) {
	base := map[string]string{"description": `"x"`, "domains": `["a.example.com"]`, "credentials": `{"A_TOKEN": "first-value"}`, "restricted_methods": `["POST"]`}
	load := func(change map[string]string, types string) string {
		fields := maps.Clone(base)
		maps.Copy(fields, change)
		var lines []string
		for _, k := range slices.Sorted(maps.Keys(fields)) {
			if fields[k] != "" {
				lines = append(lines, `"`+k+`": `+fields[k])
			}
		}
		tree := map[string]string{"a/config.json": "{" + strings.Join(lines, ",") + "}"}
		if types != "" {
			tree["a/types.d.ts"] = types
		}
		c, problems := catalog.Load(writeTree(t, tree), catalog.Options{})
		if len(problems.Errors()) > 0 {
			t.Fatalf("%v:\n%s", change, problems)
		}
		return c.Version()
	}
	first := load(nil, "")
	if again := load(nil, ""); again != first || first == "" {
		t.Errorf("the same content has the versions %q and %q", first, again)
	}
	seen := map[string]string{first: "nothing"}
	note := func(what, version string) {
		if other, dup := seen[version]; dup {
			t.Errorf("changing %s gives the version of changing %s", what, other)
		}
		seen[version] = what
	}
	for _, change := range []map[string]string{
		{"description": `"y"`}, {"domains": `["b.example.com"]`}, {"domains": `["a.example.com", "b.example.com"]`},
		{"credentials": `{"A_TOKEN": "other-value"}`}, {"credentials": `{"B_TOKEN": "first-value"}`},
		{"credentials": `{"A_TOKEN": {"value": "first-value", "in": ["query:key"]}}`}, {"credentials": ""},
		{"restricted_methods": `["PUT"]`}, {"restricted_methods": ""}, {"restricted_methods": "", "allowed_methods": `["POST"]`},
		{"active": "false"}, {"allow_http": "true"}, {"compress": "true"}, {"framing": `"message"`}, {"allow_private": "true"}, {"allow_private": `["10.0.0.0/8"]`}, {"reference": `"https://x.example.com"`},
	} {
		note(strings.Join(slices.Sorted(maps.Values(change)), " "), load(change, ""))
	}
	note("types", load(nil, "declare const x: 1;"))
}

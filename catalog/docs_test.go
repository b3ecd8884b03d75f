package catalog_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/settings"
)

// rows are the first cells of a document's tables that are code, by the heading they stand under.
func rows(doc string) map[string][]string {
	cell := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|(.*)$")
	out := map[string][]string{}
	for section := range strings.SplitSeq(strings.ReplaceAll(doc, "\n# ", "\n## "), "\n## ") {
		heading, body, _ := strings.Cut(section, "\n")
		for _, m := range cell.FindAllStringSubmatch(body, -1) {
			out[heading] = append(out[heading], m[1])
		}
	}
	return out
}

// TestReferenceIsComplete checks that the reference has every field and every variable, and no other.
func TestReferenceIsComplete(t *testing.T) {
	data := "\n"
	for _, page := range []string{"reference/config-json.md", "reference/surfaces.md", "reference/mcp-field.md", "reference/settings.md", "guides/documents.md"} {
		text, err := os.ReadFile("../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		data += string(text)
	}
	got := rows(data)
	headings, fields := catalog.FieldNames()
	headings[".env"] = settings.ListNames()
	for heading, want := range headings {
		have := slices.Sorted(slices.Values(got[heading]))
		if want := slices.Sorted(slices.Values(want)); !slices.Equal(have, want) {
			t.Errorf("under %q the reference has\n%v\nwant\n%v", heading, have, want)
		}
	}
	kinds, err := os.ReadFile("../docs/reference/credentials.md")
	if err != nil {
		t.Fatal(err)
	}
	login, err := os.ReadFile("../docs/guides/logins-and-tokens.md")
	if err != nil {
		t.Fatal(err)
	}
	have := rows(string(kinds) + "\n" + string(login))
	for kind, want := range fields {
		if !slices.Equal(have[kind], want) {
			t.Errorf("under %q docs/reference/credentials.md has\n%v\nwant\n%v", kind, have[kind], want)
		}
	}
	for _, surface := range got["Surfaces"] {
		if _, err := catalog.ParseSurface(surface); err != nil {
			t.Errorf("the reference has the surface %q: %v", surface, err)
		}
	}
	if len(got["Surfaces"]) != 8 {
		t.Errorf("surfaces in the reference: %v", got["Surfaces"])
	}
	for _, name := range settings.ListNames() {
		want := settings.DefaultOf(name)
		switch {
		case name == "USER_AGENT":
			want = "`CodeForge/<version>`"
		case want == "":
			want = "empty"
		default:
			want = "`" + want + "`"
		}
		if !strings.Contains(data, "| `"+name+"` | "+want+" |") {
			t.Errorf("the reference does not say that %s is %s by default", name, want)
		}
	}
}

// TestReferenceExampleLoads: the config.json in the reference is a good one.
func TestReferenceExampleLoads(t *testing.T) {
	data, err := os.ReadFile("../docs/guides/add-an-api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "```json\n")
	example, _, ok := strings.Cut(rest, "```")
	key := t.TempDir() + "/key"
	if err := os.WriteFile(key, []byte("dummy-webhook-key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	example = strings.ReplaceAll(example, "/run/secrets/stripe_webhook", key)
	example = strings.ReplaceAll(example, "rk_test_...", "dummy-0123456789")
	c := clean(t, writeTree(t, map[string]string{"stripe/config.json": example}), nil)
	if a := c.API("stripe"); !ok || a == nil || len(a.Credentials) != 2 || a.Credentials[1].Value.Reveal() != "dummy-webhook-key" {
		t.Errorf("loaded: %+v", a)
	}
}

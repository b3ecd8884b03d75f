package walk

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// TestIndex checks that docs/index.md links to each page of the documentation, or to the index of the page's folder, and
// that one to the page.
func TestIndex(t *testing.T) {
	world.RunInOneMode(t, "it reads documents")
	for _, page := range listPages(t) {
		name, err := filepath.Rel(filepath.Join(root(t), "docs"), page)
		if err != nil {
			t.Fatal(err)
		}
		index := "index.md"
		for _, folder := range []string{"security/reviews/", "contribute/decisions/"} {
			if rest, ok := strings.CutPrefix(name, folder); ok && rest != "index.md" {
				name, index = rest, folder+"index.md"
			}
		}
		if !strings.HasPrefix(name, "..") && name != index && !strings.Contains(document(t, "docs/"+index), "]("+name+")") {
			t.Errorf("docs/%s has no link to %s", index, name)
		}
	}
}

// TestLLMs compares docs/llms.txt, the index for models, with docs/index.md.
func TestLLMs(t *testing.T) {
	world.RunInOneMode(t, "it reads documents")
	var b strings.Builder
	b.WriteString("# CodeForge\n\n> A self-hosted MCP server: an agent writes one block of code that uses your APIs and never sees a key.\n")
	pages := regexp.MustCompile(`\[([^\]]+)\]\(([^)]+\.md)\)`)
	for line := range strings.Lines(document(t, "docs/index.md")) {
		task, list, isRow := strings.Cut(strings.Trim(line, "| \n"), " | ")
		if strings.HasPrefix(line, "## ") {
			b.WriteString("\n" + line + "\n")
		}
		if !isRow {
			task, list = "", line
		}
		for _, page := range pages.FindAllStringSubmatch(list, -1) {
			b.WriteString(strings.TrimSuffix("- ["+page[1]+"]("+page[2]+"): "+task, ": ") + "\n")
		}
	}
	same(t, "docs/llms.txt", b.String(), func(s string) string { return s })
}

// TestLists checks that the documents' lists of settings, metrics, examples and variables are those of the sources.
func TestLists(t *testing.T) {
	world.RunInOneMode(t, "it reads documents")
	compare := func(what string, have, want []string) {
		t.Helper()
		for _, name := range want {
			if !slices.Contains(have, name) {
				t.Errorf("%s: %s is missing", what, name)
			}
		}
		for _, name := range have {
			if !slices.Contains(want, name) {
				t.Errorf("%s: %s does not exist", what, name)
			}
		}
		if len(want) < 4 {
			t.Errorf("%s: the sources have only %q", what, want)
		}
	}

	rows := regexp.MustCompile("(?m)^\\| (`[A-Z_]+`(?:, `[A-Z_]+`)*) \\|").
		FindAllStringSubmatch(document(t, "docs/reference/settings.md"), -1)
	var have []string
	for _, row := range rows {
		have = append(have, strings.Split(strings.ReplaceAll(row[1], "`", ""), ", ")...)
	}
	compare("settings in docs/reference/settings.md", have, matches(`(?m)^([A-Z_]+)=`, document(t, ".env.example")))

	compare("metrics in docs/reference/metrics.md", matches("`(codeforge_[a-z_]+)", document(t, "docs/reference/metrics.md")),
		slices.DeleteFunc(matches(`"(codeforge_[a-z_]+)"`, productGo(t)), func(name string) bool {
			return name == "codeforge_proxy" // the schema of the proxies' database
		}))

	_, start, _ := strings.Cut(document(t, "docs/guides/add-an-api.md"), "There are examples of APIs (")
	start, _, _ = strings.Cut(start, ").\n")
	files, err := filepath.Glob(filepath.Join(root(t), "apis", "*", "config.json.example"))
	if err != nil {
		t.Fatal(err)
	}
	var examples []string
	for _, f := range files {
		if name := filepath.Base(filepath.Dir(f)); name != "example" { // the one that is never loaded
			examples = append(examples, name)
		}
	}
	compare("examples in docs/guides/add-an-api.md", matches("`([a-z0-9-]+)`", start), examples)

	servers := 0
	for _, f := range files {
		if text, err := os.ReadFile(f); err == nil && strings.Contains(string(text), `"mcp":`) {
			servers++
		}
	}
	if count := matches(`(\d+) examples are in`, document(t, "CHANGELOG.md")); len(count) != 1 || count[0] != strconv.Itoa(servers) {
		t.Errorf("CHANGELOG.md counts %v examples of MCP servers, and there are %d", count, servers)
	}
}

// matches are the first groups of all matches of an expression.
func matches(expression, text string) []string {
	var out []string
	for _, m := range regexp.MustCompile(expression).FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}

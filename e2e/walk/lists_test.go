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

// contents matches the generated list of a page's sections.
var contents = regexp.MustCompile(`(?s)<!-- contents -->\n.*?<!-- end of contents -->\n`)

// TestContents holds the lists of sections at the top of long pages. With -update it writes them.
func TestContents(t *testing.T) {
	world.RunInOneMode(t, "it reads documents")
	for _, page := range []string{"docs/configuration.md", "docs/operations.md"} {
		text := document(t, page)
		var links []string
		for _, m := range regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			for anchor := range anchors("# " + m[1]) {
				links = append(links, "["+m[1]+"](#"+anchor+")")
			}
		}
		list := "<!-- contents -->\n" + strings.Join(links, " ·\n") + "\n<!-- end of contents -->\n"
		switch found := contents.FindString(text); {
		case found == list:
		case found != "" && *update:
			text = strings.Replace(text, found, list, 1)
			if err := os.WriteFile(filepath.Join(root(t), page), []byte(text), 0o644); err != nil { //nolint:gosec // documentation
				t.Fatal(err)
			}
		default:
			t.Errorf("%s lists other sections than it has: run `go test ./walk -run TestContents -update` in e2e/", page)
		}
	}
}

// TestLists checks that the documents' lists of settings, metrics, examples and variables are those of the sources.
func TestLists(t *testing.T) {
	world.RunInOneMode(t, "it reads documents")
	configuration, operations := document(t, "docs/configuration.md"), document(t, "docs/operations.md")
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

	_, settings, _ := strings.Cut(configuration, "\n## .env\n")
	rows := regexp.MustCompile("(?m)^\\| (`[A-Z_]+`(?:, `[A-Z_]+`)*) \\|").FindAllStringSubmatch(settings, -1)
	var have []string
	for _, row := range rows {
		have = append(have, strings.Split(strings.ReplaceAll(row[1], "`", ""), ", ")...)
	}
	compare("settings in docs/configuration.md", have, matches(`(?m)^([A-Z_]+)=`, document(t, ".env.example")))

	_, metrics, _ := strings.Cut(operations, "\n## Metrics\n")
	metrics, _, _ = strings.Cut(metrics, "\n## ")
	compare("metrics in docs/operations.md", matches("`(codeforge_[a-z_]+)", metrics), matches(`"(codeforge_[a-z_]+)"`, productGo(t)))

	_, start, _ := strings.Cut(configuration, "There are examples of APIs (")
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
	compare("examples in docs/configuration.md", matches("`([a-z0-9-]+)`", start), examples)

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

package walk

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// link matches a link of a document: [text](target).
var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// fenced matches a block of code, in which nothing is a link.
var fenced = regexp.MustCompile("(?ms)^```.*?^```$")

// TestLinks checks every relative link of the documents: the file must exist, and the heading if the link names one.
func TestLinks(t *testing.T) {
	world.RunInOneMode(t, "it reads documents")
	checked := 0
	for _, page := range listPages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(string(text), ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			checked++
			path, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			found, err := os.ReadFile(target)
			if info, statErr := os.Stat(target); statErr == nil && info.IsDir() {
				err = nil
			}
			if err != nil {
				t.Errorf("%s links to %s, which is not there", filepath.Base(page), m[1])
				continue
			}
			if anchor != "" && !anchors(string(found))[anchor] {
				t.Errorf("%s links to %s, and there is no such heading", filepath.Base(page), m[1])
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d links were checked", checked)
	}
}

// listPages returns the paths of all pages of the documentation.
func listPages(t *testing.T) []string {
	t.Helper()
	var pages []string
	for _, name := range []string{"README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md"} {
		pages = append(pages, filepath.Join(root(t), name))
	}
	err := filepath.WalkDir(filepath.Join(root(t), "docs"), func(path string, _ os.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// anchors are the anchors of a page's headings.
func anchors(text string) map[string]bool {
	out := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		name := strings.ReplaceAll(strings.ToLower(m[1]), " ", "-")
		out[regexp.MustCompile(`[^\p{L}\p{N}_-]`).ReplaceAllString(name, "")] = true
	}
	return out
}

// TestNamesOfSettings checks that every setting that the documents name in backquotes exists.
func TestNamesOfSettings(t *testing.T) {
	world.RunInOneMode(t, "it reads documents")
	known := document(t, ".env.example") + document(t, "docs/reference/settings.md") + document(t, "docker-compose.yml")
	for _, page := range listPages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`((?:MCP|SANDBOX|UPSTREAM|TIMEOUT|OUTPUT|SKILLS|YOLO|DEBUG|LOG|REDACTING)_[A-Z_]+)[`=]").FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(known, m[1]) {
				t.Errorf("%s names the setting %s, which there is not", filepath.Base(page), m[1])
			}
		}
	}
}

// TestNamesInSource checks that the codes and metrics that the documents name in backquotes occur in the source.
func TestNamesInSource(t *testing.T) {
	world.RunInOneMode(t, "it reads documents")
	known, checked := productGo(t)+document(t, "apis/config.schema.json"), 0
	for _, page := range []string{
		"README.md", "docs/architecture.md", "docs/contribute/a-run.md", "docs/contribute/sandbox.md", "docs/guides/ledger.md", "docs/guides/history.md", "docs/guides/observe.md",
		"docs/guides/tenants.md", "docs/reference/files.md", "docs/reference/metrics.md", "docs/reference/screens.md",
		"docs/security/for-users.md", "docs/troubleshooting.md",
	} {
		text := document(t, page)
		for _, m := range regexp.MustCompile("`(?:code=\")?([a-z]+(?:_[a-z]+)+)[`\"{]").FindAllStringSubmatch(text, -1) {
			name := m[1]
			if strings.HasPrefix(name, "codeforge_") && strings.Contains(document(t, "docker-compose.yml"), "\n  "+strings.TrimPrefix(name, "codeforge_")+":") {
				continue // a volume
			}
			checked++
			if !strings.Contains(known, name) {
				t.Errorf("%s names %s, which the source does not know", page, name)
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d names were checked", checked)
	}
}

// productGo is the Go source of the product without its tests.
func productGo(t *testing.T) string {
	t.Helper()
	var source strings.Builder
	for _, module := range []string{"catalog", "proxy", "mcp-server", "sandbox-image", "cli", "internal"} {
		err := filepath.WalkDir(filepath.Join(root(t), module), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			source.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return source.String()
}

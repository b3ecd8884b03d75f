package walk

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// TestStatements compares numbers in texts with the constants of the source.
func TestStatements(t *testing.T) {
	world.RunInOneMode(t, "it reads documents")
	for _, s := range []struct{ page, text, source, constant string }{
		{"docs/guides/add-an-api.md", "of one API, of all APIs together, without the next row | # MiB", "catalog/folder.go", `maxAPIBytes = (\d+) << 20`},
		{"docs/guides/add-an-api.md", "without the next row | 4 MiB, # MiB", "catalog/folder.go", `maxBytes    = (\d+) << 20`},
		{"docs/guides/add-an-api.md", "each; of all APIs together | # MiB", "catalog/operation/operation.go", `MaxFile += (\d+) << 20`},
		{"docs/guides/add-an-api.md", "each; of all APIs together | 32 MiB, # MiB", "catalog/document.go", `maxDocuments += (\d+) << 20`},
		{"docs/guides/documents.md", "The file may have # MiB", "catalog/operation/operation.go", `MaxFile += (\d+) << 20`},
		{"docs/reference/mcp-in-code.md", "`ttl` milliseconds (at most # hours)", "mcp-server/internal/broker/stash.go", `maxStashTime = (\d+) \* time.Hour`},
		{"docs/reference/mcp-in-code.md", "`timeout` in milliseconds, at most # minutes", "mcp-server/internal/broker/broker.go", `maxTimeout = (\d+) \* time.Minute`},
		{"docs/troubleshooting.md", "in the call's last argument (at most # minutes)", "mcp-server/internal/broker/broker.go", `maxTimeout = (\d+) \* time.Minute`},
		{"docs/reference/config-json.md", "each as\n`error: FILE: FIELD: FOUND; # RIGHT`", "cli/internal/cli/check.go", `settingFinding\("error", m, "(want) "`},
	} {
		m := matches(s.constant, document(t, s.source))
		if len(m) == 0 {
			t.Errorf("%s has no %s", s.source, s.constant)
		} else if want := strings.Replace(s.text, "#", m[0], 1); !strings.Contains(document(t, s.page), want) {
			t.Errorf("%s does not say %q", s.page, want)
		}
	}
	if m := matches(`maxShown = (\d)000`, document(t, "mcp-server/internal/tools/approve.go")); len(m) != 1 ||
		!strings.Contains(document(t, "docs/guides/approvals.md"), "more than "+m[0]+",000 bytes") {
		t.Errorf("docs/guides/approvals.md has another size of a form than %s,000 bytes", m)
	}
	statuses := matches("(?m)^\\| `[a-z_]+` \\| (\\d{3}) \\|", document(t, "docs/reference/refusal-codes.md"))
	guide := document(t, "mcp-server/internal/tools/guide.tmpl")
	if want := "with a status from " + slices.Min(statuses) + " to " + slices.Max(statuses); !strings.Contains(guide, want) {
		t.Errorf("get_instructions does not say %q", want)
	}
	// mcp-server's TestTokens counts with real tokenizers.
	limit := matches(`maxTokens = (\d+)`, document(t, "mcp-server/cmd/mcp-server/tokens_test.go"))
	for page, expression := range map[string]string{
		"README.md": `Six tools take under (\d+) tokens`, "docs/contribute/search-quality.md": `instructions take under (\d+) tokens`,
	} {
		if said := matches(expression, document(t, page)); len(limit) != 1 || !slices.Equal(said, limit) {
			t.Errorf("%s says under %q tokens, and the limit is %q", page, said, limit)
		}
	}
}

// TestFiles checks that docs/reference/files.md names each folder and volume that keeps data, and that a backup has all
// that CodeForge cannot create again.
func TestFiles(t *testing.T) {
	world.RunInOneMode(t, "it reads documents")
	page, backup := document(t, "docs/reference/files.md"), document(t, "docs/guides/backup-and-upgrade.md")
	_, source, _ := strings.Cut(document(t, "cli/internal/statedir/statedir.go"), "for _, sub := range []string{")
	source, _, _ = strings.Cut(source, "}")
	for _, folder := range matches(`"([a-z-]+)"`, source) {
		_, name, isPart := strings.Cut(folder, "-") // ca-private, ca-public
		switch {
		case slices.Contains([]string{"run", "runs", "tmp", "logins"}, folder): // kept only while CodeForge runs
		case strings.Contains(page, "`.codeforge/"+folder+"`"), isPart && strings.Contains(page, "`ca-"+name+"`"):
		default:
			t.Errorf("docs/reference/files.md lacks .codeforge/%s", folder)
		}
	}
	_, source, _ = strings.Cut(document(t, "docker-compose.yml"), "\nvolumes:\n")
	volumes := matches(`(?m)^  ([a-z-]+):`, source)
	for _, name := range volumes {
		if !strings.HasPrefix(name, "run-") && name != "programs" && !strings.Contains(page, "`codeforge_"+name+"`") {
			t.Errorf("docs/reference/files.md lacks the volume %s", name)
		}
	}
	saved := strings.Fields(strings.Join(matches(`for v in ([a-z -]+); do`, backup), ""))
	for _, name := range volumes {
		isNew := slices.Contains([]string{"ca-private", "ca-public", "packages", "programs", "sandbox-state"}, name)
		if lost := !strings.HasPrefix(name, "run-") && !isNew; lost != slices.Contains(saved, name) {
			t.Errorf("docs/guides/backup-and-upgrade.md saves the volumes %q, and %s is lost: %v", saved, name, lost)
		}
	}
	files := matches(`(?:tar -czf |>)([^\s|)]+codeforge-[^\s|)]+\.tgz)`, backup)
	if len(files) < 3 || slices.ContainsFunc(files, func(f string) bool { return !strings.HasPrefix(f, "~/") }) {
		t.Errorf("a backup has keys, and these files may be in the worktree: %q", files)
	}
	for _, name := range matches(`--exclude=\.codeforge/([a-z]+)`, backup) {
		if name != "run" && name != "packages" {
			t.Errorf("the backup of embedded mode lacks %s", name)
		}
	}
}

// TestFlags checks that the documents and the console name only commands and flags that exist.
func TestFlags(t *testing.T) {
	world.RunInOneMode(t, "it reads documents")
	sections := map[string]string{}
	for _, s := range regexp.MustCompile(`(?m)^#+ codeforge `).Split(document(t, "docs/reference/commands.md"), -1)[1:] {
		name, text, _ := strings.Cut(s, "\n")
		sections[name] = text
	}
	texts := map[string]string{}
	pages, err := filepath.Glob(filepath.Join(root(t), "mcp-server", "internal", "console", "web", "*.js"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(pages, listPages(t)...) {
		text, err := os.ReadFile(path) //nolint:gosec // of the project
		if err != nil {
			t.Fatal(err)
		}
		// These two pages show mistakes.
		if !strings.HasSuffix(path, "reference/commands.md") && !strings.HasSuffix(path, "reference/screens.md") {
			texts[filepath.Base(path)] = string(text)
		}
	}
	checked := 0
	command := regexp.MustCompile("(?m)\\b(?:bin/)?codeforge ([a-z]+(?: [a-z]+)?)((?:[ \t]+[^\\s|`&;<>()\"#]+)*)")
	for page, text := range texts {
		for _, m := range command.FindAllStringSubmatch(text, -1) {
			name, rest := m[1], m[2]
			section, ok := sections[name]
			if !ok {
				first, second, _ := strings.Cut(name, " ")
				name, rest = first, " "+second+rest
				section, ok = sections[name]
			}
			for _, flag := range regexp.MustCompile(`\s(--[a-z][a-z-]*)`).FindAllStringSubmatch(rest, -1) {
				if checked++; !ok || !strings.Contains(section, flag[1]) {
					t.Errorf("%s: codeforge %s has no %s: %s", page, name, flag[1], m[0])
				}
			}
		}
	}
	if checked < 25 {
		t.Errorf("only %d flags were checked", checked)
	}
}

// TestRepeated checks that no page has the same sentence or row twice.
func TestRepeated(t *testing.T) {
	world.RunInOneMode(t, "it reads documents")
	for _, path := range listPages(t) {
		text, err := os.ReadFile(path) //nolint:gosec // of the project
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, part := range regexp.MustCompile("(?s)```.*?```").Split(string(text), -1) {
			for line := range strings.Lines(part) {
				if line = strings.TrimSpace(line); len(line) < 60 || strings.HasPrefix(line, "|--") {
					continue
				}
				if seen[line] {
					t.Errorf("%s has twice: %s", filepath.Base(path), line)
				}
				seen[line] = true
			}
		}
	}
}

// maxPage bounds a page of docs/, in bytes: a page has one job.
const maxPage = 8 << 10

// TestSizes checks that no page is longer than maxPage, except tables that a test writes, and the promises, whose anchors
// never change.
func TestSizes(t *testing.T) {
	world.RunInOneMode(t, "it reads documents")
	for _, page := range listPages(t) {
		name, err := filepath.Rel(root(t), page)
		if err != nil {
			t.Fatal(err)
		}
		switch name {
		case "docs/reference/commands.md", "docs/reference/screens.md", "docs/reference/refusal-codes.md",
			"docs/security/tests.md", "docs/security/promises.md":
			continue
		}
		if n := len(document(t, name)); n > maxPage {
			t.Errorf("%s has %d bytes, at most %d: shorten or divide it", name, n, maxPage)
		}
	}
}

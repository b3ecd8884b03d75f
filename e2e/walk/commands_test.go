package walk

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// commandsIntro is the introduction of docs/reference/commands.md.
const commandsIntro = `# Commands

Every command of ` + "`codeforge`" + `, with the output of ` + "`codeforge COMMAND --help`" + `. With ` + "`--json`" + ` commands print JSON. Long flags
take two dashes. Colour is used on terminals only, and never if NO_COLOR is set.

A test keeps this page up to date; ` + "`go test ./walk -run TestCommands -update`" + ` in e2e/ regenerates it.
`

// TestCommands compares docs/reference/commands.md with the help of the commands.
func TestCommands(t *testing.T) {
	embeddedOnly(t)
	help := func(args ...string) string {
		out, code, err := world.Tool(within(t, 20), world.Command{Dir: t.TempDir(), Args: args})
		if err != nil || code != 0 {
			t.Fatalf("codeforge %v ended with %d, %v\n%s", args, code, err, out)
		}
		return strings.TrimSpace(out)
	}
	list := help("help")
	var b strings.Builder
	b.WriteString(commandsIntro + "\n```text\n" + list + "\n```\n")
	names := listedCommands(list)
	if len(names) < 10 {
		t.Fatalf("codeforge help lists %d commands", len(names))
	}
	for _, name := range names {
		text := help(name, "--help")
		b.WriteString("\n## codeforge " + name + "\n\n```text\n" + text + "\n```\n")
		for _, verb := range listedCommands(text) {
			b.WriteString("\n### codeforge " + name + " " + verb + "\n\n```text\n" + help(name, verb, "--help") + "\n```\n")
		}
	}
	same(t, "docs/reference/commands.md", b.String(), func(s string) string { return s })
}

// listedCommands are the names of the commands that a help lists, between its usage and its examples.
func listedCommands(help string) []string {
	_, list, _ := strings.Cut(help, "\nUsage:\n  codeforge")
	list, _, _ = strings.Cut(list, "\nExamples:\n")
	list, _, _ = strings.Cut(list, "\nFlags:\n")
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z]+) `).FindAllStringSubmatch(list, -1) {
		names = append(names, m[1])
	}
	return names
}

// same compares a document with its expected text, ignoring what differs between machines. With -update it writes the
// document.
func same(t *testing.T, path, want string, plain func(string) string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(filepath.Join(root(t), path), []byte(want), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
		return
	}
	got, must := strings.Split(plain(document(t, path)), "\n"), strings.Split(plain(want), "\n")
	for i := range max(len(got), len(must)) {
		g, m := "(nothing)", "(nothing)"
		if i < len(got) {
			g = got[i]
		}
		if i < len(must) {
			m = must[i]
		}
		if g != m {
			t.Fatalf("%s is not what CodeForge prints: it has\n\t%s\nand CodeForge\n\t%s\n(-update writes it anew; read it then)", path, g, m)
		}
	}
}

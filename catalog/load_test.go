package catalog_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/codeforge-mcp/codeforge/catalog"
)

var update = flag.Bool("update", false, "write what the tests see into the golden files")

// goodAPI stands beside every mistake: one bad API never hides the others.
const goodAPI = `{"description": "Fine", "domains": ["fine.example.com"], "credentials": {"FINE_TOKEN": "fine-hunter2-fine"}}`

// canary is in every credential of testdata/mistakes and in no message.
const canary = "hunter2"

// writeTree makes an apis/ folder. Files of names with "/" are 0600.
func writeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		write(t, dir, name, data)
	}
	return dir
}

func write(t testing.TB, dir, name, data string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

func names(c *catalog.Catalog) string {
	var out []string
	for _, a := range c.APIs() {
		out = append(out, a.Name)
	}
	return strings.Join(out, " ")
}

func listing(ps catalog.Problems) string {
	var b strings.Builder
	for _, p := range ps {
		b.WriteString(p.Severity.String() + ": " + p.String() + "\n")
	}
	return b.String()
}

// TestMistakes loads one folder per file of testdata/mistakes and compares every message, word for word.
// A section "env" is the environment (NAME=value lines); without it there is none. "want" is the messages, and
// "loaded" the APIs that are in the catalog nevertheless.
// Promise: every-echoed-form, configuration-fails-closed, no-credential-in-server-settings, never-stale-never-open
func TestMistakes(t *testing.T) {
	files, err := filepath.Glob("testdata/mistakes/*.txtar")
	if err != nil || len(files) < 60 {
		t.Fatalf("%d files in testdata/mistakes, %v; want the table of mistakes", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { testMistake(t, file) })
	}
}

func testMistake(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tree := map[string]string{"zz-fine/config.json": goodAPI}
	sections, inputs := map[string]string{}, []txtar.File{}
	var o catalog.Options
	for _, f := range archive.Files {
		switch f.Name {
		case "want", "loaded":
			sections[f.Name] = string(f.Data)
			continue
		case "env":
			o.Getenv = environment(string(f.Data))
		default:
			tree[f.Name] = string(f.Data)
		}
		inputs = append(inputs, f)
	}
	c, problems := catalog.Load(writeTree(t, tree), o)
	got := map[string]string{"want": listing(problems), "loaded": names(c) + "\n"}
	if c.API("zz-fine") == nil {
		t.Error("the API beside the mistake is not loaded")
	}
	if strings.Contains(strings.ToLower(got["want"]), canary) {
		t.Errorf("a message shows a credential:\n%s", got["want"])
	}
	if *update {
		archive.Files = append(inputs, txtar.File{Name: "want", Data: []byte(got["want"])}, txtar.File{Name: "loaded", Data: []byte(got["loaded"])})
		if err := os.WriteFile(file, txtar.Format(archive), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	for name, text := range got {
		if text != sections[name] {
			t.Errorf("%s:\ngot:\n%swant:\n%s", name, text, sections[name])
		}
	}
}

func environment(text string) func(string) string {
	vars := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		vars[name] = value
	}
	return func(name string) string { return vars[name] }
}

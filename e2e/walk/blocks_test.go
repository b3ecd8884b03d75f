package walk

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// TestBlocks parses the blocks of JSON and YAML in all pages.
func TestBlocks(t *testing.T) {
	world.RunInOneMode(t, "it reads documents")
	checked := 0
	for _, page := range listPages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks(string(text)) {
			var v any
			switch b.Lang {
			case "json":
				if !strings.HasPrefix(b.Text, "{") && !strings.HasPrefix(b.Text, "[") { // a field of an object
					b.Text = "{" + b.Text + "}"
				}
				err = json.Unmarshal([]byte(b.Text), &v)
			case "yaml":
				err = yaml.Unmarshal([]byte(b.Text), &v)
			default:
				continue
			}
			checked++
			if err != nil {
				t.Errorf("%s: %v in\n%s", filepath.Base(page), err, b.Text)
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d blocks were checked", checked)
	}
}

// TestRecipes checks the code of the recipes with Deno's compiler, and that each rule is in the example that the heading
// names.
func TestRecipes(t *testing.T) {
	world.RunInOneMode(t, "it reads documents")
	dir, count := t.TempDir(), 0
	for _, b := range blocks(document(t, "docs/guides/recipes.md")) {
		switch b.Lang {
		case "ts":
			count++
			write(t, dir, fmt.Sprintf("%s-%d.ts", b.Heading, count), b.Text+"export {};\n", 0o600)
		case "json":
			var example, part map[string]any
			decode(t, document(t, "apis/"+b.Heading+"/config.json.example"), &example)
			decode(t, b.Text, &part)
			rules, _ := example["rules"].([]any)
			isRule := slices.ContainsFunc(rules, func(rule any) bool { return reflect.DeepEqual(rule, any(part)) })
			for name, value := range part {
				if !isRule && !reflect.DeepEqual(example[name], value) {
					t.Errorf("apis/%s has no such rule or field: %s", b.Heading, b.Text)
				}
			}
		}
	}
	if count != 10 {
		t.Errorf("%d recipes, want 10", count)
	}
	check := exec.CommandContext(within(t, 60), filepath.Join(root(t), ".tools", "deno"), "check", "--quiet", ".") //nolint:gosec // ours
	check.Dir = dir
	check.Env = append(os.Environ(), "DENO_DIR="+t.TempDir(), "NO_COLOR=1")
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("deno check: %v\n%s", err, out)
	}
}

// decode parses JSON of a document.
func decode(t *testing.T, text string, to any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), to); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
}

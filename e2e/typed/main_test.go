// Package typed shows what the check of code that uses typed clients is worth, over real documents.
package typed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog/operation"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// sample is the file with the names of the documents, without ".json". With CODEFORGE_DOCUMENTS=all it is all of the
// directory.
const sample = "e2e/typed/testdata/documents.txt"

func TestMain(m *testing.M) { os.Exit(world.Main(m, install)) }

func all() bool { return os.Getenv("CODEFORGE_DOCUMENTS") == "all" }

func documentsDir(root string) string {
	if all() {
		return filepath.Join(root, ".tools", "openapi-all")
	}
	return filepath.Join(root, ".tools", "openapi")
}

// install fetches the documents. A failure is printed; the tests will find them missing.
func install(root string) {
	list := filepath.Join(root, sample)
	if all() {
		list = "all"
	}
	for dir, list := range map[string]string{documentsDir(root): list, exampleDir(root): filepath.Join(root, exampleList)} {
		cmd := exec.CommandContext(context.Background(), filepath.Join(root, "make", "documents.sh"), dir, list) //nolint:gosec // the tree's own
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "e2e: %v\n%s", err, out)
		}
	}
}

// document is an imported document.
type document struct {
	name       string
	text       string // operations.jsonl
	head       operation.Head
	operations []operation.Line
	types      map[string]string
}

// imported is a document of the directory, by codeforge api add.
func imported(t *testing.T, name, file string) document {
	t.Helper()
	root, err := world.Root()
	testkit.Must(t, err)
	path := filepath.Join(documentsDir(root), "api", file+".json")
	if _, err := os.Stat(path); err != nil {
		testkit.SkipBecause(t, "the documents could not be fetched from npm")
	}
	return importedFile(t, name, path, "--scheme", "none", "--server", "https://"+name+".test")
}

// importedFile is a document in a file, by codeforge api add with these arguments.
func importedFile(t *testing.T, name, path string, args ...string) document {
	t.Helper()
	program, err := world.Program("codeforge")
	testkit.Must(t, err)
	dir := t.TempDir()
	args = append([]string{"api", "add", name, "--openapi", path, "--apis", "apis"}, args...)
	cmd := exec.CommandContext(t.Context(), program, args...) //nolint:gosec // the product
	cmd.Stdin = strings.NewReader("not the credential of the test\nnor its password\n")
	cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "apis", name, "operations.jsonl"))
	testkit.Must(t, err)
	d := document{name: name, text: string(text), types: map[string]string{}}
	r, err := operation.NewReader(strings.NewReader(d.text))
	testkit.Must(t, err)
	d.head = r.Head()
	for {
		l, err := r.Next()
		if err != nil {
			break
		}
		if l.Type != "" {
			d.types[l.Type] = l.TS
		} else {
			d.operations = append(d.operations, l)
		}
	}
	return d
}

// api is the API of a document, without a credential. Nothing is sent to it.
func (d document) api() world.API {
	return world.API{Name: d.name, Operations: d.text, Config: map[string]any{
		"description": d.name, "domains": []string{d.name + ".test"},
	}}
}

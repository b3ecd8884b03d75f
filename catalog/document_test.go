package catalog_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// textOf is what a document holds.
func textOf(t testing.TB, d *catalog.Document) string {
	t.Helper()
	r := d.Open()
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil || int64(len(text)) != d.Size() {
		t.Fatalf("%d bytes of %d: %v", len(text), d.Size(), err)
	}
	return string(text)
}

// operationsOf is an operations.jsonl with one operation.
func operationsOf(summary string) string {
	return fmt.Sprintf("{\"format\":1,\"server\":\"https://a.example.com\",\"operations\":1,\"types\":0}\n{\"m\":\"GET\",\"p\":\"/x\",\"s\":\"%s\"}\n", summary)
}

// TestLargeTypes: types of several MiB, with characters across every border of what is read at once, are those of the API.
func TestLargeTypes(t *testing.T) {
	line := "// " + strings.Repeat("é€𝄞x", 40) + "\n"
	text := strings.Repeat(line, 5<<20/len(line))
	c := clean(t, writeTree(t, map[string]string{"a/config.json": plainConfig, "a/types.d.ts": text}), nil)
	if textOf(t, c.API("a").Types) != text {
		t.Error("the types are others")
	}
}

// TestOperationsOfAPI: the file of the API is kept as it was checked; a file that is none keeps the API's earlier version.
func TestOperationsOfAPI(t *testing.T) {
	dir := writeTree(t, map[string]string{"a/config.json": plainConfig, "a/operations.jsonl": operationsOf("List")})
	first := clean(t, dir, nil)
	a := first.API("a")
	if textOf(t, a.OperationsFile) != operationsOf("List") || len(a.OperationsFile.Digest()) != 64 {
		t.Fatalf("operations: %+v", a.OperationsFile)
	}
	for text, found := range map[string]string{
		"{}\n":                   "line 1: format 0; want 1",
		operationsOf("a\xffb"):   "line 1: bytes that are not text",
		operationsOf("a\x00b"):   "line 1: bytes that are not text",
		operationsOf("a\u202eb"): "line 2: summary with a character that is not shown as it is",
	} {
		write(t, dir, "a/operations.jsonl", text)
		c, problems := catalog.Load(dir, catalog.Options{Previous: first})
		if a := c.API("a"); a.Stale == "" || textOf(t, a.OperationsFile) != operationsOf("List") {
			t.Errorf("%q: %+v", text, a)
		}
		if !strings.Contains(problems.String(), "apis/a/operations.jsonl: "+found) {
			t.Errorf("%q: %s", text, problems)
		}
	}
	write(t, dir, "a/operations.jsonl", operationsOf("Other"))
	write(t, dir, "a/config.json", strings.Replace(plainConfig, "{", `{"operations": {"sha256": "`+strings.Repeat("0", 64)+`"},`, 1))
	if c, problems := catalog.Load(dir, catalog.Options{Previous: first}); c.API("a").Stale == "" || !strings.Contains(problems.String(), "another digest than operations.sha256") {
		t.Errorf("another digest: %+v\n%s", c.API("a"), problems)
	}
	write(t, dir, "a/config.json", plainConfig)
	if second := clean(t, dir, first); second.Version() == first.Version() || textOf(t, second.API("a").OperationsFile) != operationsOf("Other") {
		t.Error("the new file is not in force")
	}
}

// TestDocumentReadOnce: a file that did not change is not read again, unless it is so young that a change might not show.
func TestDocumentReadOnce(t *testing.T) {
	dir := writeTree(t, map[string]string{"a/config.json": plainConfig, "a/types.d.ts": "type A = 1;"})
	path := filepath.Join(dir, "a", "types.d.ts")
	young := clean(t, dir, nil)
	if again := clean(t, dir, young); again.API("a") != young.API("a") {
		t.Error("the same content makes another version")
	}
	mtime := func() time.Time {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime()
	}
	at := mtime()
	change := func(text string, at time.Time) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	change("type A = 2;", at)
	if c := clean(t, dir, young); textOf(t, c.API("a").Types) != "type A = 2;" {
		t.Error("a change right after the reading is missed")
	}
	old := time.Now().Add(-time.Hour)
	change("type A = 3;", old)
	settled := clean(t, dir, young)
	change("type A = 4;", old) // as no editor does: the same length and the same time
	if c := clean(t, dir, settled); textOf(t, c.API("a").Types) != "type A = 3;" {
		t.Error("a file with the same metadata is read again")
	}
	change("type A = 5;", old.Add(time.Second))
	if c := clean(t, dir, settled); textOf(t, c.API("a").Types) != "type A = 5;" {
		t.Error("a change is missed")
	}
}

// TestCredentialInDocument: a credential in operations.jsonl rejects the API, also one that JSON writes in another way,
// and one behind much other text.
func TestCredentialInDocument(t *testing.T) {
	const secret = "hunter2-hunter2"
	config := api("a.example.com", "ACME_TOKEN", secret)
	for name, file := range map[string][2]string{
		"plain":   {"operations.jsonl", operationsOf("use " + secret)},
		"escaped": {"operations.jsonl", operationsOf(`use \u0068unter2-hunter2`)},
		"key":     {"operations.jsonl", strings.Replace(operationsOf("x"), "/x", "/x/"+secret, 1)},
		"far":     {"types.d.ts", strings.Repeat("x", 3<<20-7) + secret},
	} {
		c, problems := catalog.Load(writeTree(t, map[string]string{"acme/config.json": config, "acme/" + file[0]: file[1]}), catalog.Options{})
		want := "apis/acme/" + file[0] + ": the credential of ACME_TOKEN, where the model reads it; want text without it"
		if c.API("acme") != nil || problems.String() != want {
			t.Errorf("%s: loaded %v, problems %s", name, c.API("acme"), problems)
		}
	}
}

package catalog_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/costtest"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestSoon: the first load of 500 APIs with 16,000 operations takes about as long as that of the same APIs without any,
// and the second one knows the same.
func TestSoon(t *testing.T) {
	const apis, each = 500, 32
	bare, dir := t.TempDir(), t.TempDir()
	for i := range apis {
		var text strings.Builder
		fmt.Fprintf(&text, `{"format":1,"server":"https://a%d.example.com","operations":%d,"types":0}`+"\n", i, each)
		for n := range each {
			fmt.Fprintf(&text, `{"m":"GET","p":"/items/%d","s":"Get an item","a":"{ %s}"}`+"\n", n, strings.Repeat("name_of_it?: string; ", 25))
		}
		config := fmt.Sprintf(`{"description": "x", "domains": ["a%d.example.com"], "operations": {"source": "a.json", "sha256": "%x"}}`,
			i, sha256.Sum256([]byte(text.String())))
		for root, files := range map[string]map[string]string{
			bare: {"config.json": config}, dir: {"config.json": config, "operations.jsonl": text.String()},
		} {
			folder := filepath.Join(root, fmt.Sprintf("a%d", i))
			testkit.Must(t, os.Mkdir(folder, 0o700))
			for name, text := range files {
				testkit.Must(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
			}
		}
	}
	var first, second *catalog.Catalog
	load := func(dir string, soon bool) (c *catalog.Catalog, took time.Duration) {
		took = costtest.MeasureTime(func() {
			var problems catalog.Problems
			if c, problems = catalog.Load(dir, catalog.Options{Soon: soon}); len(problems) > 0 {
				t.Error(problems)
			}
		})
		return c, took
	}
	var without, with, whole []time.Duration
	for range 5 {
		_, took := load(bare, true)
		without = append(without, took)
		first, took = load(dir, true)
		with = append(with, took)
		second, took = load(dir, false)
		whole = append(whole, took)
	}
	slices.Sort(without)
	slices.Sort(with)
	slices.Sort(whole)
	t.Logf("processor time: %v without operations, %v with them, %v for the second load", without[2], with[2], whole[2])
	if with[2] > 2*without[2]+50*time.Millisecond {
		t.Errorf("%v without operations, %v with them", without[2], with[2])
	}
	if !first.HasUnread() || second.HasUnread() || first.Version() != second.Version() {
		t.Errorf("unread: %v, then %v; versions %s and %s", first.HasUnread(), second.HasUnread(), first.Version(), second.Version())
	}
}

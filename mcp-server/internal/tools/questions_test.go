//go:build corpus

package tools

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/costtest"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/apidoc"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/search"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// asked is one question of testdata/questions.
type asked struct {
	set, api, text string
	right          []string
}

// sets are the files of testdata/questions.
var sets = []string{"drawn", "graph", "graph2", "graph3", "blind", "tuning"}

// readQuestions reads sets of questions.
func readQuestions(t *testing.T, sets []string) (all []asked) {
	t.Helper()
	for _, set := range sets {
		text, err := os.ReadFile(filepath.Join("testdata/questions", set+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Split(strings.TrimSpace(line), "\t"); len(f) > 2 {
				all = append(all, asked{set, f[0], f[1], f[2:]})
			}
		}
	}
	return all
}

// TestQuestions asks the questions of testdata/questions about imported documents, and writes what it saw for
// make bench-tokens. CODEFORGE_CORPUS is a folder with apis/ and a folder for the results, out/.
func TestQuestions(t *testing.T) {
	home := os.Getenv("CODEFORGE_CORPUS")
	if home == "" {
		t.Fatal("CODEFORGE_CORPUS is not set: make bench-tokens sets it")
	}
	all := readQuestions(t, sets)
	operations := map[string]string{}
	docs := map[string]*apidoc.Document{}
	var apis []proxyapi.API
	for _, a := range all {
		if docs[a.api] != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(home, "apis", a.api, "operations.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		if docs[a.api], err = apidoc.ReadDocument(a.api, strings.NewReader(string(text))); err != nil {
			t.Fatal(err)
		}
		operations[a.api] = string(text)
		apis = append(apis, proxyapi.API{Name: a.api, Operations: "x", Domains: []string{a.api + ".test"}})
	}
	call := askOf(t, nil, operations, apis...)

	// result is a question with what a model reads, for the script that counts tokens.
	type result struct {
		Set, API, Question, Right string
		Place                     int // of the first right operation, from 0; -1: not among ten
		Answer                    string
		Operation                 string // all of the right one
	}
	var out []result
	for _, together := range []bool{false, true} {
		count := map[string][]int{}
		for _, a := range all {
			place := placeOf(docs, a, together)
			count[a.set] = append(count[a.set], place)
			if together {
				continue
			}
			out = append(out, result{a.set, a.api, a.text, a.right[0], place, call("list_apis", map[string]any{"query": a.text, "api": a.api}),
				call("list_apis", map[string]any{"operation": a.right[0], "api": a.api})})
		}
		for _, set := range sets {
			within := func(n int) int {
				return 100 * len(slices.DeleteFunc(slices.Clone(count[set]), func(p int) bool { return p < 0 || p >= n })) / len(count[set])
			}
			fmt.Printf("%s, all APIs together %v: %d questions, first %d %%, among five %d %%, among eight %d %%, among ten %d %%\n",
				set, together, len(count[set]), within(1), within(5), within(8), within(10))
			if blind := set == "drawn" || set == "blind"; blind && !together && (within(5) < 75 || within(10) < 85) {
				t.Errorf("%s: right among five %d %%, among ten %d %%; want 75 and 85", set, within(5), within(10))
			}
		}
	}
	text, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "out", "answers.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// placeOf is where the first right operation is among ten, or -1.
func placeOf(docs map[string]*apidoc.Document, a asked, together bool) int {
	places := []*search.Index{docs[a.api].Index}
	if together {
		for _, d := range docs {
			if d.Name != a.api {
				places = append(places, d.Index)
			}
		}
		slices.SortFunc(places, func(a, b *search.Index) int { return strings.Compare(a.Name(), b.Name()) })
	}
	return slices.IndexFunc(search.Search(places, a.text, 10), func(h search.Hit) bool {
		return h.Index.Name() == a.api && slices.Contains(a.right, docs[a.api].Label(h.Entry))
	})
}

// TestLarge measures a question over all documents of the corpus, many times over, and the memory that they take.
func TestLarge(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(os.Getenv("CODEFORGE_CORPUS"), "apis/*/operations.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatal("no documents", err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var docs []*apidoc.Document
	var indexes []*search.Index
	n := 0
	const (
		enough   = 16_000
		mostMB   = 10
		mostTime = 2 * time.Millisecond
	)
	for i := 0; n < enough; i++ {
		f, err := os.Open(files[i%len(files)])
		if err != nil {
			t.Fatal(err)
		}
		d, err := apidoc.ReadDocument(fmt.Sprint("copy", i), f)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
		docs, indexes, n = append(docs, d), append(indexes, d.Index), n+d.OperationCount()
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	held := float64(after.HeapAlloc-before.HeapAlloc) / 1e6
	fmt.Printf("%d operations in %d documents: %.1f MB\n", n, len(docs), held)
	if held > mostMB {
		t.Errorf("%.1f MB; want at most %d", held, mostMB)
	}
	for _, q := range []string{"refund a payment", "list all the users of an organization", "who can push to a repository", "delete a virtual machine",
		"turn off email reminders for one user", "crete a subscripton", "how much did I spend this month"} {
		var took []time.Duration
		for range 15 {
			took = append(took, costtest.MeasureTime(func() { search.Search(indexes, q, 8) }))
		}
		slices.Sort(took)
		median := took[len(took)/2].Round(10 * time.Microsecond)
		fmt.Printf("%-40s %v of processor time, the median of 15\n", q, median)
		if median > mostTime {
			t.Errorf("%s takes %v; want at most %v", q, median, mostTime)
		}
	}
	runtime.KeepAlive(docs)
}

//go:build corpus

package tools

import (
	"cmp"
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

// corpus is imported documents, by API.
type corpus struct {
	docs map[string]*apidoc.Document
	call func(string, map[string]any) string // of a surface that has them
}

func readCorpus(t *testing.T, questions []asked) corpus {
	t.Helper()
	c, operations, apis := corpus{docs: map[string]*apidoc.Document{}}, map[string]string{}, []proxyapi.API(nil)
	for _, a := range questions {
		if c.docs[a.api] != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(os.Getenv("CODEFORGE_CORPUS"), "apis", a.api, "operations.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		if c.docs[a.api], err = apidoc.ReadDocument(a.api, strings.NewReader(string(text))); err != nil {
			t.Fatal(err)
		}
		operations[a.api] = string(text)
		apis = append(apis, proxyapi.API{Name: a.api, Operations: "x", Domains: []string{a.api + ".test"}})
	}
	c.call = askOf(t, nil, operations, apis...)
	// Reading a large document takes longer than a call waits for it.
	for strings.Contains(c.call("list_apis", map[string]any{"query": "refund"}), "still being read") {
		time.Sleep(100 * time.Millisecond)
	}
	return c
}

// rank is where the first right operation is, or 99. Without given, it is searched for in all documents.
func (c corpus) rank(a asked, by search.Ranker, given bool) int {
	var indexes []*search.Index
	for _, d := range c.docs {
		if !given || d.Name == a.api {
			indexes = append(indexes, d.Index)
		}
	}
	slices.SortFunc(indexes, func(a, b *search.Index) int { return cmp.Compare(a.Name(), b.Name()) })
	at := slices.IndexFunc(by.SearchWith(indexes, a.text, results), func(h search.Hit) bool {
		return h.Index.Name() == a.api && slices.Contains(a.right, c.docs[a.api].Label(h.Entry))
	})
	if at < 0 {
		return 99
	}
	return at
}

// shows reports whether an answer has a right operation, under its API, and whether it does so with types.
func shows(answer string, a asked) (shown, typed bool) {
	api := ""
	lines := strings.Split(answer, "\n")
	for i, line := range lines {
		if after, ok := strings.CutPrefix(line, "# "); ok {
			api, _, _ = strings.Cut(after, " ")
		}
		key, _, _ := strings.Cut(line, "  ")
		if api == a.api && slices.Contains(a.right, key) {
			return true, i+1 < len(lines) && strings.HasPrefix(lines[i+1], "  ")
		}
	}
	return false, false
}

// TestRanking prints, for each ranker and set of questions, how many of a hundred are answered at rank 1, within 5 and 10, and
// among those shown, with the API given and with the documents of the set loaded; and tokens, time and memory. The set
// "release" is asked only if CODEFORGE_RELEASE is set.
func TestRanking(t *testing.T) {
	sets := []string{"everyday", "tuning", "blind", "drawn", "graph", "graph2", "graph3"}
	if os.Getenv("CODEFORGE_RELEASE") != "" {
		sets = append(sets, "release")
	}
	fmt.Println("| ranker | set | API | 1 | 5 | 10 | shown | tokens median | p95 | time |\n|---|---|---|--:|--:|--:|--:|--:|--:|--:|")
	for _, set := range sets {
		questions := readQuestions(t, []string{set})
		c := readCorpus(t, questions)
		for by, name := range []string{"both", "words", "meaning"} {
			for _, given := range []bool{true, false} {
				var within [4]int
				var tokensOf []int
				var took []time.Duration
				for _, a := range questions {
					r := 99
					took = append(took, costtest.MeasureTime(func() { r = c.rank(a, search.Ranker(by), given) }))
					for i, n := range []int{1, 5, 10, results} {
						if r < n {
							within[i]++
						}
					}
					if by != int(search.Both) {
						continue
					}
					args := map[string]any{"query": a.text}
					if given {
						args["api"] = a.api
					}
					answer := c.call("list_apis", args)
					tokensOf = append(tokensOf, estimateTokens(answer))
					shown, _ := shows(answer, a)
					if r < results && !shown { // left out by its cost
						within[3]--
					}
					if !shown {
						t.Logf("not shown, API given %v: %s %s", given, a.api, a.text)
					}
				}
				slices.Sort(tokensOf)
				slices.Sort(took)
				share := func(i int) int { return (100*within[i] + len(questions)/2) / len(questions) }
				mode := map[bool]string{true: "given", false: "all"}[given]
				fmt.Printf("| %s | %s | %s | %d | %d | %d | %d |", name, set, mode, share(0), share(1), share(2), share(3))
				if len(tokensOf) > 0 {
					fmt.Printf(" %d | %d |", tokensOf[len(tokensOf)/2], tokensOf[len(tokensOf)*95/100])
				} else {
					fmt.Print(" | |")
				}
				fmt.Printf(" %v |\n", took[len(took)/2].Round(10*time.Microsecond))
			}
		}
	}
}

// TestDay does the tasks of day.txt as a model would: it asks, reads the operation in full if the answer has it without types,
// and asks with the second wording if the answer has not got it.
func TestDay(t *testing.T) {
	tasks := readQuestions(t, []string{"day"})
	c := readCorpus(t, tasks)
	lookups, cost := 0, 0
	fmt.Println("| API | task | lookups | tokens |\n|---|---|--:|--:|")
	for _, a := range tasks {
		n, sum := 0, 0
		for _, wording := range []string{a.text, a.right[0]} {
			answer := c.call("list_apis", map[string]any{"query": wording})
			n, sum = n+1, sum+estimateTokens(answer)
			shown, typed := shows(answer, asked{api: a.api, right: a.right[1:]})
			if shown && !typed {
				answer = c.call("list_apis", map[string]any{"api": a.api, "operation": a.right[1]})
				n, sum = n+1, sum+estimateTokens(answer)
			}
			if shown {
				break
			}
		}
		fmt.Printf("| %s | %s | %d | %d |\n", a.api, a.text, n, sum)
		lookups, cost = lookups+n, cost+sum
	}
	fmt.Printf("| | mean | %.2f | %d |\n", float64(lookups)/float64(len(tasks)), cost/len(tasks))
}

// TestRefund: the example of the tool's description finds the right operation first or second, among twelve other APIs.
func TestRefund(t *testing.T) {
	a := asked{"", "stripe", "refund a charge", []string{"POST /v1/refunds"}}
	c := readCorpus(t, append(readQuestions(t, []string{"tuning"}), a))
	for _, given := range []bool{true, false} {
		if r := c.rank(a, search.Both, given); r > 1 {
			t.Errorf("rank %d, API given %v", r+1, given)
		}
	}
}

// TestMemory prints what the indexes of a set take, and of Microsoft Graph alone.
func TestMemory(t *testing.T) {
	for _, set := range []string{"everyday", "graph"} {
		questions := readQuestions(t, []string{set})
		operations, before := 0, heap()
		docs := map[string]*apidoc.Document{}
		took := costtest.MeasureTime(func() {
			for _, a := range questions {
				if docs[a.api] == nil {
					f, err := os.Open(filepath.Join(os.Getenv("CODEFORGE_CORPUS"), "apis", a.api, "operations.jsonl"))
					if err != nil {
						t.Fatal(err)
					}
					if docs[a.api], err = apidoc.ReadDocument(a.api, f); err != nil {
						t.Fatal(err)
					}
					operations += docs[a.api].OperationCount()
					_ = f.Close()
				}
			}
		})
		fmt.Printf("%s: %d operations in %.1f MB, read in %v\n", set, operations, (float64(heap())-float64(before))/(1<<20), took.Round(time.Millisecond))
		runtime.KeepAlive(docs)
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

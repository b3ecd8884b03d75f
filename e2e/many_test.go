package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestManyOperations: with 500 APIs whose documents have 16,000 operations, mcp-server takes at most 18 MiB more than with
// the same APIs without: 10 for the index of words, 4.5 for the table of word vectors, 2 for the vectors of the operations,
// and the rest for differences between starts. And a question after the start finds one of them, or says that they are still being read. It
// prints how long each start took; catalog.TestSoon bounds what the documents cost it.
func TestManyOperations(t *testing.T) {
	if world.CurrentMode() != world.Embedded {
		t.Skip("embedded mode only: memory is that of a process of this machine")
	}
	const apis, each = 500, 32
	of := func(operations bool) (list []world.API) {
		for i := range apis {
			var text strings.Builder
			fmt.Fprintf(&text, `{"format":1,"server":"https://a%d.test","operations":%d,"types":0}`+"\n", i, each)
			for n := range each {
				fmt.Fprintf(&text, `{"m":"GET","p":"/shop%d/items%d","s":"Get item %d of shop %d","a":"{ %s}"}`+"\n", i, n, n, i, strings.Repeat("name_of_it?: string; ", 25))
			}
			a := world.API{Name: fmt.Sprintf("a%d", i), Config: map[string]any{"description": "d", "domains": []string{fmt.Sprintf("a%d.test", i)}}}
			if operations {
				a.Operations = text.String()
				a.Config["operations"] = map[string]any{"source": "a.json", "sha256": fmt.Sprintf("%x", sha256.Sum256([]byte(a.Operations)))}
			}
			list = append(list, a)
		}
		return list
	}
	lists := [][]world.API{of(false), of(true)}
	var took [2][]time.Duration
	var held [2][]int
	for range 3 {
		for i := range took {
			began := time.Now()
			w, err := world.Open(world.Config{APIs: lists[i]})
			testkit.Must(t, err)
			took[i] = append(took[i], time.Since(began))
			question := &mcp.CallToolParams{Name: "list_apis", Arguments: map[string]any{"query": "item 7 of shop 499"}}
			var answer *mcp.CallToolResult
			var text []byte
			testkit.WaitFor(t, func() bool {
				answer, err = w.Session().CallTool(t.Context(), question)
				text, _ = json.Marshal(answer)
				return !strings.Contains(string(text), "still being read") // on a busy machine
			})
			if err != nil || strings.Contains(string(text), "GET /shop499/items7") != (i == 1) {
				t.Errorf("%v: %.500s", err, text)
			}
			time.Sleep(2 * time.Second) // what the reading left is collected
			held[i] = append(held[i], memoryOf(t, w.Process.Cmd.Process.Pid))
			testkit.Must(t, w.Close())
		}
	}
	for i := range took {
		slices.Sort(took[i])
		slices.Sort(held[i])
	}
	t.Logf("without and with operations: %v to start, mcp-server has %v KiB", took, held)
	if more := held[1][1] - held[0][1]; more > 18<<10 {
		t.Errorf("mcp-server has %d KiB more with operations", more)
	}
}

var (
	parent  = regexp.MustCompile(`(?m)^PPid:\s+(\d+)$`)
	private = regexp.MustCompile(`(?m)^(?:Private_Dirty|Private_Clean):\s+(\d+) kB$`)
)

// memoryOf is how much memory the mcp-server below a process has for itself, in KiB.
func memoryOf(t *testing.T, root int) (sum int) {
	t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*/comm")
	testkit.Must(t, err)
	for _, path := range list {
		name, _ := os.ReadFile(path) // gone meanwhile
		if strings.TrimSpace(string(name)) != "mcp-server" {
			continue
		}
		dir := filepath.Dir(path)
		for at := dir; at != "/proc/0"; {
			status, _ := os.ReadFile(at + "/status")
			m := parent.FindSubmatch(status)
			if m == nil {
				break
			}
			if at = "/proc/" + string(m[1]); at != "/proc/"+strconv.Itoa(root) {
				continue
			}
			rollup, err := os.ReadFile(dir + "/smaps_rollup")
			testkit.Must(t, err)
			for _, m := range private.FindAllSubmatch(rollup, -1) {
				n, _ := strconv.Atoi(string(m[1]))
				sum += n
			}
			return sum
		}
	}
	t.Fatal("no mcp-server")
	return 0
}

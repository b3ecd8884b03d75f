package providers

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// kept is what is stored of a credential.
type kept struct {
	Access  string `json:"access"`
	Refresh string `json:"refresh"`
}

// places are the folders in which CodeForge keeps files, and the one with tokens.
func places(t *testing.T, w *world.World) (all []string, tokens string) {
	t.Helper()
	if w.Mode != world.Docker {
		return []string{w.Dir}, filepath.Join(w.Process.State, "tokens")
	}
	out, err := w.Stack.Compose(t.Context(), "config", "--volumes")
	testkit.Must(t, err)
	all = []string{w.Dir}
	for _, name := range strings.Fields(out) {
		path, err := w.Stack.Volume(t.Context(), name)
		testkit.Must(t, err)
		if name == "tokens" {
			tokens = path
		}
		all = append(all, path)
	}
	return all, tokens
}

// stored is what the proxy has stored of a credential.
func stored(t *testing.T, w *world.World, name string) (k kept) {
	t.Helper()
	_, tokens := places(t, w)
	text, err := os.ReadFile(filepath.Join(tokens, name+".json"))
	testkit.Must(t, err)
	testkit.Must(t, json.Unmarshal(text, &k))
	if k.Access == "" {
		t.Fatalf("no access token of %s is stored", name)
	}
	return k
}

// forms are the spellings in which a secret is searched for.
func forms(secret string) [][]byte {
	base := base64.StdEncoding.EncodeToString([]byte(secret))
	return [][]byte{[]byte(secret), []byte(base[:len(base)/4*4-4])}
}

// nowhere fails if a token is in what code got, a log, a receipt, a metric, what a command prints, a file of CodeForge's
// that is not the proxy's own, or the memory of any process of CodeForge's but the proxy.
func nowhere(t *testing.T, w *world.World, tokens []string, result string) {
	t.Helper()
	shown := map[string][]byte{"a result": []byte(result), "the log": []byte(w.Logs())}
	for _, args := range [][]string{
		{"credentials"}, {"credentials", "--json"}, {"logs", "-n", "1000", "--json"}, {"runs", "--json"}, {"audit", "show", "--json"},
		{"status", "--json"}, {"manifest"}, {"receipt"},
	} {
		out, _, err := world.Tool(t.Context(), command(t, w, args...))
		testkit.Must(t, err)
		shown["codeforge "+strings.Join(args, " ")] = []byte(out)
	}
	resp, err := w.HTTP().Get(strings.TrimSuffix(w.URL, "/mcp") + "/metrics")
	testkit.Must(t, err)
	var metrics bytes.Buffer
	_, err = metrics.ReadFrom(resp.Body)
	testkit.Must(t, err)
	testkit.Must(t, resp.Body.Close())
	shown["/metrics"] = metrics.Bytes()
	folders, own := places(t, w)
	files := 0
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return nil //nolint:nilerr // gone meanwhile
			case path == own:
				return filepath.SkipDir
			case d.Type().IsRegular() && d.Name() != "config.json": // where the test itself has written a client's secret
				if data, err := os.ReadFile(path); err == nil {
					shown[path] = data
					files++
				}
			}
			return nil
		})
		testkit.Must(t, err)
	}
	for name, memory := range memories(t, w) {
		shown["the memory of "+name] = memory
	}
	for _, name := range []string{"runs.db", "memory of codeforge", "memory of mcp-server", "memory of sandboxd"} {
		found := w.Mode == world.Docker && name == "memory of codeforge"
		for where, data := range shown {
			found = found || strings.Contains(where, name) && len(data) > 0
		}
		if !found {
			t.Errorf("nothing was searched that is called %s, of %d files", name, files)
		}
	}
	for where, data := range shown {
		for i, token := range tokens {
			if strings.HasPrefix(where, "the memory of codeforge") && strings.HasPrefix(token, "inner-canary") {
				continue // of config.json, which codeforge up reads
			}
			for _, form := range forms(token) {
				if at := bytes.Index(data, form); at >= 0 {
					t.Errorf("%s shows token %d at %d", where, i, at)
				}
			}
		}
	}
	proxied := 0
	for _, token := range tokens { // the control: a search of the proxy finds them
		if bytes.Contains(memory(t, proxyOf(t, w)), []byte(token)) {
			proxied++
		}
	}
	if proxied == 0 {
		t.Error("the search of memory finds nothing, not even in the proxy")
	}
}

// parents are the processes of the machine with their parents.
func parents(t *testing.T) map[int]int {
	t.Helper()
	out := map[int]int{}
	list, err := filepath.Glob("/proc/[0-9]*/stat")
	testkit.Must(t, err)
	for _, path := range list {
		text, _ := os.ReadFile(path) // gone meanwhile
		_, rest, ok := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if !ok || len(fields) < 2 {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		out[pid], _ = strconv.Atoi(fields[1])
	}
	return out
}

// processes are those of CodeForge, by id, with their names.
func processes(t *testing.T, w *world.World) map[int]string {
	t.Helper()
	var roots []int
	if w.Mode == world.Docker {
		for _, service := range []string{"mcp-server", "proxy", "sandbox"} {
			out, err := w.Stack.Top(t.Context(), service)
			testkit.Must(t, err)
			roots = append(roots, out...)
		}
	} else {
		roots = []int{w.Process.Cmd.Process.Pid}
	}
	of := parents(t)
	out := map[int]string{}
	for pid := range of {
		for at := pid; at > 1; at = of[at] {
			for _, root := range roots {
				if at == root {
					comm, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm")) // gone meanwhile
					out[pid] = strings.TrimSpace(string(comm))
				}
			}
		}
	}
	return out
}

// proxyOf is the proxy's process.
func proxyOf(t *testing.T, w *world.World) int {
	t.Helper()
	for pid, name := range processes(t, w) {
		if name == "egress-proxy" {
			return pid
		}
	}
	t.Fatal("there is no egress-proxy")
	return 0
}

// memories are what each process of CodeForge but the proxy has in its memory.
func memories(t *testing.T, w *world.World) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for pid, name := range processes(t, w) {
		if name != "egress-proxy" {
			out[name+" "+strconv.Itoa(pid)] = memory(t, pid)
		}
	}
	return out
}

// memory is what a process may write of its own memory.
func memory(t *testing.T, pid int) []byte {
	t.Helper()
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	maps, err := os.ReadFile(filepath.Join(dir, "maps"))
	if err != nil {
		return nil // gone meanwhile
	}
	mem, err := os.Open(filepath.Join(dir, "mem"))
	if err != nil {
		return nil // gone meanwhile
	}
	defer mem.Close()
	var all []byte
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		from, to, _ := strings.Cut(fields[0], "-")
		low, err1 := strconv.ParseInt(from, 16, 64)
		high, err2 := strconv.ParseInt(to, 16, 64)
		if err1 != nil || err2 != nil || !strings.HasPrefix(fields[1], "rw") || high-low > 256<<20 {
			continue
		}
		part := make([]byte, high-low)
		if n, _ := mem.ReadAt(part, low); n > 0 { // some regions cannot be read
			all = append(all, part[:n]...)
		}
	}
	return all
}

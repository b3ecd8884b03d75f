package servers

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// recorded is what codeforge receipt shows of a run.
func recorded(t *testing.T, w *world.World, run string) (r proxyapi.Receipt) {
	t.Helper()
	out, code, err := world.Tool(t.Context(), world.Command{
		Dir: w.Dir, Args: []string{"receipt", run, "--json", "--state", w.Process.State},
	})
	if err != nil || code != 0 {
		t.Fatalf("codeforge receipt: exit code %d, %v\n%s", code, err, out)
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// caused reports whether a receipt shows a request with a swapped credential to a host below a call of a tool.
func caused(r proxyapi.Receipt, host string) bool {
	for _, x := range r.Exchanges {
		for _, c := range x.Caused {
			if x.CalledTool() != "" && c.Host == host && len(c.Swapped) > 0 {
				return true
			}
		}
	}
	return false
}

// injected checks that the company's host got the key in place of the name.
func injected(t *testing.T, w *world.World, host, key string) {
	t.Helper()
	for _, s := range w.Upstream.Seen("") {
		if s.Name != host {
			continue
		}
		for _, values := range s.Header {
			if strings.Contains(strings.Join(values, " "), key) {
				return
			}
		}
	}
	t.Errorf("%s got no request with the key", host)
}

// searchSlot searches the processes of the running server whose command lines contain program: their environments, memory
// and files have the token name, and not the key.
func searchSlot(t *testing.T, program, token, key string) {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	named, searched := 0, 0
	for _, p := range processes {
		cmdline, _ := os.ReadFile(filepath.Join(p, "cmdline")) // gone meanwhile
		if !bytes.Contains(cmdline, []byte(program)) {
			continue
		}
		searched++
		environ, _ := os.ReadFile(filepath.Join(p, "environ"))
		for name, data := range map[string][]byte{"command line": cmdline, "environment": environ, "memory": memory(t, p), "files": files(p)} {
			if bytes.Contains(data, []byte(token)) {
				named++
			}
			for _, form := range []string{key, base64.StdEncoding.EncodeToString([]byte(key))} {
				if bytes.Contains(data, []byte(form)) {
					t.Errorf("the %s of %s has the key", name, cmdline)
				}
			}
		}
	}
	if searched == 0 || named < 2 { // the name is in environment and memory: otherwise nothing was read
		t.Errorf("searched %d processes, and found the name %d times", searched, named)
	}
}

// memory is what a process can read of its own memory and has to itself.
func memory(t *testing.T, proc string) []byte {
	t.Helper()
	maps, err := os.ReadFile(filepath.Join(proc, "maps"))
	if err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open(filepath.Join(proc, "mem"))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	var all []byte
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil || !strings.HasPrefix(mode, "rw") || to-from > 256<<20 {
			continue
		}
		part := make([]byte, to-from)
		if n, _ := mem.ReadAt(part, from); n > 0 { // some regions cannot be read
			all = append(all, part[:n]...)
		}
	}
	return all
}

// files are what a process sees in the folders that it may write.
func files(proc string) []byte {
	var all []byte
	for _, dir := range []string{"home", "tmp"} {
		_ = filepath.WalkDir(filepath.Join(proc, "root", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil //nolint:nilerr // what the slot cannot read does not count
			}
			data, err := os.ReadFile(path)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			all = append(all, data...)
			return nil
		})
	}
	return all
}

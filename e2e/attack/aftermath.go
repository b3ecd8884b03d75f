package attack

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// Aftermath searches what a world holds after attacks for its canaries: logs, metrics, the public catalog, files,
// environments and command lines, and everything that ever arrived at the upstream.
func Aftermath(ctx context.Context, w *world.World) []Outcome {
	row := func(name, expected string, do func() (string, bool)) Outcome {
		start := time.Now()
		seen, held := do()
		return Outcome{Attack: Attack{Section: "*", Name: name, Expected: expected}, Seen: seen, Held: held, Took: time.Since(start)}
	}
	logs := w.Logs()
	list := []Outcome{
		row("all log lines, with debug on", "no credential", func() (string, bool) { return searched(w, logs) }),
		row("redacted strings in the log", "none", func() (string, bool) {
			n := strings.Count(logs, redactMe)
			return fmt.Sprintf("%d found", n), n == 0
		}),
		row("redacted strings in names that were looked up", "none", func() (string, bool) {
			asked := strings.Join(w.Upstream.Asked(), " ")
			return fmt.Sprintf("%d bytes searched", len(asked)), !strings.Contains(asked, redactMe)
		}),
		row("everything that arrived upstream", "each credential at its own hosts only", func() (string, bool) {
			seen := w.Upstream.Seen("")
			if where := misplaced(w, seen); where != "" {
				return "SENT: " + where, false
			}
			return fmt.Sprintf("%d requests looked at", len(seen)), len(seen) < upstream.MaxSeen
		}),
	}
	if w.Mode == world.Docker {
		return append(list, row("container environments and definitions", "no credential", func() (string, bool) { return inspected(ctx, w) }))
	}
	if w.Mode == world.Kubernetes { // for the rest: e2e/kubernetes.TestRelease
		return append(list, row("metrics, catalog and health of the control API", "no credential", func() (string, bool) { return control(ctx, w) }))
	}
	return append(list,
		row("metrics, catalog and health of the control API", "no credential", func() (string, bool) { return control(ctx, w) }),
		row("files of the state directory", "no credential", func() (string, bool) { return files(w) }),
		row("environments and command lines of every process", "no credential", func() (string, bool) { return environments(w) }),
	)
}

func searched(w *world.World, text string) (string, bool) {
	for line := range strings.Lines(text) {
		if where := w.Leak(line); where != "" {
			return "LEAK: " + where + " of: " + clip(line, 400), false
		}
	}
	return fmt.Sprintf("%d bytes searched", len(text)), len(text) > 0
}

func control(ctx context.Context, w *world.World) (string, bool) {
	c := w.Control()
	defer c.Close()
	metrics, err := c.FetchMetrics(ctx)
	if err != nil {
		return err.Error(), false
	}
	catalog, err := c.FetchCatalog(ctx)
	if err != nil {
		return err.Error(), false
	}
	health, err := c.FetchHealth(ctx)
	if err != nil {
		return err.Error(), false
	}
	return searched(w, fmt.Sprintf("%s %+v %+v", metrics, catalog, health))
}

// files reads every file below the state directory, as the host's operator could.
func files(w *world.World) (string, bool) {
	n, leak := 0, ""
	_ = filepath.WalkDir(w.Process.State, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || leak != "" {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		n++
		if where := w.Leak(string(data)); where != "" {
			leak = path + ": " + where
		}
		return nil
	})
	return fmt.Sprintf("%d files searched %s", n, leak), leak == "" && n > 0
}

// environments reads what /proc shows of every process but this one.
func environments(w *world.World) (string, bool) {
	n := 0
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		if filepath.Base(d) == fmt.Sprint(os.Getpid()) {
			continue
		}
		for _, name := range []string{"environ", "cmdline"} {
			data, err := os.ReadFile(filepath.Join(d, name))
			if err != nil {
				continue
			}
			n++
			if where := w.Leak(string(bytes.ReplaceAll(data, []byte{0}, []byte{'\n'}))); where != "" {
				return d + "/" + name + ": " + where, false
			}
		}
	}
	return fmt.Sprintf("%d searched", n), n > 0
}

// inspected asks the engine what it tells about the containers.
func inspected(ctx context.Context, w *world.World) (string, bool) {
	out, err := w.Stack.Compose(ctx, "config")
	if err != nil {
		return err.Error(), false
	}
	more, err := w.Stack.Inspect(ctx)
	if err != nil {
		return err.Error(), false
	}
	return searched(w, out+more)
}

package attack

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// TestDoctor runs codeforge doctor --attack against a running CodeForge: all is held, and no server hears of it.
// Promise: checks-can-fail
func TestDoctor(t *testing.T) {
	if world.CurrentMode() != world.Embedded {
		t.Skip("embedded mode's; Docker's is e2e/docker.TestDoctor")
	}
	for _, yolo := range []string{"false", "true"} {
		t.Run("YOLO_MODE="+yolo, func(t *testing.T) { examine(t, yolo) })
	}
}

func examine(t *testing.T, yolo string) {
	w := world.Start(t, world.Config{Env: map[string]string{"YOLO_MODE": yolo}})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	out, code, err := world.Tool(ctx, world.Command{
		Dir: w.Dir, Args: []string{"doctor", "--attack", "--json", "--state", w.Process.State, "--apis", filepath.Join(w.Dir, "apis")},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		OK      bool
		Attacks []struct {
			Attack, Seen string
			Held         bool
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if code != 0 || !got.OK || len(got.Attacks) < 20 {
		t.Errorf("exit code %d, %d attacks", code, len(got.Attacks))
	}
	for _, a := range got.Attacks {
		t.Logf("%v %s: %s", a.Held, a.Attack, a.Seen)
		if !a.Held {
			t.Errorf("%s was not held: %s", a.Attack, a.Seen)
		}
	}
	if seen := w.Upstream.Seen(""); len(seen) > 0 {
		t.Errorf("%d requests arrived upstream", len(seen))
	}
	if asked := w.Upstream.Asked(); slices.ContainsFunc(asked, func(n string) bool { return strings.Contains(n, "data.codeforge") }) {
		t.Errorf("asked for outside: %q", asked)
	}
}

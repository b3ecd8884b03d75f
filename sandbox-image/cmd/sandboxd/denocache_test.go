package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestDenoCache: interpreters get the databases that an earlier one made. A write-ahead log begins with random
// numbers, which Deno keeps if it finds the log.
func TestDenoCache(t *testing.T) {
	for _, m := range []Mode{Root, Container} {
		t.Run(fmt.Sprint(m), func(t *testing.T) {
			w := StartWorld(t, Options{Mode: m, Slots: 1, Warm: 1})
			awaitWarm(t, w, 1)
			// sandboxd copies nothing while Deno is still making a database, so a later interpreter may be the first.
			before, now := "", logsOfDeno(t, w)
			for tries := 0; before != now && tries < 5; tries++ {
				if r := w.RunCode(t, "console.log(1);\n", testkit.Patience); r.Stdout != "1\n" {
					t.Fatalf("%+v", r)
				}
				awaitWarm(t, w, 1)
				before, now = now, logsOfDeno(t, w)
			}
			if before != now {
				t.Errorf("the logs begin with %x, then with %x", before, now)
			}
		})
	}
}

// logsOfDeno returns the start of both write-ahead logs of the waiting Deno.
func logsOfDeno(t *testing.T, w *World) (starts string) {
	t.Helper()
	const header = 32
	for pid, exe := range descendants(w.Pid()) {
		if !strings.HasPrefix(filepath.Base(exe), "deno") {
			continue
		}
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		_, dir, _ := strings.Cut(string(environ), "DENO_DIR=")
		dir, _, _ = strings.Cut(dir, "\x00")
		pattern := fmt.Sprintf("/proc/%d/root%s/*_analysis_cache_v*-wal", pid, dir)
		for deadline := time.Now().Add(testkit.Patience); len(starts) != 2*header; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("no logs of %s", pattern)
			}
			starts = ""
			logs, _ := filepath.Glob(pattern)
			for _, log := range logs {
				data, _ := os.ReadFile(log)
				starts += string(data[:min(header, len(data))])
			}
		}
	}
	if starts == "" {
		t.Fatal("no Deno waits")
	}
	return starts
}

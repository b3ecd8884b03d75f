package main

import (
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

func TestMain(m *testing.M) { RunTests(m) }

func TestHello(t *testing.T) {
	RunInModes(t, func(t *testing.T, m Mode) {
		w := StartWorld(t, Options{Mode: m, Slots: 2, Warm: 1})
		for range 3 {
			r := w.RunCode(t, "const x: number = 41;\nconsole.log(await Promise.resolve(x + 1), import.meta.main);\n", testkit.Patience)
			if r.Stdout != "42 true\n" || r.Stderr != "" || r.Exit.Code != 0 || r.Exit.Reason != sandboxapi.Exited {
				t.Errorf("%+v", r)
			}
			t.Logf("%+v", r)
		}
	})
}

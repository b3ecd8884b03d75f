package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/internal/sandboxtest"
)

// told is what the files of TestImportedFiles hold on any machine.
var told = regexp.MustCompile(`relatime|\brw,|\bro,|root:x?:0|Linux version|HOME=|PPid`)

// Deno needs no permission to import a file, so the file must not exist in the sandbox or the kernel must refuse it.
// Promise: least-privilege
func TestImportedFiles(t *testing.T) {
	sandboxtest.RunInModes(t, func(t *testing.T, m sandboxtest.Mode) {
		w := sandboxtest.StartWorld(t, sandboxtest.Options{Mode: m, Slots: 1, Warm: 1})
		for _, path := range []string{"/proc/1/mountinfo", "/proc/self/mountinfo", "/proc/self/status", "/proc/version", "/etc/passwd", "/dev/zero"} {
			for _, how := range []string{
				"import t from '" + path + "' with { type: 'text' };\nconsole.log(t);\n",
				"import '" + path + "';\n", "export * from '" + path + "';\n",
			} {
				r := w.RunCode(t, how, testkit.Patience)
				said := r.Stdout + r.Stderr
				if found := told.FindString(said); found != "" || r.Exit.Code == 0 {
					t.Errorf("%s: %q in %.300q", how, found, said)
				}
				if !strings.Contains(said, "not found") && !strings.Contains(said, "denied") && !strings.Contains(said, "read access") {
					t.Errorf("%s: %.300q", how, said)
				}
			}
		}
		// The files that code may read exist.
		r := w.RunCode(t, "import m from '/code/main.ts' with { type: 'text' };\nconsole.log(m.length > 10);\n", testkit.Patience)
		if m != sandboxtest.Container && r.Stdout != "true\n" {
			t.Errorf("its own code: %+v", r)
		}
	})
}

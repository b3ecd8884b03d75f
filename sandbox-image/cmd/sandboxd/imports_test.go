package main

import (
	"os/exec"
	"strings"
	"testing"
)

// allowed are the packages that sandboxd may import, with the reason. It runs as root next to hostile code, so it stays
// small.
var allowed = []string{
	"github.com/codeforge-mcp/codeforge/sandbox-image/",
	"github.com/codeforge-mcp/codeforge/internal/unixsocket", // the endpoint
	"github.com/codeforge-mcp/codeforge/internal/slot",       // slot arithmetic
	"github.com/codeforge-mcp/codeforge/internal/settings",   // the environment
	"github.com/codeforge-mcp/codeforge/internal/secret",     // of settings
	"github.com/codeforge-mcp/codeforge/internal/hostname",   // of settings
	"github.com/codeforge-mcp/codeforge/internal/typo",       // of settings
	"github.com/codeforge-mcp/codeforge/internal/health",     // of health
	"github.com/codeforge-mcp/codeforge/internal/stdiorelay", // of attach
	"github.com/codeforge-mcp/codeforge/internal/logline", "github.com/codeforge-mcp/codeforge/internal/safetext",
	"github.com/codeforge-mcp/codeforge/internal/proc", "github.com/codeforge-mcp/codeforge/internal/privilege",
	"github.com/codeforge-mcp/codeforge/internal/python",     // looks for it
	"github.com/codeforge-mcp/codeforge/internal/pypiname",   // of lock files
	"github.com/codeforge-mcp/codeforge/internal/atomicfile", // of generations
	"github.com/codeforge-mcp/codeforge/internal/rpc",        // the endpoint's answers
	"github.com/codeforge-mcp/codeforge/internal/countdown",  // of runs
	"github.com/codeforge-mcp/codeforge/internal/timing",     // pauses
	"github.com/codeforge-mcp/codeforge/internal/convert",    // of lists
	"github.com/codeforge-mcp/codeforge/internal/membudget",  // of checked files
	"github.com/codeforge-mcp/codeforge/internal/mtls",       // of pods
	"github.com/codeforge-mcp/codeforge/skills",              // texts, for pods
	"github.com/codeforge-mcp/codeforge/internal/version",
	"github.com/vishvananda/", "github.com/coreos/go-iptables/", // hold
	"golang.org/x/sys/", "golang.org/x/net/", "golang.org/x/text/",
}

func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
next:
	for path := range strings.FieldsSeq(string(out)) {
		for _, a := range allowed {
			if strings.HasPrefix(path+"/", a) || strings.HasPrefix(path, a) {
				continue next
			}
		}
		t.Errorf("sandboxd imports %s", path)
	}
}

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
)

// TestConformance runs the suite against the program itself. What the list of expected failures names asks for
// fixtures.
func TestConformance(t *testing.T) {
	modules := testkit.InstallClients(t)
	p := start(t, 2, nil)
	expected, err := filepath.Abs("testdata/expected-failures.yml")
	if err != nil {
		t.Fatal(err)
	}
	out, err := fakepeers.RunNode(t, t.TempDir(), filepath.Join(modules, "@modelcontextprotocol/conformance/dist/index.js"),
		"server", "--url", p.url(), "--suite", "active", "--expected-failures", expected)
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestSkillsConformance runs what the next suite has on the skills extension, on skills that are really there.
func TestSkillsConformance(t *testing.T) {
	modules := testkit.InstallClients(t)
	p := start(t, 2, nil)
	for _, scenario := range []string{"sep-2640-skills-enumeration", "sep-2640-skills-manifest", "server-session-lifecycle", "sep-2164-resource-not-found", "caching"} {
		out, err := fakepeers.RunNode(t, t.TempDir(), filepath.Join(modules, "conformance-next/dist/index.js"),
			"server", "--url", p.url(), "--scenario", scenario)
		if err != nil || strings.Contains(out, "FAILURE") {
			t.Errorf("%s: %v\n%s", scenario, err, out)
		}
	}
}

package conformance

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/fakepeers"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/guard"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/transport"
)

// fixture serves the fixtures on our own transport and gives its URL.
func fixture(t *testing.T) string {
	t.Helper()
	log := logline.New(t.Output(), "text", nil)
	mcp := transport.New(transport.Config{Server: newFixtures(t.Context(), log), Log: log})
	g := guard.New(guard.Config{})
	server := httptest.NewServer(g.SplitRequests(mcp, nil))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		mcp.Close(ctx)
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// knownFailure matches the scenarios of tools that ask during a task, that refuse clients without tasks, or that end with
// an error of the protocol: see TestTaskScenarios.
var knownFailure = regexp.MustCompile(`^✗ tasks-(?:mrtr-|required-task-error|(?:lifecycle|dispatch-and-envelope): 8 passed, 1 failed$)`)

func TestSuite(t *testing.T) {
	modules := testkit.InstallClients(t)
	out, err := fakepeers.RunNode(t, t.TempDir(), filepath.Join(modules, "@modelcontextprotocol/conformance/dist/index.js"),
		"server", "--url", fixture(t), "--suite", "all")
	if err != nil || !strings.Contains(out, "Total: 44 passed, 0 failed") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestSuiteNext runs the alpha of the next suite, which knows the newest protocol. All of it passes but
// knownFailure.
func TestSuiteNext(t *testing.T) {
	modules := testkit.InstallClients(t)
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			out, err := fakepeers.RunNode(t, t.TempDir(), filepath.Join(modules, "conformance-next/dist/index.js"),
				"server", "--url", fixture(t), "--requirements", version)
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			for line := range strings.Lines(out) {
				if strings.HasPrefix(line, "✗") && !knownFailure.MatchString(strings.TrimSpace(line)) {
					t.Error(strings.TrimSpace(line))
				}
			}
			if dir := os.Getenv("CODEFORGE_REPORTS"); dir != "" {
				if err := os.WriteFile(filepath.Join(dir, "conformance-"+version+".txt"), []byte(out), 0o600); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestConsoleCommands: each command line that the console shows, or copies for a person, has a command, a verb and flags
// that exist.
func TestConsoleCommands(t *testing.T) {
	root, err := testkit.FindRoot()
	testkit.Must(t, err)
	files, err := filepath.Glob(filepath.Join(root, "mcp-server/internal/console/web/*.js"))
	testkit.Must(t, err)
	line, flags := regexp.MustCompile(`\bcodeforge ([a-z]+)((?: [a-zA-Z0-9-]+)*)`), regexp.MustCompile(`--([a-z-]+)`)
	found := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		testkit.Must(t, err)
		for _, m := range line.FindAllStringSubmatch(string(text), -1) {
			c, rest, err := newRoot(&Env{}).Find(append([]string{m[1]}, strings.Fields(m[2])...))
			if err != nil || !c.HasParent() || c.HasSubCommands() && len(rest) > 0 && rest[0][0] != '-' {
				t.Errorf("%s: %s: there is no such command", filepath.Base(name), m[0])
				continue
			}
			found++
			for _, f := range flags.FindAllStringSubmatch(m[2], -1) {
				if c.Flag(f[1]) == nil {
					t.Errorf("%s: %s: there is no flag --%s", filepath.Base(name), m[0], f[1])
				}
			}
		}
	}
	if found < 5 {
		t.Errorf("%d commands: the search no longer finds them", found)
	}
}

package cli

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
			all := commands()
			i := slices.IndexFunc(all, func(c command) bool { return c.name == m[1] })
			if i < 0 {
				t.Errorf("%s: %s: there is no such command", filepath.Base(name), m[0])
				continue
			}
			found++
			fs := flag.NewFlagSet("", flag.ContinueOnError)
			all[i].setup(fs)
			if verb, _, _ := strings.Cut(strings.TrimSpace(m[2]), " "); len(all[i].verbNames()) > 0 && verb != "" && all[i].verb(verb) == nil {
				t.Errorf("%s: %s: there is no verb %s", filepath.Base(name), m[0], verb)
			}
			for _, f := range flags.FindAllStringSubmatch(m[2], -1) {
				if fs.Lookup(f[1]) == nil {
					t.Errorf("%s: %s: there is no flag --%s", filepath.Base(name), m[0], f[1])
				}
			}
		}
	}
	if found < 5 {
		t.Errorf("%d commands: the search no longer finds them", found)
	}
}

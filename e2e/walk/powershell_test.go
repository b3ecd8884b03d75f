package walk

import (
	"regexp"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// shellOnly matches what sh understands and PowerShell does not: input from a file, a line that a backslash continues,
// an assignment before a command, a default in braces, and a here-document.
var shellOnly = regexp.MustCompile(`(?m)<|\\$|^\s*[A-Za-z_]+=|\$\{\w+:-|\bexport\s`)

// TestPowerShell checks the lines of docs/start/windows.md for PowerShell, where no PowerShell is: they run the script that the lines for
// sh run, here-strings begin and end where PowerShell wants them, quotes and brackets are closed, and nothing is sh alone.
func TestPowerShell(t *testing.T) {
	world.RunInOneMode(t, "it reads documents")
	found := 0
	for _, b := range blocks(document(t, "docs/start/windows.md")) {
		if b.Lang != "powershell" {
			continue
		}
		found++
		var code strings.Builder
		var here *strings.Builder
		for _, line := range strings.Split(strings.TrimSuffix(b.Text, "\n"), "\n") {
			switch {
			case here == nil && strings.HasSuffix(line, "@'"):
				here = &strings.Builder{}
			case here != nil && strings.HasPrefix(line, "'@"): // only at the beginning of a line
				if text := here.String(); text != reposScript(t) {
					t.Errorf("another script than the shell's:\n%s", text)
				}
				here = nil
				code.WriteString("''" + line[2:] + "\n")
			case here != nil:
				here.WriteString(line + "\n")
			default:
				code.WriteString(line + "\n")
			}
		}
		if here != nil {
			t.Error("a here-string does not end")
		}
		if sh := shellOnly.FindString(code.String()); sh != "" {
			t.Errorf("PowerShell does not know %q:\n%s", sh, code.String())
		}
		for _, pair := range []string{"()", "{}", "[]", "''", `""`} {
			open, closed := strings.Count(code.String(), pair[:1]), strings.Count(code.String(), pair[1:])
			if open != closed || pair[0] == pair[1] && open%2 != 0 {
				t.Errorf("%s is not closed:\n%s", pair, code.String())
			}
		}
	}
	if found == 0 {
		t.Error("docs/start/windows.md has no lines for PowerShell")
	}
}

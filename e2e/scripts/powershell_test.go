package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// powershell finds the PowerShell blocks of a document.
var powershell = regexp.MustCompile("(?ms)^```powershell\n(.*?)^```$")

// TestPowerShell: the lines for PowerShell have its syntax. PowerShell's own parser judges where it is installed. Elsewhere
// a list does: what reads like a shell's line and is another thing in PowerShell, or none.
func TestPowerShell(t *testing.T) {
	root, err := testkit.FindRoot()
	testkit.Must(t, err)
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*", "*.md"))
	testkit.Must(t, err)
	found := 0
	for _, path := range append(docs, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(path)
		testkit.Must(t, err)
		for _, m := range powershell.FindAllStringSubmatch(string(text), -1) {
			found++
			for _, mistake := range mistakes(m[1]) {
				t.Errorf("%s: %s", filepath.Base(path), mistake)
			}
			parse(t, m[1])
		}
	}
	if found == 0 {
		t.Error("no document has a block for PowerShell")
	}
	for line, want := range map[string]string{
		"codeforge run - <x.ts": "<", "make build && make up": "&&", "a || b": "||", "docker run \\\n  x": "\\", "export A=1": "export",
		"A=1 codeforge up": "A=1", "cat x.ts": "cat", "echo \"a": "\"", "echo (a": "(", "@'\nx\n": "@'", "chmod 600 x": "chmod",
	} {
		if len(mistakes(line)) == 0 {
			t.Errorf("%q is taken for PowerShell; want %s to be found", line, want)
		}
	}
	if wrong := mistakes("@'\na && b <c \"\n'@ | Set-Content x\nGet-Content -Raw x | docker compose exec -T y z - # < it's\n"); len(wrong) > 0 {
		t.Errorf("PowerShell is not taken for it: %q", wrong)
	}
}

// notPowerShell are a shell's ways that PowerShell does not have. Windows PowerShell 5 has no && and ||.
var notPowerShell = regexp.MustCompile(`<|&&|\|\||\\$|^\s*(?:export|cat|chmod|grep|sed|test|\[|if \[)\b|^\s*[A-Z_]+=|\$\(.*` + "`" + `|2>&1 >`)

// literal are the literal here-strings: everything in them is text.
var literal = regexp.MustCompile(`(?ms)@'\n.*?^'@`)

// mistakes are what is no PowerShell in a block.
func mistakes(block string) []string {
	var wrong []string
	block = literal.ReplaceAllString(block, "''")
	for line := range strings.Lines(block) {
		line, _, _ = strings.Cut(strings.TrimRight(line, "\n"), " #")
		if what := notPowerShell.FindString(line); what != "" {
			wrong = append(wrong, what+" in: "+line)
		}
		for _, quote := range []string{`"`, "'"} {
			if strings.Count(line, quote)%2 != 0 {
				wrong = append(wrong, "a "+quote+" too many in: "+line)
			}
		}
		for _, pair := range []string{"()", "{}", "[]"} {
			if strings.Count(line, pair[:1]) != strings.Count(line, pair[1:]) {
				wrong = append(wrong, pair+" do not match in: "+line)
			}
		}
	}
	return wrong
}

// parse asks PowerShell, if it is there.
func parse(t *testing.T, block string) {
	t.Helper()
	pwsh, err := exec.LookPath("pwsh")
	if err != nil {
		return
	}
	const script = `$e = $null; [void][System.Management.Automation.Language.Parser]::ParseInput([Console]::In.ReadToEnd(), [ref]$null, [ref]$e); $e | ForEach-Object Message; exit $e.Count`
	cmd := exec.CommandContext(t.Context(), pwsh, "-NoProfile", "-Command", script)
	cmd.Stdin = strings.NewReader(block)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("PowerShell refuses\n%s%s", block, out)
	}
}

package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestFailures: make/test.sh fails when a package fails, whichever of its parts tests it. Only one that passes when it
// runs again alone is called unstable, and what says more than a failure has no second run.
func TestFailures(t *testing.T) {
	root, err := testkit.FindRoot()
	testkit.Must(t, err)
	const plain, race, end = "./skills", "-race", "-timeout 30m"
	for _, row := range []struct {
		name, part, fails, says string // says is what go test prints where it fails
		again, ok               bool   // whether it passes when it runs again
		runs                    string // the tests of the second run, empty for all
		rows                    string // the attacks of the second run, empty for all
	}{
		{name: "everything passes", part: "unit", ok: true},
		{name: "a package fails twice", part: "unit", fails: plain, says: "FAIL\tm/skills\t0.1s"},
		{name: "a package fails once", part: "unit", fails: plain, says: "FAIL\tm/skills\t0.1s", again: true, ok: true},
		{name: "tests fail once", part: "unit", fails: plain, again: true, ok: true,
			says: "--- FAIL: TestA (1.00s)\n    --- FAIL: TestA/part (1.00s)\n--- FAIL: TestB (0.00s)\nFAIL\nFAIL\tm/skills\t0.1s", runs: "^(TestA|TestB)$"},
		{name: "a data race", part: "unit", fails: race + " -skip", says: "WARNING: DATA RACE\nFAIL\tm/egress\t0.1s", again: true},
		{name: "a panic", part: "unit", fails: plain, says: "panic: x\nFAIL\tm/skills\t0.1s", again: true},
		{name: "no package is named", part: "unit", fails: plain, says: "killed", again: true},
		{name: "end to end", part: "embedded", fails: end, says: "FAIL\tm/e2e/attack\t0.1s"},
		{name: "attacks are not held once", part: "embedded", fails: end, again: true, ok: true, runs: "^(TestSuite)$", rows: `^(F/a \(b\)|P/it's "c")$`,
			says: "--- FAIL: TestSuite (9.00s)\n    attack_test.go:117: once more: ^(F/a \\(b\\)|P/it's \"c\")$\nFAIL\nFAIL\tm/e2e/attack\t0.1s"},
		{name: "a leak", part: "embedded", fails: end, says: "LEAK\nFAIL\tm/e2e/attack\t0.1s", again: true},
	} {
		dir := t.TempDir()
		again := "exit 1"
		if row.again {
			again = "exit 0"
		}
		stub := `#!/bin/sh
case "$1 $*" in
env*CC) echo cat ;;
list*) echo "$PWD/skills" ;;
test*-count=1\ *m/*) echo "again: $* attacks: $CODEFORGE_ATTACK"; ` + again + ` ;;
test*"$FAILS"*) [ -z "$FAILS" ] || { printf '%s\n' "$SAYS"; exit 1; } ;;
esac
`
		file := filepath.Join(dir, "go")
		testkit.Must(t, os.WriteFile(file, []byte(stub), 0o700))                                  //nolint:gosec // it is run
		cmd := exec.CommandContext(t.Context(), filepath.Join(root, "make", "test.sh"), row.part) //nolint:gosec // ours
		cmd.Env = append(os.Environ(), "GO="+file, "CODEFORGE_NO_SKIP=", "FAILS="+row.fails, "SAYS="+row.says)
		out, err := cmd.CombinedOutput()
		if (err == nil) != row.ok || strings.Contains(string(out), "unstable, which") != (row.again && row.ok) {
			t.Errorf("%s: %v\n%s", row.name, err, out)
		}
		const said = "attack_test.go:117: once more"
		if _, end, _ := strings.Cut(string(out), "unstable, which"); strings.Contains(row.says, said) && !strings.Contains(end, said) {
			t.Errorf("%s: the end does not say how it failed\n%s", row.name, out)
		}
		second := row.ok && row.again
		if _, line, _ := strings.Cut(string(out), "again: "); second && strings.Contains(line, "-run ") != (row.runs != "") ||
			!strings.Contains(line, row.runs) {
			t.Errorf("%s: the second run is %q", row.name, line)
		} else if _, rows, _ := strings.Cut(line, " attacks: "); second && strings.TrimSpace(strings.SplitN(rows, "\n", 2)[0]) != row.rows {
			t.Errorf("%s: the second run is of the attacks %q", row.name, rows)
		}
	}
}

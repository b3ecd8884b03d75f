package attack

import (
	"slices"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
)

// TestShared verifies that many attacks share an interpreter, and that each of them only reaches the proxy.
func TestShared(t *testing.T) {
	suite := Suite()
	groups := groupSharers(suite)
	n := 0
	for _, group := range groups {
		n += len(group)
		for _, i := range group {
			a := suite[i]
			if !strings.Contains("ABM", a.Section) || a.WhyModesDiffer() != "" || !slices.Equal(a.APIs, suite[group[0]].APIs) {
				t.Errorf("%s/%s shares an interpreter", a.Section, a.Name)
			}
		}
	}
	t.Logf("%d of %d attacks in %d groups", n, len(suite), len(groups))
	if n < 300 {
		t.Error("few attacks share an interpreter")
	}
}

// TestOutputOf verifies that each attack gets only its output, or "" if it did not reach its end.
func TestOutputOf(t *testing.T) {
	group := []Attack{{Code: `out("TRIAL one");`}, {Code: `out("TRIAL two");`}}
	code := joinCode(group, []string{"triala", "trialb"})
	for _, want := range []string{"begin triala", `out("triala one");`, `out("trialb two");`, "end trialb"} {
		if strings.Count(code, want) != 1 {
			t.Errorf("%q is not once in\n%s", want, code)
		}
	}
	const out = "begin triala\n{\"status\":403}\nend triala\nbegin trialb\n{\"status\":200}\n"
	if got := outputOf(out, "triala"); got != "{\"status\":403}\n" {
		t.Errorf("%q", got)
	}
	if got := outputOf(out, "trialb"); got != "" {
		t.Errorf("it has no end, and printed %q", got)
	}
	for text, want := range map[string]bool{
		"{\"status\":403}\n": true, "": false, "{\"status\":403}\n{\"error\":\"connection closed\"}\n": false, "prose\n": false,
	} {
		e := &Evidence{Result: world.Result{Out: text}}
		if e.isAnswered() != want {
			t.Errorf("%q is an answer: %t", text, !want)
		}
	}
}

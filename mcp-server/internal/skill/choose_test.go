package skill

import (
	"slices"
	"testing"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/bucket"
)

// TestChoose: whatever a server lists, only plain names become file names.
// Promise: shared-skills
func TestChoose(t *testing.T) {
	for name, want := range map[string]string{
		"a.ts": "", "a.py": "", "a-b_1.ts": "",
		"../evil.ts": "not a regular file", "../": "not a regular file", "/etc/x.ts": "not a regular file", "x/": "not a regular file", "a/b.ts": "not a regular file",
		"..ts": "-", ".ts": "-", ".py": "-", "": "-", "tenants/": "-", "pins/": "-", "history/": "-", ".codeforge-x.ts": "-",
		"a.py.ts": "not a skill name", "a.ts.py": "not a skill name", "a\x00.ts": "not a skill name", "a\\b.ts": "not a skill name", "a..ts": "not a skill name", "%2e%2e.ts": "not a skill name",
		"a.js": "its name ends neither in .ts nor in .py",
	} {
		var r outcome
		wanted := r.choose([]bucket.Object{{Name: name, Version: "1", Size: 1}})
		if _, is := wanted[name]; is != (want == "") || len(wanted) > 1 {
			t.Errorf("%q: %v", name, wanted)
		}
		if got := r.strays[name]; want != "-" && got != want || want == "-" && got != "" {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	for _, c := range []struct {
		what string
		o    bucket.Object
	}{
		{"too large", bucket.Object{Name: "a.ts", Version: "1", Size: MaxSize + 1}},
		{"no ETag", bucket.Object{Name: "a.ts", Size: 1}},
	} {
		var r outcome
		if wanted := r.choose(slices.Repeat([]bucket.Object{c.o}, 3)); len(wanted) > 0 || r.skipped[c.what] != 3 {
			t.Errorf("%s: %v %v", c.what, wanted, r.skipped)
		}
	}
}

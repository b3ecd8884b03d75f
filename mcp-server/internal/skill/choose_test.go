package skill

import (
	"testing"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/database"
)

// TestChoose: of documents, only those with the name and the size of a skill are copied to files.
// Promise: shared-skills
func TestChoose(t *testing.T) {
	for name, want := range map[string]string{
		"a.ts": "", "a.py": "", "a-b_1.ts": "",
		"..ts": "-", ".ts": "-", ".py": "-", ".codeforge-x.ts": "-", "../evil.ts": "-",
		"/etc/x.ts": "not a skill name", "x/": "not a skill name", "a/b.ts": "not a skill name", "": "not a skill name",
		"a.py.ts": "not a skill name", "a.ts.py": "not a skill name", "a\x00.ts": "not a skill name", "a\\b.ts": "not a skill name",
		"a..ts": "not a skill name", "%2e%2e.ts": "not a skill name", "a.js": "not a skill name",
	} {
		var r pullResult
		wanted := r.chooseSkills([]database.SharedDocument{{Name: name, Version: 1, Size: 1}})
		if _, is := wanted[name]; is != (want == "") || len(wanted) > 1 {
			t.Errorf("%q: %v", name, wanted)
		}
		if got := r.strays[name]; want != "-" && got != want || want == "-" && got != "" {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	var r pullResult
	if wanted := r.chooseSkills([]database.SharedDocument{{Name: "a.ts", Version: 1, Size: MaxSize + 1}}); len(wanted) > 0 || r.skipped["too large"] != 1 {
		t.Errorf("%v %v", wanted, r.skipped)
	}
}

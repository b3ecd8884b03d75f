package tools

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
)

// writers counts the calls that may change skills, because the folder does not tell which call changed a file. The zero
// value is ready.
type writers struct {
	mu     sync.Mutex
	active int
	begun  int
}

// begin counts a call. The caller calls end once, after the last look at the folder. alone means that no other call
// could change a skill meanwhile, last that no other call is still under way.
func (w *writers) begin() (end func() (alone, last bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.active++
	w.begun++
	first, begun := w.active == 1, w.begun
	return func() (alone, last bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.active--
		return first && w.begun == begun, w.active == 0
	}
}

// importedSkill is an import of a skill, in both languages.
var importedSkill = regexp.MustCompile(`\b(?:from|import)\s*\(?\s*["'](?:/skills/|\./)[\w-]+\.ts["']|` +
	`\b(?:from|import)\s+skills\b[^\n]*`)

// ownChanges returns the changes that code has made in /skills. If the code ran alone, these are all changes, provided
// that it mentions skills. Otherwise they are the changes of files that it names other than in an import.
func ownChanges(code string, alone bool, changes []skill.Change) []skill.Change {
	if !strings.Contains(code, "skills") {
		return nil
	}
	rest := importedSkill.ReplaceAllString(code, "")
	return slices.DeleteFunc(slices.Clone(changes), func(c skill.Change) bool {
		name := regexp.QuoteMeta(strings.TrimSuffix(c.Name, ".py"))
		return !alone && !regexp.MustCompile("[\"'`/]"+name+"(?:\\.ts|\\.py)?[\"'`]").MatchString(rest)
	})
}

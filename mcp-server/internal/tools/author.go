package tools

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
)

// writerCount counts the calls that may change skills, because a folder does not record which call changed a file. The
// zero value is ready to use.
type writerCount struct {
	mu     sync.Mutex
	active int
	begun  int
}

// beginCall counts a call. The caller calls end once, after it has read the folder for the last time. alone means that
// no other call could change a skill meanwhile. last means that no other call is running.
func (w *writerCount) beginCall() (end func() (alone, last bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.active++
	w.begun++
	first, begun := w.active == 1, w.begun
	return func() (alone, last bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.active--
		// Another call may have begun and ended meanwhile, so the number of calls that run now is not enough.
		return first && w.begun == begun, w.active == 0
	}
}

// importedSkill matches an import of a skill in TypeScript or Python.
var importedSkill = regexp.MustCompile(`\b(?:from|import)\s*\(?\s*["'](?:/skills/|\./)[\w-]+\.ts["']|` +
	`\b(?:from|import)\s+skills\b[^\n]*`)

// selectOwnChanges returns the changes in /skills that code has made. Code that ran alone made all changes, and code
// that does not mention skills made none. Other code made the changes of files that it names outside of imports.
func selectOwnChanges(code string, alone bool, changes []skill.SkillChange) []skill.SkillChange {
	if !strings.Contains(code, "skills") {
		return nil
	}
	// Code that only imports a skill has not written it.
	rest := importedSkill.ReplaceAllString(code, "")
	return slices.DeleteFunc(slices.Clone(changes), func(c skill.SkillChange) bool {
		name := regexp.QuoteMeta(strings.TrimSuffix(c.Name, ".py"))
		return !alone && !regexp.MustCompile("[\"'`/]"+name+"(?:\\.ts|\\.py)?[\"'`]").MatchString(rest)
	})
}

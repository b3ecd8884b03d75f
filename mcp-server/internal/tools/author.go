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

// begin counts a call. The caller calls end once, after it has read the folder for the last time. alone means that no
// other call could change a skill meanwhile. last means that no other call is under way.
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

// importedSkill matches an import of a skill, in both languages.
var importedSkill = regexp.MustCompile(`\b(?:from|import)\s*\(?\s*["'](?:/skills/|\./)[\w-]+\.ts["']|` +
	`\b(?:from|import)\s+skills\b[^\n]*`)

// ownChanges returns the changes that code has made in /skills. Code that does not mention skills made no changes, and
// code that ran alone made all. Other code made the changes of files that it names outside of imports.
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

package tools

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
)

// writers counts the calls that may be changing skills, because the folder does not tell which of them did. Its zero value
// is ready.
type writers struct {
	mu     sync.Mutex
	active int
	begun  int
}

// begin counts a call in. Call end once, when what the call changed has been looked at: alone means that no other call
// could change a skill meanwhile, last that no other one still can.
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

// wrote returns the changes that code has made in /skills: those of files that it names other than to import them, and
// if it ran alone all, unless it does not speak of skills. What somebody else changes meanwhile is not the code's.
func wrote(code string, alone bool, changes []skill.Change) []skill.Change {
	if !strings.Contains(code, "skills") {
		return nil
	}
	rest := importedSkill.ReplaceAllString(code, "")
	return slices.DeleteFunc(slices.Clone(changes), func(c skill.Change) bool {
		name := regexp.QuoteMeta(strings.TrimSuffix(c.Name, ".py"))
		return !alone && !regexp.MustCompile("[\"'`/]"+name+"(?:\\.ts|\\.py)?[\"'`]").MatchString(rest)
	})
}

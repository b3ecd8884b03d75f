package tools

import (
	"context"
	_ "embed" // checkskills.js, checkskills.py
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/safetext"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

const (
	// maxRemarks bounds the skills, and the stray files, that are remarked on.
	maxRemarks = 5
	// checkTime bounds the run that tests whether skills load.
	checkTime = 20 * time.Second
	// checkOutput bounds the output of that run, in characters.
	checkOutput = 16 << 10
	// maxReason bounds the reason why a skill does not load, in characters.
	maxReason = 160
)

// checker loads skills without running them. It imports each skill after a module that throws. Deno reads and links all
// modules of a graph before it runs the first one.
//
//go:embed checkskills.js
var checker string

// pythonChecker compiles skills in Python.
//
//go:embed checkskills.py
var pythonChecker string

// loadFailure is one line of a checker's output.
type loadFailure struct{ Name, Reason string }

// place matches the position in a skill that Deno reports as wrong.
var place = regexp.MustCompile(`at file://[/\w-]*?(/skills/[\w-]{1,64}\.ts:\d+:\d+)`)

// reportBroken reports problems of skills that were just written. A separate run loads the skills in the sandbox
// without executing them. If that run fails, the remarks lack its results.
func (s *Surface) reportBroken(ctx context.Context, r execution.RunRequest, changes []skill.SkillChange) []string {
	var typescript, python []string
	for _, c := range changes {
		switch {
		// Bounded, because each skill takes time in the check's run.
		case c.What == skill.Deleted || len(typescript)+len(python) == maxRemarks:
		case !skill.IsPython(c.Name):
			typescript = append(typescript, c.Name)
		case s.pythonReport().Version != "" && !s.hasPrivateRuns(): // a private run's code cannot read a skill's file
			python = append(python, c.Name)
		}
	}
	r.Language = sandboxapi.LanguageTypeScript
	out := s.checkSkills(ctx, r, checker, typescript)
	r.Language = sandboxapi.LanguagePython
	return append(out, s.checkSkills(ctx, r, pythonChecker, python)...)
}

// importLines names skills in the form of imports, so that the run gets their typed clients.
func importLines(names []string) string {
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "\n// %q", "/skills/"+skill.FileName(name))
	}
	return b.String()
}

// checkSkills returns the remarks on skills in the language of r.
func (s *Surface) checkSkills(ctx context.Context, r execution.RunRequest, checker string,
	names []string) (out []string) {
	if len(names) == 0 || s.cfg.Executor == nil {
		return nil
	}
	list, err := json.Marshal(names)
	if err != nil {
		return nil
	}
	stdout := newExcerpt(checkOutput)
	before := s.skillSnapshot()
	code := fmt.Sprintf("names = %s\n", list) + checker
	if !r.Language.IsPython() {
		code = "const " + code + importLines(names)
	}
	check := execution.RunRequest{
		Session: r.Session, APIs: r.APIs, Tenant: s.cfg.Tenant, Language: r.Language, Code: code,
		Timeout: min(checkTime, s.cfg.TimeoutMax),
	}
	if _, err := s.cfg.Executor.Run(ctx, check, func(e sandboxapi.Event) { stdout.WriteString(e.Stdout) }); err != nil {
		return nil
	}
	// A skill that changed during the check may load now.
	meanwhile := s.skillSnapshot().ChangesSince(before)
	names = slices.DeleteFunc(names, func(name string) bool { // another run's, or removed
		return slices.ContainsFunc(meanwhile, func(c skill.SkillChange) bool { return c.Name == name })
	})
	printed, _ := stdout.Text(checkOutput)
	failed := map[string]bool{}
	for line := range strings.Lines(printed) {
		var f loadFailure
		// Loading runs no skill, but output is still only trusted for the names that were asked for.
		if json.Unmarshal([]byte(line), &f) != nil || !slices.Contains(names, f.Name) || failed[f.Name] {
			continue
		}
		failed[f.Name] = true
		out = append(out, fmt.Sprintf("The skill %s does not load: %s. Correct it.", f.Name, loadFailureOf(f.Reason)))
	}
	for _, name := range names {
		if k, _, err := s.cfg.Skills.ReadSkill(name); err == nil && k.Description == "" && !failed[name] {
			what := "@description in its first comment"
			if r.Language.IsPython() {
				what = "docstring"
			}
			out = append(out, fmt.Sprintf("The skill %s has no %s, so later runs cannot find it.", name, what))
		}
	}
	return out
}

// loadFailureOf returns why a module does not load, in one line, with the position.
func loadFailureOf(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	first = strings.TrimRight(first, ". ")
	if m := place.FindStringSubmatch(text); m != nil && !strings.Contains(first, m[1]) {
		first += " at " + m[1]
	}
	if runes := []rune(first); len(runes) > maxReason {
		first = string(runes[:maxReason-1]) + "…"
	}
	return safetext.OneLine(first)
}

// reportStrays reports new files in /skills that are not skills, with the reason.
func reportStrays(list []skill.SkillChange) []string {
	var out []string
	for i, c := range list {
		if i == maxRemarks {
			out = append(out, fmt.Sprintf("%d more files in /skills are not skills.", len(list)-i))
			break
		}
		out = append(out, fmt.Sprintf("%.80q in /skills is not a skill: %s.", c.Name, c.What))
	}
	return out
}

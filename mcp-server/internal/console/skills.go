package console

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

type listedSkill struct {
	Name        string    `json:"name"`
	Description string    `json:"description"`
	Size        int64     `json:"size"`
	Modified    time.Time `json:"modified"`
	Pinned      bool      `json:"pinned,omitempty"`
	Deleted     bool      `json:"deleted,omitempty"`
	// Last is the latest recorded change.
	Last *operatorapi.SkillVersion `json:"last,omitempty"`
	// Use counts the runs that imported the skill. It is nil if the count is unknown.
	Use *operatorapi.SkillUse `json:"use,omitempty"`
}

// lastChange returns the time of the skill's latest recorded change, or zero.
func (l listedSkill) lastChange() time.Time {
	if l.Last == nil {
		return time.Time{}
	}
	return l.Last.At
}

// listSkills lists the skills with their uses, last changed first.
func (c *Console) listSkills(r *http.Request) (any, error) {
	l, err := c.cfg.Skills.ListSkills()
	if err != nil {
		return nil, err
	}
	uses := map[string]*operatorapi.SkillUse{}
	known, err := c.cfg.History.SkillUses(r.Context())
	for i := range known {
		uses[known[i].Skill] = &known[i]
	}
	versions, noStore := c.cfg.History.SkillVersions(r.Context(), "")
	// Reading the skills must work without a history.
	if noStore != nil {
		versions = nil // without a store, no versions are known
	}
	last := map[string]*operatorapi.SkillVersion{}
	for i, v := range versions { // the latest first
		if last[v.Skill] == nil {
			last[v.Skill] = &versions[i]
		}
	}
	out := []listedSkill{}
	for _, k := range l.Skills {
		one := listedSkill{
			Name: k.Name, Description: k.Description, Size: k.Size, Modified: k.Modified, Use: uses[k.Name],
			Last: last[k.Name], Pinned: c.cfg.Skills.IsPinned(k.Name),
		}
		// Known uses without an entry mean that no run imported the skill.
		if err == nil && one.Use == nil {
			one.Use = &operatorapi.SkillUse{Skill: k.Name}
		}
		out = append(out, one)
		delete(last, k.Name)
	}
	for _, v := range last {
		if v.Deleted {
			out = append(out, listedSkill{Name: v.Skill, Modified: v.At, Deleted: true, Last: v})
		}
	}
	slices.SortStableFunc(out, func(a, b listedSkill) int {
		return cmp.Or(b.lastChange().Compare(a.lastChange()), strings.Compare(a.Name, b.Name))
	})
	return map[string]any{
		"skills": out, "count": len(l.Skills), "most": skill.MaxCount, "read_only": c.cfg.Skills.IsReadOnly(),
	}, nil
}

// readSkill returns one skill with its source and its versions.
func (c *Console) readSkill(r *http.Request) (any, error) {
	name := r.PathValue("name")
	k, source, err := c.cfg.Skills.ReadSkill(name)
	// A deleted skill is still shown if the history has its versions.
	gone := errors.Is(err, skill.ErrNotFound)
	if err != nil && !gone {
		return nil, err
	}
	versions, err := c.cfg.History.SkillVersions(r.Context(), name)
	if err != nil {
		versions = nil // without a store, no versions are known
	}
	if gone && len(versions) == 0 {
		return nil, errNotFound
	}
	return map[string]any{
		"name": name, "description": k.Description, "size": k.Size, "modified": k.Modified, "source": source,
		"sum":     skill.SourceSum(source),
		"deleted": gone, "versions": versions, "pinned": c.cfg.Skills.IsPinned(name), "read_only": c.cfg.Skills.IsReadOnly(),
	}, nil
}

func (c *Console) skillVersion(r *http.Request) (any, error) {
	n, err := strconv.Atoi(r.PathValue("version"))
	if err != nil {
		return nil, errNotFound
	}
	source, err := c.cfg.History.SkillSource(r.Context(), r.PathValue("name"), n)
	return map[string]string{"source": source}, err
}

func (c *Console) restoreSkill(r *http.Request) (any, error) {
	name := r.PathValue("name")
	n, err := strconv.Atoi(r.PathValue("version"))
	if err != nil {
		return nil, errNotFound
	}
	source, err := c.cfg.History.SkillSource(r.Context(), name, n)
	if err != nil {
		return nil, err
	}
	versions, err := c.cfg.History.SkillVersions(r.Context(), name)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(versions, func(v operatorapi.SkillVersion) bool { return v.Version == n })
	// A source with removed REDACTING_STRINGS or credentials is not the module that once worked.
	if i < 0 || versions[i].SHA != skill.SourceSum(source) {
		return nil, &pageError{http.StatusConflict, "This version is redacted: it contained REDACTING_STRINGS."}
	}
	if _, err = c.cfg.Skills.WriteSkill(name, source); err == nil {
		c.skillDone(r, "restored", operatorapi.SkillVersion{Skill: name}, source)
	}
	return struct{}{}, err
}

// pinSkill pins a skill to the source that the page shows, or unpins it.
func (c *Console) pinSkill(pin bool) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		name, done := r.PathValue("name"), "unpinned"
		var seen struct{ Sum string }
		var err error
		if !pin {
			err = c.cfg.Skills.Unpin(name)
		} else if err = readBody(r, &seen); err == nil {
			// The sum ensures that the user pins the source that the page showed, not a later one.
			done, err = "pinned", c.cfg.Skills.PinSource(name, seen.Sum)
		}
		if err == nil {
			c.reportChange(r, done, name)
		}
		return struct{}{}, err
	}
}

// deleteSkill deletes a skill. Its versions stay.
func (c *Console) deleteSkill(r *http.Request) (any, error) {
	name := r.PathValue("name")
	err := c.cfg.Skills.DeleteSkill(name)
	if err == nil {
		c.skillDone(r, "deleted", operatorapi.SkillVersion{Skill: name, Deleted: true}, "")
	}
	return struct{}{}, err
}

// skillDone stores a change of a skill that was made in the console.
func (c *Console) skillDone(r *http.Request, what string, v operatorapi.SkillVersion, source string) {
	v.By = operatorapi.ByHand
	c.cfg.History.RecordSkill(v, source)
	c.reportChange(r, what, v.Skill)
}

// reportChange logs a change of a skill, and notifies open pages.
func (c *Console) reportChange(r *http.Request, what, name string) {
	c.cfg.Log.Info("a skill was changed in the console", logline.Tag("console"),
		slog.String("session", sessionOf(r).ID), slog.String("skill", name), slog.String("what", what))
	c.SkillsChanged()
}

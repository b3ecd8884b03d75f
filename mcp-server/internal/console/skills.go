package console

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/codeforge-mcp/codeforge/mcp-server/historyapi"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
)

// listed is a skill of the list.
type listed struct {
	Name        string    `json:"name"`
	Description string    `json:"description"`
	Size        int64     `json:"size"`
	Modified    time.Time `json:"modified"`
	// Use is how often runs imported it, nil where that is not known.
	Use *historyapi.SkillUse `json:"use,omitempty"`
}

// listSkills lists the skills, with how often they were used.
func (c *Console) listSkills(r *http.Request) (any, error) {
	l, err := c.cfg.Skills.List()
	if err != nil {
		return nil, err
	}
	uses := map[string]*historyapi.SkillUse{}
	known, err := c.cfg.History.SkillUses(r.Context())
	for i := range known {
		uses[known[i].Skill] = &known[i]
	}
	out := []listed{}
	for _, k := range l.Skills {
		one := listed{Name: k.Name, Description: k.Description, Size: k.Size, Modified: k.Modified, Use: uses[k.Name]}
		if err == nil && one.Use == nil {
			one.Use = &historyapi.SkillUse{Skill: k.Name}
		}
		out = append(out, one)
	}
	return map[string]any{"skills": out, "most": skill.MaxCount, "read_only": c.cfg.Skills.ReadOnly()}, nil
}

// readSkill is one skill with its source, its versions, and the source of the version before.
func (c *Console) readSkill(r *http.Request) (any, error) {
	name := r.PathValue("name")
	k, source, err := c.cfg.Skills.Read(name)
	gone := errors.Is(err, skill.ErrNotFound)
	if errors.Is(err, skill.ErrName) {
		return nil, errNotFound
	}
	if err != nil && !gone {
		return nil, err
	}
	versions, err := c.cfg.History.SkillVersions(r.Context(), name)
	if err != nil {
		versions = nil // without a store there are none
	}
	if gone && len(versions) == 0 {
		return nil, errNotFound
	}
	return map[string]any{
		"name": name, "description": k.Description, "size": k.Size, "modified": k.Modified, "source": source,
		"deleted": gone, "versions": versions,
	}, nil
}

// skillVersion is the source of one version.
func (c *Console) skillVersion(r *http.Request) (any, error) {
	n, err := strconv.Atoi(r.PathValue("version"))
	if err != nil {
		return nil, errNotFound
	}
	source, err := c.cfg.History.SkillSource(r.Context(), r.PathValue("name"), n)
	return kept(map[string]string{"source": source}, err)
}

package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Skill is one skill in the server's list.
type Skill struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Size        int64  `json:"size,omitempty"`
}

// skillScheme is the start of every skill's URI.
const skillScheme = "skill://"

// ListSkills lists the skills.
func (s *Session) ListSkills(ctx context.Context) ([]Skill, error) {
	var out []Skill
	for r, err := range s.mcp.Resources(ctx, nil) {
		if err != nil {
			return nil, fmt.Errorf("listing the skills: %w", err)
		}
		if name, ok := strings.CutPrefix(r.URI, skillScheme); ok && !strings.Contains(name, "/") {
			out = append(out, Skill{Name: name, Description: r.Description, Size: r.Size})
		}
	}
	return out, nil
}

// FileName returns the name of a skill's file.
func (k Skill) FileName() string { return skillFile(k.Name) }

// skillFile returns the file name of a skill: names of Python skills end in .py, all others are TypeScript.
func skillFile(skill string) string {
	if strings.HasSuffix(skill, ".py") {
		return skill
	}
	return skill + ".ts"
}

// ReadSource returns the code of a skill.
func (s *Session) ReadSource(ctx context.Context, name string) (string, error) {
	uri := skillScheme + name + "/" + skillFile(name)
	res, err := s.mcp.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
	if refused, ok := errors.AsType[*jsonrpc.Error](err); ok && refused.Code == jsonrpc.CodeInvalidParams {
		return "", fmt.Errorf("there is no skill %q; codeforge skills list lists them", name)
	}
	if err != nil {
		return "", fmt.Errorf("reading the skill %q: %w", name, err)
	}
	for _, c := range res.Contents {
		return c.Text, nil
	}
	return "", fmt.Errorf("the skill %q is empty", name)
}

// DeleteSkill deletes a skill.
func (s *Session) DeleteSkill(ctx context.Context, name string) error {
	_, err := s.callTool(ctx, fmt.Sprintf("deleting the skill %q", name), "delete_skill", map[string]any{"name": name})
	return err
}

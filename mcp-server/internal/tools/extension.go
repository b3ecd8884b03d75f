package tools

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
)

// skillsExtension is the Skills extension (SEP-2640): skills/list and skills/get.
const skillsExtension = "io.modelcontextprotocol/skills"

// skillsPage is the largest number of skills in one answer to skills/list.
const skillsPage = 50

// extensionName matches the names that the extension allows. Skills with other names are still resources.
var extensionName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// skillEntry is a skill in the extension's form: a directory with SKILL.md and the module.
type skillEntry struct {
	URI         string           `json:"uri"`
	Frontmatter skillFrontmatter `json:"frontmatter"`
	Resources   []entryFile      `json:"resources"`
}

type entryFile struct {
	URI    string `json:"uri"`
	Digest string `json:"digest"`
	Size   int    `json:"size"`
}

type listParams struct {
	mcp.ParamsBase
	Cursor string `json:"cursor,omitempty"`
}

type listResult struct {
	mcp.ResultBase
	mcp.Cacheable
	ResultType string       `json:"resultType,omitempty"`
	Skills     []skillEntry `json:"skills"`
	NextCursor string       `json:"nextCursor,omitempty"`
}

type getParams struct {
	mcp.ParamsBase
	URI string `json:"uri"`
}

type getResult struct {
	mcp.ResultBase
	mcp.Cacheable
	ResultType string     `json:"resultType,omitempty"`
	Skill      skillEntry `json:"skill"`
}

// private keeps shared caches from storing the extension's answers.
var private = mcp.Cacheable{CacheScope: "private"}

// addExtension registers the two methods. Registering fails only for names of standard methods.
func addExtension(server *mcp.Server, h *skillResources) {
	err := errors.Join(
		mcp.AddReceivingCustomMethod(server, "skills/list", h.extensionList),
		mcp.AddReceivingCustomMethod(server, "skills/get", h.extensionGet))
	if err != nil {
		panic(err)
	}
}

func (h *skillResources) extensionList(ctx context.Context, ss *mcp.ServerSession, p *listParams) (*listResult, error) {
	cursor := ""
	if p != nil {
		cursor = p.Cursor
	}
	res, err := h.listPage(ctx, cursor)
	if err == nil {
		res.ResultType = resultType(ss)
	}
	return res, err
}

func (h *skillResources) extensionGet(_ context.Context, ss *mcp.ServerSession, p *getParams) (*getResult, error) {
	if p == nil {
		p = &getParams{}
	}
	res, err := h.getEntry(p.URI)
	if err == nil {
		res.ResultType = resultType(ss)
	}
	return res, err
}

// resultType returns the field that each result has since protocol revision 2026-07-28.
func resultType(ss *mcp.ServerSession) string {
	if p := ss.InitializeParams(); p != nil && p.ProtocolVersion >= "2026-07-28" {
		return "complete"
	}
	return ""
}

// listPage returns one page of skills, starting after the skill that the cursor names.
func (h *skillResources) listPage(ctx context.Context, cursor string) (*listResult, error) {
	res := &listResult{Skills: []skillEntry{}, Cacheable: private}
	// The cursor is a name and not an offset: skills may come and go between two pages.
	if cursor != "" && !extensionName.MatchString(cursor) {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "not a cursor of skills/list"}
	}
	names := slices.DeleteFunc(h.surface.cfg.Skills.SkillNames(), func(n string) bool {
		return !extensionName.MatchString(n) || n <= cursor
	})
	for _, name := range names {
		// Each skill is read from the disk, so a client that has gone must not keep this running.
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if len(res.Skills) == skillsPage {
			res.NextCursor = res.Skills[skillsPage-1].Frontmatter.Name
			break
		}
		// A skill that was removed since the listing is skipped.
		if e, ok := h.describeEntry(name); ok {
			res.Skills = append(res.Skills, e)
		}
	}
	return res, nil
}

func (h *skillResources) getEntry(uri string) (*getResult, error) {
	name := strings.TrimSuffix(strings.TrimPrefix(uri, skillURI), "/SKILL.md")
	e, ok := skillEntry{}, false
	if extensionName.MatchString(name) {
		e, ok = h.describeEntry(name)
	}
	// The same skill has several spellings in a URI, and only the canonical one is answered.
	if !ok || e.URI != uri {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "no skill with this uri"}
	}
	return &getResult{Skill: e, Cacheable: private}, nil
}

// describeEntry describes a skill. It returns false if the skill no longer exists.
func (h *skillResources) describeEntry(name string) (skillEntry, bool) {
	k, source, err := h.surface.cfg.Skills.ReadSkill(name)
	if err != nil {
		return skillEntry{}, false
	}
	at := skillURI + name
	return skillEntry{
		URI:         at + "/SKILL.md",
		Frontmatter: newFrontmatter(k),
		Resources: []entryFile{newEntryFile(at+"/SKILL.md", skillManifest(k, source)),
			newEntryFile(at+"/"+skill.FileName(name), source)},
	}, true
}

func newEntryFile(uri, text string) entryFile {
	sum := sha256.Sum256([]byte(text))
	return entryFile{URI: uri, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: len(text)}
}

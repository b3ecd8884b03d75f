package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/logline"
	"github.com/codeforge-mcp/codeforge/internal/membudget"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/execution"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/patch"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/skill"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

const (
	updateSchema = `{"type":"object","required":["name","patch"],
"properties":{"name":{"type":"string"},"patch":{"type":"string"}}}`
	deleteSchema = `{"type":"object","required":["name"],"properties":{"name":{"type":"string"}}}`
)

func (s *Surface) addSkillTools() {
	s.addTool(&mcp.Tool{
		Name:        "update_skill",
		Title:       "Edit a skill",
		Description: updateDescription,
		Annotations: toolHints(false, true, false, false),
		InputSchema: json.RawMessage(updateSchema),
	}, s.updateSkill)
	s.addTool(&mcp.Tool{
		Name:        "delete_skill",
		Title:       "Delete a skill",
		Description: deleteDescription,
		Annotations: toolHints(false, true, true, false),
		InputSchema: json.RawMessage(deleteSchema),
	}, s.deleteSkill)
}

func (s *Surface) updateSkill(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	a := readArguments(req.Params.Arguments, argumentSpec{
		Tool: "update_skill", Names: []string{"name", "patch"},
		Example:  `{"name": "my-skill", "patch": ` + jsonText(patch.Example) + `}`,
		MaxBytes: escaped*skill.MaxPatch + maxArgumentBytes,
	})
	name := skillName(a)
	blocks := a.Text("patch", "SEARCH/REPLACE blocks as a string", true)
	if err := a.Err(); err != nil {
		return errorResult(err.Error()), nil
	}
	endWriting := s.writers.beginCall()
	// Counted, so that a run at the same time is not taken for the author.
	k, err := s.cfg.Skills.PatchSkill(ctx, name, blocks)
	endWriting()
	if err != nil {
		return errorResult(s.explainSkill(name, err)), nil
	}
	s.cfg.Log.Info("skill updated", logline.Tag("skill"), slog.String("name", name), slog.Int64("size", k.Size))
	who, _, _ := clientInfo(req.Session)
	s.recordChange(operatorapi.SkillVersion{Skill: name, By: operatorapi.ByTool, Client: who})
	// Before the remarks, which take a run: clients see the new skill at once.
	s.shelf.refreshResources()
	done := []string{fmt.Sprintf("Skill %s was updated and now has %d bytes.", name, k.Size)}
	done = append(done, s.reportBroken(ctx, execution.RunRequest{Session: s.callerSession(req)},
		[]skill.SkillChange{{Name: name, What: skill.Altered}})...)
	return textResult(strings.Join(done, "\n")), nil
}

func (s *Surface) deleteSkill(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	a := readArguments(req.Params.Arguments, argumentSpec{
		Tool: "delete_skill", Names: []string{"name"}, Example: `{"name": "my-skill"}`,
	})
	name := skillName(a)
	if err := a.Err(); err != nil {
		return errorResult(err.Error()), nil
	}
	endWriting := s.writers.beginCall()
	err := s.cfg.Skills.DeleteSkill(name)
	endWriting()
	if err != nil {
		return errorResult(s.explainSkill(name, err)), nil
	}
	s.cfg.Log.Info("skill deleted", logline.Tag("skill"), slog.String("name", name))
	who, _, _ := clientInfo(req.Session)
	s.recordChange(operatorapi.SkillVersion{Skill: name, By: operatorapi.ByTool, Client: who, Deleted: true})
	s.shelf.refreshResources()
	if s.cfg.Skills.IsPinned(name) { // a tenant's own skill, which the shared one hid
		return textResult("Your own skill " + name + " was deleted. The pinned skill of this name stays."), nil
	}
	return textResult("Skill " + name + " was deleted."), nil
}

// skillName reads the name of a skill. "/skills/x.ts" and "x.ts" mean x. A name of a Python skill keeps its .py.
func skillName(a *argumentReader) string {
	name := a.Text("name", "the name of a skill as a string", true)
	return strings.TrimSuffix(strings.TrimPrefix(name, "/skills/"), ".ts")
}

// explainSkill returns the reason, for a model, why a skill could not be changed. It is the only function that does so.
func (s *Surface) explainSkill(name string, err error) string {
	var mistake *patch.Error
	// The model chose the name: it may be long, and the cut may split a character.
	name = strings.ToValidUTF8(name[:min(len(name), 80)], "")
	switch {
	case errors.As(err, &mistake):
		return "Skill " + name + " was not changed. " + mistake.Error()
	case errors.Is(err, skill.ErrNotFound):
		how := " To create one, write /skills/<name>.ts in execute_code."
		if s.hasPrivateRuns() {
			how = " To create one, send one block with an empty SEARCH to update_skill."
		}
		return explainNoSuchSkill(name, s.cfg.Skills.SkillNames()) + how
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "Cancelled. Skill " + name + " was not changed."
	case errors.Is(err, skill.ErrName):
		return fmt.Sprintf("%.80q is not a skill name: letters, digits, - and _, at most 64, and .py for Python.", name)
	case errors.Is(err, skill.ErrReadOnly):
		return "Not changed: skills are read-only here (the user's setting SKILLS_READONLY)."
	case errors.Is(err, skill.ErrPinned):
		return "Not changed: the user has pinned skill " + name + ". To build on it, write another one."
	case errors.Is(err, skill.ErrTaken):
		return "Skill " + name + " was not written: Python imports a skill with _ for -, and there is one of that name " +
			"already. Choose another name."
	case errors.Is(err, skill.ErrChanged):
		return "Not changed: the skill was changed concurrently. Read it again."
	case errors.Is(err, skill.ErrUnavailable):
		return "The store of skills did not confirm the change of " + name + ". Read the skill before you try again, " +
			"and tell the user to check the server's log. Code can still import what was stored before."
	case errors.Is(err, skill.ErrFull):
		return "Skill " + name + " was not changed: " + err.Error() + ". Delete skills that are no longer needed " +
			"(delete_skill), then try again."
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "There is no room left in /skills. Skill " + name + " was not changed. " +
			"Delete skills that are no longer needed (delete_skill), then try again."
	}
	s.cfg.Log.Error("skill failed", logline.Tag("skill"), slog.String("name", name), slog.String("error", err.Error()))
	return "The skill could not be changed. Tell the user to check the server's log."
}

// skillResources offers the skills as resources, as a prompt and through the skills extension. It keeps the list of
// resources up to date.
type skillResources struct {
	surface *Surface

	mu    sync.Mutex
	shown map[string]skill.Skill
	log   map[string]int // the skipped files in the last log line

	subscribed subscriptionCount
}

const (
	skillURI     = "skill://"
	markdownType = "text/markdown"
	sourceType   = "text/typescript"
	pythonType   = "text/x-python"
)

// registerAll registers the templates, the prompt, the extension's methods, and the existing skills.
func (h *skillResources) registerAll() {
	server := h.surface.server
	server.AddResourceTemplate(&mcp.ResourceTemplate{
		Name: "skill", Title: "Skill", URITemplate: skillURI + "{name}", MIMEType: markdownType,
		Description: "A reusable module of /skills with its description and source",
	}, h.readResource)
	server.AddResourceTemplate(&mcp.ResourceTemplate{
		Name: "skill-file", Title: "File of a skill", URITemplate: skillURI + "{name}/{file}",
		Description: "SKILL.md, or the module itself as <name>.ts or <name>.py",
	}, h.readResource)
	server.AddPrompt(&mcp.Prompt{
		Name: "run_skill", Title: "Run a skill", Description: "Use one of the saved skills",
		Arguments: []*mcp.PromptArgument{{Name: "name", Description: "The skill's name", Required: true}},
	}, h.answerPrompt)
	addExtension(server, h)
	h.refreshResources()
}

// WatchSkills keeps the list of resources up to date until ctx ends.
func (s *Surface) WatchSkills(ctx context.Context) {
	s.cfg.Skills.WatchChanges(ctx, s.cfg.Log, s.shelf.refreshResources)
}

// refreshResources updates the registered resources to the skills in the directory, and notifies clients of changes.
func (h *skillResources) refreshResources() {
	log := h.surface.cfg.Log
	defer func() { // sandboxed code wrote these files, and no caller recovers from a panic
		if p := recover(); p != nil {
			log.Error("panic while listing skills", logline.Tag("skill"),
				slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
		}
	}()
	l, err := h.surface.cfg.Skills.ListSkills()
	if err != nil {
		log.Error("skills cannot be listed", logline.Tag("skill"), slog.String("error", err.Error()))
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	// Logged once and not on each refresh: anything in the folder can start one.
	if fmt.Sprint(l.Skipped) != fmt.Sprint(h.log) {
		h.log = l.Skipped
		logSkip(log, l.Skipped)
	}
	now := map[string]skill.Skill{}
	for _, k := range l.Skills {
		now[k.Name] = k
		old, was := h.shown[k.Name]
		if !was || old.Size != k.Size || !old.Modified.Equal(k.Modified) {
			h.surface.recordChange(operatorapi.SkillVersion{Skill: k.Name, By: operatorapi.ByPerson})
		}
		// Registering again would notify clients of a change.
		if was && isSameResource(old, k) {
			continue
		}
		uri := skillURI + k.Name
		h.surface.server.AddResource(&mcp.Resource{
			URI: uri, Name: k.Name, Description: describeForModel(k), MIMEType: markdownType,
		}, h.readResource)
		// Only subscribers are notified. An error means that a subscriber has gone.
		_ = h.surface.server.ResourceUpdated(context.Background(), &mcp.ResourceUpdatedNotificationParams{URI: uri})
	}
	var gone []string
	for name := range h.shown {
		if _, is := now[name]; !is {
			gone = append(gone, skillURI+name)
			h.surface.recordChange(operatorapi.SkillVersion{Skill: name, By: operatorapi.ByPerson, Deleted: true})
		}
	}
	if len(gone) > 0 {
		h.surface.server.RemoveResources(gone...)
	}
	h.shown = now
}

// isSameResource reports whether the registered resource of a skill is up to date.
func isSameResource(old, now skill.Skill) bool {
	return old.Description == now.Description && old.Size == now.Size && old.Modified.Equal(now.Modified)
}

// acceptSubscription accepts only subscriptions to skills. The skill need not exist yet.
func (h *skillResources) acceptSubscription(_ context.Context, req *mcp.SubscribeRequest) error {
	name, ok := strings.CutPrefix(req.Params.URI, skillURI)
	if !ok || !skill.IsValidName(name) {
		return mcp.ResourceNotFoundError(req.Params.URI)
	}
	if !h.subscribed.addSubscription(h.surface.server, req.Session, name) {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams,
			Message: "too many subscriptions; unsubscribe from others first"}
	}
	return nil
}

func (h *skillResources) endSubscription(_ context.Context, req *mcp.UnsubscribeRequest) error {
	h.subscribed.removeSubscription(req.Session, strings.TrimPrefix(req.Params.URI, skillURI))
	return nil
}

// readResource returns skill://name, skill://name/SKILL.md and skill://name/name.ts.
func (h *skillResources) readResource(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult,
	error) {
	uri := req.Params.URI
	name, file, _ := strings.Cut(strings.TrimPrefix(uri, skillURI), "/")
	// Read checks the name, so a URI cannot lead out of the directory.
	k, source, err := h.surface.cfg.Skills.ReadSkill(name)
	if err != nil {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	content := &mcp.ResourceContents{URI: uri}
	switch file {
	case "", "SKILL.md":
		content.MIMEType, content.Text = markdownType, skillManifest(k, source)
	case skill.FileName(name):
		content.MIMEType, content.Text = sourceType, source
		if skill.IsPython(name) {
			content.MIMEType = pythonType
		}
	default:
		return nil, mcp.ResourceNotFoundError(uri)
	}
	if err := takeTextMemory(ctx, content.Text); err != nil {
		return nil, err
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{content}}, nil
}

// takeTextMemory takes the memory for a text of an answer, or returns errManyFiles.
func takeTextMemory(ctx context.Context, text string) error {
	if !membudget.FromContext(ctx).TryTake(AnswerCopies * int64(len(text))) {
		return errManyFiles
	}
	return nil
}

// skillManifest returns SKILL.md, made from the module: its frontmatter from the leading comment, its use, and its
// source.
func skillManifest(k skill.Skill, source string) string {
	// A fence longer than any run of backticks in the source, which could otherwise end the block and address the model.
	fence := strings.Repeat("`", max(3, measureLongestRun(source, '`')+1))
	if source != "" && !strings.HasSuffix(source, "\n") {
		source += "\n"
	}
	f := newFrontmatter(k)
	use, language := "`import * as skill from \"/skills/"+k.Name+".ts\"`, or `import { f }` of what it exports", "ts"
	if skill.IsPython(k.Name) {
		module := strings.ReplaceAll(strings.TrimSuffix(k.Name, ".py"), "-", "_")
		use, language = "\"language\": \"python\" and `from skills import "+module+"`", "python"
	}
	return fmt.Sprintf("---\nname: %s\ndescription: %s\n---\n\nUse it in execute_code with %s.\n\n%s%s\n%s%s\n",
		f.Name, jsonText(f.Description), use, fence, language, source, fence)
}

func measureLongestRun(s string, b byte) int {
	most, run := 0, 0
	for i := range len(s) {
		if s[i] != b {
			run = 0
			continue
		}
		run++
		most = max(most, run)
	}
	return most
}

type skillFrontmatter struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

func newFrontmatter(k skill.Skill) skillFrontmatter {
	if k.Description == "" {
		if skill.IsPython(k.Name) {
			return skillFrontmatter{k.Name, "A Python module without a description"}
		}
		return skillFrontmatter{k.Name, "A TypeScript module without a description"}
	}
	return skillFrontmatter{k.Name, describeForModel(k)}
}

func (h *skillResources) answerPrompt(ctx context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	name := req.Params.Arguments["name"]
	k, source, err := h.surface.cfg.Skills.ReadSkill(name)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: h.surface.explainSkill(name, err)}
	}
	text := "Use the skill " + k.Name + " with execute_code. Ask me for anything it needs that you do not know.\n\n" +
		skillManifest(k, source)
	return &mcp.GetPromptResult{
		Description: describeForModel(k),
		Messages:    []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: text}}},
	}, takeTextMemory(ctx, text)
}

// maxCompletions is the largest number of values that MCP allows in an answer to completion/complete.
const maxCompletions = 100

// completeName completes the names of skills, for the prompt and the templates.
func (h *skillResources) completeName(_ context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	values := []string{} // clients fail on null
	ref := req.Params.Ref
	known := ref != nil && (ref.Name == "run_skill" || strings.HasPrefix(ref.URI, skillURI))
	if known && req.Params.Argument.Name == "name" {
		for _, name := range h.surface.cfg.Skills.SkillNames() {
			if strings.HasPrefix(name, req.Params.Argument.Value) {
				values = append(values, name)
			}
		}
	}
	found := mcp.CompletionResultDetails{Total: len(values), HasMore: len(values) > maxCompletions}
	found.Values = slices.Clip(values[:min(len(values), maxCompletions)])
	return &mcp.CompleteResult{Completion: found}, nil
}

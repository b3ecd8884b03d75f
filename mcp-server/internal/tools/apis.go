package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/mcp-server/internal/toolsignature"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// maxTypes bounds the part of an API's types.d.ts that is shown, in bytes.
const maxTypes = 100 << 10

// listedAPI is one API in the answer of list_apis, with the fields that a model needs to call the API. Clients read
// reference and restricted_methods of every entry, so both are present even if null or empty.
type listedAPI struct {
	Name              string              `json:"name"`
	Description       string              `json:"description"`
	Domains           []string            `json:"domains"`
	Credentials       []string            `json:"credentials"`
	CredentialsIn     map[string][]string `json:"credentials_in,omitempty"`
	Reference         *string             `json:"reference"`
	RestrictedMethods []string            `json:"restricted_methods"`
	AllowedMethods    []string            `json:"allowed_methods,omitempty"`
	Rules             []string            `json:"rules,omitempty"`
	AllowHTTP         bool                `json:"allow_http,omitempty"`
	Types             bool                `json:"types,omitempty"`
	Stale             bool                `json:"stale,omitempty"`
	// MCP is set for an MCP server, see countTools.
	MCP any `json:"mcp,omitempty"`
}

func (s *Surface) addAPIs() {
	s.addTool(&mcp.Tool{
		Name:        "list_apis",
		Title:       "List APIs",
		Description: listDescription,
		Annotations: toolHints(true, false, true, false),
		InputSchema: json.RawMessage(`{"type":"object","properties":{` +
			`"query":{"type":"string"},"api":{"type":"string"},"operation":{"type":"string"}}}`),
	}, s.listAPIs)
	s.addTool(&mcp.Tool{
		Name:        "get_instructions",
		Title:       "How to use CodeForge",
		Description: instructionsDescription,
		Annotations: toolHints(true, false, true, false),
		InputSchema: json.RawMessage(`{"type":"object","properties":{}}`),
	}, s.getInstructions)
}

// firstCatalog is how long a call waits for the proxy's catalog after the server's start.
const firstCatalog = 5 * time.Second

// currentCatalog returns the catalog, or an empty one if the proxy has never answered.
func (s *Surface) currentCatalog(ctx context.Context) proxyapi.Catalog {
	// Version is empty only before the first catalog.
	if c := s.publicCatalog(); c.Version != "" {
		return c
	}
	ctx, cancel := context.WithTimeout(ctx, firstCatalog)
	defer cancel()
	_, _ = s.cfg.Catalog.Permissions(ctx) // waits for the first catalog
	return s.publicCatalog()
}

// listAPIs answers with a JSON array in content[0]. Notes for the model follow in later blocks.
func (s *Surface) listAPIs(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	example := `{"query": "refund a charge"}`
	if name := exampleAPI(s.publicCatalog()).Name; name != "" {
		example += fmt.Sprintf(` or {"api": %q}`, name)
	}
	a := readArguments(req.Params.Arguments, argumentSpec{
		Tool: "list_apis", Names: []string{"query", "api", "operation", "explain"}, Example: example,
	})
	only := a.Text("api", "the name of one API as a string", false)
	query := a.Text("query", "the task, in a few words", false)
	operation := a.Text("operation", `a method and path, a tool or a type, e.g. "POST /v1/refunds"`, false)
	explain := a.Flag("explain") // for codeforge api search --explain
	// An operation is an exact name and a query is not, so the answer to both could only guess.
	if query != "" && operation != "" {
		a.AddMistake("operation: found with query; want one of them")
	}
	cat := s.currentCatalog(ctx)
	list, names := []listedAPI{}, []string{}
	// All names are collected, also with api set, to suggest a similar one.
	for _, api := range cat.APIs {
		names = append(names, api.Name)
		if only == "" || api.Name == only {
			l := newListedAPI(api)
			l.MCP = s.countTools(api)
			list = append(list, l)
		}
	}
	if only != "" && len(list) == 0 {
		a.AddMistake(explainNoSuchAPI("api", only, names))
	}
	if err := a.Err(); err != nil {
		return errorResult(err.Error()), nil
	}
	// An empty list would look like a system without APIs.
	if cat.Version == "" {
		return errorResult("The proxy has not answered yet. Try again in a moment."), nil
	}
	if query != "" || operation != "" {
		if found := s.answerQuery(ctx, cat, findRequest{only, query, operation, explain}); found != "" {
			return textResult(found), nil
		}
	}
	// The short list is text and no JSON array: an array of so many APIs would fill the model's context.
	if len(list) > maxListed {
		return textResult(append([]string{formatShortList(list)}, s.listNotes(ctx, cat, list, only)...)...), nil
	}
	res := textResult(arrayOfLines(list))
	for _, note := range s.listNotes(ctx, cat, list, only) {
		res.Content = append(res.Content, &mcp.TextContent{Text: note})
	}
	return res, nil
}

const (
	// maxListed is the largest number of APIs that list_apis describes in full. More APIs get one line each, up to
	// maxListBytes; the rest get only their names, up to as many bytes again.
	maxListed    = 20
	maxListBytes = 4 << 10
)

// formatShortList returns one line for each of many APIs.
func formatShortList(list []listedAPI) string {
	var b, rest strings.Builder
	fmt.Fprintf(&b, `%d APIs. list_apis({"query": "what to do"}) finds operations, {"api": "name"} tells all of one.`,
		len(list))
	left := 0
	for _, l := range list {
		// The first host is enough to recognise an API.
		host := ""
		if len(l.Domains) > 0 {
			host = l.Domains[0]
		}
		line := fmt.Sprintf("\n%s  %s  %s %s", l.Name, toolsignature.CleanLine(l.Description, 60), host,
			strings.Join(l.Credentials, " "))
		switch {
		// The bound is shared by all APIs, and one long description must not use it up.
		case len(line) > 300 || b.Len()+len(line) > maxListBytes:
			if rest.Len()+len(l.Name) > maxListBytes {
				left++
			} else {
				rest.WriteString(" " + l.Name)
			}
		default:
			b.WriteString(line)
		}
	}
	if rest.Len() > 0 {
		b.WriteString("\nAlso:" + rest.String())
	}
	if left > 0 {
		fmt.Fprintf(&b, "\n%d more.", left)
	}
	return b.String()
}

// listNotes returns the blocks after the array.
func (s *Surface) listNotes(ctx context.Context, cat proxyapi.Catalog, list []listedAPI, only string) []string {
	var notes []string
	if note := serverNote(list); note != "" && only == "" {
		notes = append(notes, note)
	}
	if only != "" && list[0].MCP != nil {
		if lines := s.fetchToolLines(ctx, only); lines != "" {
			notes = append(notes, lines)
		}
	}
	documented := false
	if only != "" {
		groups := s.operationGroups(ctx, only)
		if documented = groups != ""; documented {
			notes = append(notes, groups)
		}
	}
	// The groups already lead to the types of single operations, which need fewer tokens than the whole file.
	if only != "" && list[0].Types && !documented {
		notes = append(notes, s.readTypes(ctx, only)...)
	}
	npm, pypi := sandboxapi.SplitPackages(cat.Packages)
	if len(npm) > 0 && only == "" {
		notes = append(notes, "TypeScript can import these packages, e.g. import x from \"npm:NAME\": "+
			strings.Join(npm, ", ")+".")
	}
	if len(pypi) > 0 && only == "" && s.pythonReport().Version != "" {
		notes = append(notes, "Python can import these packages: "+strings.Join(pypi, ", ")+".")
	}
	if line := s.folderLine(); line != "" && only == "" {
		notes = append(notes, line)
	}
	if cat.YOLO {
		notes = append(notes, "YOLO_MODE is on: code can reach hosts outside every API too, without credentials.")
	}
	if len(cat.APIs) == 0 && !cat.YOLO {
		notes = append(notes, "No API is configured, so code can reach no host. "+
			"The user can add one as apis/<name>/config.json.")
	}
	if n := countMistakes(cat); n > 0 {
		notes = append(notes, fmt.Sprintf("%d mistakes in the user's apis/ folder keep APIs from loading or from being "+
			"updated; `codeforge check` shows them to the user.", n))
	}
	return notes
}

// readTypes returns types.d.ts. A long file is cut at the end of a line, and a note follows.
func (s *Surface) readTypes(ctx context.Context, api string) []string {
	body, err := s.cfg.Control.OpenTypes(ctx, api)
	// Not an error: the file may have been removed since the catalog.
	if errors.Is(err, proxyapi.ErrNotFound) {
		return nil
	}
	if err != nil {
		return []string{"types.d.ts could not be read."}
	}
	defer body.Close()
	// One byte more than is shown, to tell a file of exactly maxTypes bytes from a longer one.
	text, err := io.ReadAll(io.LimitReader(body, maxTypes+1))
	switch {
	case err != nil:
		return []string{"types.d.ts could not be read."}
	case len(text) <= maxTypes:
		return []string{string(text)}
	}
	// Half a line of TypeScript could read as another type.
	if end := bytes.LastIndexByte(text, '\n'); end > 0 {
		text = text[:end+1]
	}
	return []string{strings.ToValidUTF8(string(text), ""), "types.d.ts goes on: this is its beginning."}
}

// countMistakes returns the number of problems that keep an API from loading.
func countMistakes(cat proxyapi.Catalog) (n int) {
	for _, p := range cat.Problems {
		if !p.Warning {
			n++
		}
	}
	return n
}

// newListedAPI returns an API in the form that the model reads.
func newListedAPI(api proxyapi.API) listedAPI {
	l := listedAPI{
		Name: api.Name, Description: api.Description, Domains: ensureList(api.Domains), Credentials: []string{},
		Types: api.HasTypes, Stale: api.Stale, AllowHTTP: api.AllowHTTP,
		RestrictedMethods: ensureList(api.RestrictedMethods), AllowedMethods: api.AllowedMethods, Rules: api.Rules,
	}
	if api.Reference != "" {
		l.Reference = &api.Reference
	}
	for _, t := range api.Credentials {
		l.Credentials = append(l.Credentials, t.Name)
		// Most credentials belong in a header, so only other places are listed.
		if !slices.Equal(t.In, []string{"header"}) {
			if l.CredentialsIn == nil {
				l.CredentialsIn = map[string][]string{}
			}
			l.CredentialsIn[t.Name] = ensureList(t.In)
		}
	}
	return l
}

func ensureList(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// arrayOfLines returns a JSON array with one element on each line.
func arrayOfLines(list []listedAPI) string {
	lines := convert.Each(list, func(l listedAPI) string { return jsonText(l) })
	return "[" + strings.Join(lines, ",\n") + "]"
}

// getInstructions answers with the guide.
func (s *Surface) getInstructions(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	a := readArguments(req.Params.Arguments, argumentSpec{Tool: "get_instructions", Example: "{}"})
	if err := a.Err(); err != nil {
		return errorResult(err.Error()), nil
	}
	cat := s.publicCatalog()
	return textResult(guideText(guideInput{
		YOLO: cat.YOLO, Servers: hasServers(cat), ReadOnly: s.cfg.Skills.IsReadOnly(), Private: s.hasPrivateRuns(),
		Skills: s.skillLines(), Folders: s.folderLine(), Python: describePython(s.pythonReport()),
		Limit: s.cfg.OutputLimit, Preview: previewLength, MaxFile: sandboxapi.MaxFile >> 20,
		Usual: int(s.cfg.TimeoutDefault.Seconds()), Most: int(s.cfg.TimeoutMax.Seconds()),
		After: int(s.cfg.AnswerAfter.Seconds()),
	})), nil
}

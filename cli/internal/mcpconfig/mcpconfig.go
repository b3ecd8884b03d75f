// Package mcpconfig reads the MCP servers in the configurations of other programs and drafts APIs from them. Keys
// become credentials, token names replace them, and a package gets an exact version.
//
// Threat: these files contain keys in plain text. Contract: no error, note or refusal of this package shows a value.
package mcpconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/tailscale/hujson"

	"github.com/codeforge-mcp/codeforge/internal/convert"
)

// Server is one server of a file. Command or URL is set, or neither if the file is wrong.
type Server struct {
	Name    string
	Command []string
	URL     string
	// Transport is "sse" or "http", or empty if the file does not set it.
	Transport    string
	Env, Headers map[string]string
	// Inputs are the names of values that the other program asks its user for.
	Inputs map[string]bool
	// Login means that the user logs in at the server, so there is no key.
	Login bool
	// Off means that the server is switched off in the file.
	Off         bool
	Allow, Deny []string
	// Timeout (of a call) and Connect are in seconds; 0 means that the file does not set them.
	Timeout, Connect float64
	ExclusiveWith    []string
	// Notes describe values that CodeForge cannot take over.
	Notes []string
}

// maxServers bounds the servers of one file.
const maxServers = 500

// ErrNone is the error for a file without servers.
var ErrNone = errors.New("no MCP servers are in it; want mcpServers (Claude, Cursor), servers (VS Code, forge.toml), " +
	"mcp (opencode, codemcp), context_servers (Zed) or mcp_servers (Codex)")

// ParseConfig parses a file: JSON with comments, or TOML if its name ends in .toml. It sorts the servers by name.
func ParseConfig(name string, text []byte) ([]Server, error) {
	root, err := decodeFile(name, text)
	if err != nil {
		return nil, err
	}
	inputs := map[string]bool{}
	for _, in := range toLists(root["inputs"]) {
		inputs[toText(toObject(in)["id"])] = true
	}
	found := map[string]any{}
	add := func(list any) {
		for name, entry := range toObject(list) {
			if _, there := found[name]; !there {
				found[name] = entry
			}
		}
	}
	// Of servers with one name, the first list wins.
	add(root["mcpServers"])
	add(root["servers"])
	add(root["context_servers"])
	add(root["mcp_servers"])
	if mcp := toObject(root["mcp"]); mcp["servers"] != nil {
		add(mcp["servers"])
		for _, in := range toLists(mcp["inputs"]) {
			inputs[toText(toObject(in)["id"])] = true
		}
	} else {
		add(mcp)
	}
	for _, project := range slices.Sorted(maps.Keys(toObject(root["projects"]))) {
		add(toObject(toObject(root["projects"])[project])["mcpServers"])
	}
	if len(found) == 0 {
		return nil, ErrNone
	}
	if len(found) > maxServers {
		return nil, fmt.Errorf("%d servers; want at most %d", len(found), maxServers)
	}
	var out []Server
	for _, name := range slices.Sorted(maps.Keys(found)) {
		_, isOpencode := toObject(root["mcp"])[name] // or codemcp's
		s := parseEntry(name, toObject(found[name]), isOpencode)
		s.Inputs = inputs
		out = append(out, s)
	}
	return applyGroups(out, toObject(root["groups"])), nil
}

// decodeFile parses a file into maps and lists.
func decodeFile(name string, text []byte) (map[string]any, error) {
	root := map[string]any{}
	if strings.HasSuffix(strings.ToLower(name), ".toml") {
		err := toml.Unmarshal(text, &root)
		var at toml.ParseError
		if errors.As(err, &at) { // its message would quote the file
			return nil, fmt.Errorf("a mistake in line %d; want TOML", at.Position.Line)
		}
		if err != nil {
			return nil, errors.New("no TOML")
		}
		return root, nil
	}
	plain, err := hujson.Standardize(slices.Clone(text)) // Standardize changes its argument
	if err == nil {
		err = json.Unmarshal(plain, &root)
	}
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &kind):
		return nil, errors.New("not an object; want JSON, with comments or without")
	case err != nil: // the parser's message could quote the file
		return nil, fmt.Errorf("a mistake in line %d; want JSON, with comments or without", lineOf(text))
	}
	return root, nil
}

// lineOf returns the first line that is not valid JSON.
func lineOf(text []byte) int {
	_, err := hujson.Parse(text)
	if err == nil {
		return 1
	}
	_, rest, _ := strings.Cut(err.Error(), "line ")
	digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	n, _ := strconv.Atoi(digits) // 0 if the message has no line
	return max(n, 1)
}

func toObject(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func toLists(v any) []any {
	switch l := v.(type) {
	case []any: // from TOML
		return l
	case []map[string]any: // of TOML
		out := make([]any, len(l))
		for i := range l {
			out[i] = l[i]
		}
		return out
	}
	return nil
}

// toText returns a value as text. Files also write numbers and booleans in an environment without quotes.
func toText(v any) string {
	switch x := v.(type) {
	case string:
		return x
	case bool:
		return strconv.FormatBool(x)
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64)
	case int64:
		return strconv.FormatInt(x, 10)
	}
	return ""
}

func toTexts(v any) []string {
	return convert.Each(toLists(v), toText)
}

func toTextMap(list ...any) map[string]string {
	out := map[string]string{}
	for _, v := range list {
		for key, value := range toObject(v) {
			out[key] = toText(value)
		}
	}
	return out
}

func toNumber(v any) float64 {
	n, _ := strconv.ParseFloat(toText(v), 64)
	return n
}

// firstText returns the first non-empty text.
func firstText(list ...any) string {
	for _, v := range list {
		if s := toText(v); s != "" {
			return s
		}
	}
	return ""
}

// parseEntry parses one entry, with the field names of all supported programs. inMilliseconds means that its timeout is
// in milliseconds, and for connecting.
func parseEntry(name string, m map[string]any, inMilliseconds bool) Server {
	if start := toObject(m["command"]); start != nil { // Zed, before 2025: {"command": {"path": …, "args": […]}}
		m = maps.Clone(m)
		m["command"], m["args"], m["env"] = start["path"], start["args"], start["env"]
	}
	s := Server{
		Name: name, URL: firstText(m["url"], m["serverUrl"], m["httpUrl"]),
		Env: toTextMap(m["env"], m["environment"]), Headers: toTextMap(m["headers"], m["http_headers"]),
	}
	// Codex names variables of the environment.
	for header, variable := range toTextMap(m["env_http_headers"]) {
		s.Headers[header] = "${" + variable + "}"
	}
	if variable := toText(m["bearer_token_env_var"]); variable != "" {
		s.Headers["Authorization"] = "Bearer ${" + variable + "}"
	}
	for _, variable := range toTexts(m["env_vars"]) {
		s.Env[variable] = "${" + variable + "}"
	}
	if word := toText(m["command"]); word != "" {
		s.Command = []string{word}
		if _, isList := m["args"].([]any); !isList && len(strings.Fields(word)) > 1 {
			s.Command = strings.Fields(word) // a whole command line in one text
		}
	}
	s.Command = append(append(s.Command, toTexts(m["command"])...), toTexts(m["args"])...)
	switch firstText(m["type"], m["transport"]) {
	case "sse":
		s.Transport = "sse"
	case "http", "streamable-http", "streamable_http", "streamableHttp":
		s.Transport = "http"
	}
	s.Off = toText(m["enabled"]) == "false" || toText(m["disabled"]) == "true" || toText(m["active"]) == "false"
	s.parseTools(m)
	const milliseconds = 1000
	s.Timeout = toNumber(firstText(m["timeout_secs"], m["tool_timeout_sec"]))
	s.Connect = toNumber(m["startup_timeout_sec"])
	// Cline and Roo Code have the time limit of a call, at most an hour in seconds. Others use milliseconds.
	const hour = 3600
	switch n := toNumber(m["timeout"]); {
	case n > hour || inMilliseconds:
		s.Connect = n / milliseconds
	case n > 0:
		s.Timeout = n
	}
	if m["envFile"] != nil {
		s.addNote("it has an envFile: type what is in there as credentials, or put constants into mcp.env")
	}
	if m["cwd"] != nil {
		s.addNote("it has a cwd: here a server starts in a private home and sees no folder of yours")
	}
	if m["oauth"] != nil || m["auth"] != nil || m["authorization"] != nil {
		s.addNote("it logs in with OAuth: CodeForge does not take over the login of the other program")
	}
	return s
}

func (s *Server) addNote(text string) { s.Notes = append(s.Notes, text) }

// parseTools parses the allowed and denied tools.
func (s *Server) parseTools(m map[string]any) {
	each := toObject(m["tools"])
	for _, tool := range slices.Sorted(maps.Keys(each)) {
		on := each[tool]
		if o := toObject(on); o != nil {
			on = o["enabled"]
		}
		if toText(on) == "false" {
			s.Deny = append(s.Deny, tool)
		}
	}
	s.Allow = slices.Concat(toTexts(m["includeTools"]), toTexts(m["allowedTools"]), toTexts(m["enabled_tools"]))
	if list := toTexts(m["tools"]); len(list) > 0 && !slices.Contains(list, "*") {
		s.Allow = append(s.Allow, list...)
	}
	s.Deny = slices.Concat(s.Deny, toTexts(m["excludeTools"]), toTexts(m["disabledTools"]), toTexts(m["disabled_tools"]))
}

// applyGroups lets each server of a strict group in forge.toml exclude the servers of all other groups.
func applyGroups(all []Server, groups map[string]any) []Server {
	members := map[string]string{}
	for _, g := range slices.Sorted(maps.Keys(groups)) {
		for _, name := range toTexts(toObject(groups[g])["servers"]) {
			members[name] = g
		}
	}
	for i := range all {
		own := members[all[i].Name]
		if toText(toObject(groups[own])["isolation"]) != "strict" {
			continue
		}
		for _, other := range slices.Sorted(maps.Keys(members)) {
			if members[other] != own {
				all[i].ExclusiveWith = append(all[i].ExclusiveWith, other)
			}
		}
	}
	return all
}

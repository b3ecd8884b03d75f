// Package clients is how MCP clients are connected to CodeForge: what to put into which of their files. A file that
// exists keeps everything else that is in it, byte by byte.
package clients

import (
	"encoding/json"
	"path/filepath"
	"strings"

	"github.com/codeforge-mcp/codeforge/cli/internal/jsonfile"
)

// TokenSetting is the setting, and the variable of the client's environment, that holds the bearer token. The token
// itself is never printed nor written.
const TokenSetting = "MCP_AUTH_TOKEN" //nolint:gosec // the name of a setting

// name is how clients list CodeForge.
const name = "codeforge"

// Access is how CodeForge is reached.
type Access struct {
	// URL is the MCP endpoint. Token says that it requires a bearer token.
	URL   string
	Token bool
	// Tenant is the name of the tenant whose token it is; empty: it is MCP_AUTH_TOKEN.
	Tenant string
	// Command is a program that speaks MCP on standard input and output, and needs no token; empty: there is none.
	Command []string
}

// System is what decides where files are.
type System struct {
	OS string // GOOS
	// Home is the user's directory, Work the working directory, AppData that of Windows.
	Home, Work, AppData string
}

// Client is one MCP client.
type Client struct {
	// Name is what the user types, Title how the client is called.
	Name, Title string
	// Note is what else the user has to know, or empty.
	Note string
	// file is the path of its configuration, as elements below a folder of the system.
	file func(System) string
	// key is the object in the file that lists servers.
	key string
	// reference is how the file names a variable, with NAME for its name. Empty: it cannot.
	reference string
	// remote is the entry of an HTTP server; nil: the client only starts programs.
	remote func(url string, headers map[string]string) any
	// inputs, if not nil, is a list that has to be in the file when there is a token.
	inputs any
}

type (
	program struct {
		Command string   `json:"command"`
		Args    []string `json:"args,omitempty"`
	}
	httpEntry struct {
		Type      string            `json:"type,omitempty"`
		URL       string            `json:"url,omitempty"`
		ServerURL string            `json:"serverUrl,omitempty"`
		HTTPURL   string            `json:"httpUrl,omitempty"`
		Headers   map[string]string `json:"headers,omitempty"`
	}
	input struct {
		Type        string `json:"type"`
		ID          string `json:"id"`
		Description string `json:"description"`
		Password    bool   `json:"password"`
	}
)

// All lists the clients.
func All() []Client {
	home := func(elem ...string) func(System) string {
		return func(s System) string { return filepath.Join(append([]string{s.Home}, elem...)...) }
	}
	work := func(elem ...string) func(System) string {
		return func(s System) string { return filepath.Join(append([]string{s.Work}, elem...)...) }
	}
	return []Client{
		{
			Name: "claude", Title: "Claude Code", file: work(".mcp.json"), key: "mcpServers", reference: "${NAME}",
			Note: "This is for the project in this folder, and Claude Code asks you to approve it first. For every project: " +
				"claude mcp add --scope user, with the line that codeforge connect prints.",
			remote: func(url string, h map[string]string) any { return httpEntry{Type: "http", URL: url, Headers: h} },
		},
		{
			Name: "claude-desktop", Title: "Claude Desktop", file: desktopFile, key: "mcpServers",
			Note: "Restart Claude Desktop.",
		},
		{
			Name: "cursor", Title: "Cursor", file: home(".cursor", "mcp.json"), key: "mcpServers", reference: "${env:NAME}",
			remote: func(url string, h map[string]string) any { return httpEntry{URL: url, Headers: h} },
		},
		{
			Name: "vscode", Title: "VS Code", file: work(".vscode", "mcp.json"), key: "servers",
			reference: "${input:" + inputID + "}",
			Note:      "This is for the workspace in this folder.",
			remote:    func(url string, h map[string]string) any { return httpEntry{Type: "http", URL: url, Headers: h} },
			inputs:    []input{{"promptString", inputID, TokenSetting + " of CodeForge", true}},
		},
		{
			Name: "windsurf", Title: "Windsurf", file: home(".codeium", "windsurf", "mcp_config.json"), key: "mcpServers",
			reference: "${env:NAME}",
			remote:    func(url string, h map[string]string) any { return httpEntry{ServerURL: url, Headers: h} },
		},
		{
			Name: "gemini", Title: "Gemini CLI", file: home(".gemini", "settings.json"), key: "mcpServers", reference: "${NAME}",
			remote: func(url string, h map[string]string) any { return httpEntry{HTTPURL: url, Headers: h} },
		},
	}
}

// inputID is the name under which VS Code remembers the token.
const inputID = "codeforge-token"

// desktopFile is where Claude Desktop keeps its configuration.
func desktopFile(s System) string {
	const file = "claude_desktop_config.json"
	switch s.OS {
	case "darwin":
		return filepath.Join(s.Home, "Library", "Application Support", "Claude", file)
	case "windows":
		return filepath.Join(s.AppData, "Claude", file)
	}
	return filepath.Join(s.Home, ".config", "Claude", file)
}

// File is the path of the client's configuration.
func (c Client) File(s System) string { return c.file(s) }

// Names are the names of all clients.
func Names() []string {
	var out []string
	for _, c := range All() {
		out = append(out, c.Name)
	}
	return out
}

// Find is the client with a name.
func Find(name string) (Client, bool) {
	for _, c := range All() {
		if c.Name == name {
			return c, true
		}
	}
	return Client{}, false
}

// headers are what a client sends.
func headers(token bool, reference string) map[string]string {
	if !token {
		return nil
	}
	return map[string]string{"Authorization": "Bearer " + reference}
}

// Placeholder marks, in what is printed, where the user's own token goes.
const Placeholder = "<" + TokenSetting + ">"

// Placeholder is that for the tenant.
func (a Access) Placeholder() string {
	if a.Tenant != "" {
		return "<token of " + a.Tenant + ">"
	}
	return Placeholder
}

// entry is the client's entry, with a reference in place of the token. A client that cannot use the endpoint, or has no
// way to name the token, gets the program; without one, the bridge of npm.
func (c Client) entry(a Access, reference string, preferProgram bool) any {
	useProgram := c.remote == nil || a.Token && reference == "" || preferProgram
	switch {
	case useProgram && len(a.Command) > 0:
		return program{a.Command[0], a.Command[1:]}
	case c.remote == nil:
		args := []string{"-y", "mcp-remote", a.URL}
		if a.Token {
			args = append(args, "--header", "Authorization: Bearer "+a.Placeholder())
		}
		return program{"npx", args}
	}
	return c.remote(a.URL, headers(a.Token, reference))
}

// Line is the whole configuration on one line, to be copied, with a placeholder for the token.
func (c Client) Line(a Access) string {
	if c.remote == nil {
		a.Command = nil // it is printed on a line of its own
	}
	return jsonfile.Compact(map[string]map[string]any{c.key: {name: c.entry(a, a.Placeholder(), false)}})
}

// ClaudeCode is the command that adds the server to Claude Code.
func ClaudeCode(a Access) string {
	line := "claude mcp add --transport http " + name + " " + a.URL
	if a.Token {
		line += ` --header "Authorization: Bearer ` + a.Placeholder() + `"`
	}
	return line
}

// Merge is the text of the client's file with CodeForge in it. Where a token is required, the client starts the
// program, which needs none, unless there is no program or preferHTTP is set: then the file names the variable.
func (c Client) Merge(text []byte, a Access, preferHTTP bool) ([]byte, error) {
	reference := strings.ReplaceAll(c.reference, "NAME", TokenSetting)
	e := c.entry(a, reference, a.Token && !preferHTTP)
	out, err := jsonfile.Set(text, e, c.key, name)
	if _, remote := e.(httpEntry); err != nil || !remote || !a.Token || c.inputs == nil {
		return out, err
	}
	var have struct {
		Inputs []input `json:"inputs"`
	}
	_ = json.Unmarshal(out, &have) // another shape is the user's, who keeps it
	if len(have.Inputs) > 0 {
		for _, i := range have.Inputs {
			if i.ID == inputID {
				return out, nil
			}
		}
		return jsonfile.Append(out, "inputs", c.inputs)
	}
	return jsonfile.Set(out, c.inputs, "inputs")
}

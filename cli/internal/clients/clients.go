// Package clients describes how MCP clients connect to CodeForge: the entries and the files they belong in. It keeps
// everything else in an existing file, byte by byte.
package clients

import (
	"encoding/json"
	"path/filepath"
	"strings"

	"github.com/codeforge-mcp/codeforge/cli/internal/jsonfile"
	"github.com/codeforge-mcp/codeforge/internal/convert"
)

// TokenSetting is the setting, and the variable of the client's environment, that holds the bearer token. The token is
// never printed or written.
const TokenSetting = "MCP_AUTH_TOKEN" //nolint:gosec // the name of a setting

// name is CodeForge's name in the clients' lists.
const name = "codeforge"

// Access is the address of CodeForge.
type Access struct {
	// URL is the MCP endpoint. Token means that the endpoint requires a bearer token.
	URL   string
	Token bool
	// Tenant is the tenant to whom the token belongs. Empty: the token is MCP_AUTH_TOKEN.
	Tenant string
	// Command is a program that speaks MCP on standard input and output without a token, or empty.
	Command []string
	// Env has the variables that Command needs. A client that starts from a desktop lacks those of the user's shell.
	Env map[string]string
}

// System determines the paths of files.
type System struct {
	OS string // GOOS
	// Home is the user's directory, Work the working directory, and AppData the one of Windows.
	Home, Work, AppData string
}

// Client is one MCP client.
type Client struct {
	// Name is the user's word for the client, Title the client's name in texts.
	Name, Title string
	// Note is further advice to the user, or empty.
	Note string
	// file returns the path of the client's configuration.
	file func(System) string
	// key is the object in the file that lists servers.
	key string
	// reference is the file's syntax for a variable, with NAME as its name. Empty: the file has no such syntax.
	reference string
	// remote returns the entry of an HTTP server. Nil: the client can only start programs.
	remote func(url string, headers map[string]string) any
	// program returns the entry of a program. If program is nil, the entry has command and args, as in most clients.
	program func(command []string) any
	// inputs, if not nil, is a list that the file needs if there is a token.
	inputs any
}

type (
	programEntry struct {
		Command string            `json:"command"`
		Args    []string          `json:"args,omitempty"`
		Env     map[string]string `json:"env,omitempty"`
	}
	// localEntry is opencode's entry of a program.
	localEntry struct {
		Type    string   `json:"type"`
		Command []string `json:"command"`
	}
	httpEntry struct {
		Type      string            `json:"type,omitempty"`
		URL       string            `json:"url,omitempty"`
		ServerURL string            `json:"serverUrl,omitempty"`
		HTTPURL   string            `json:"httpUrl,omitempty"`
		Headers   map[string]string `json:"headers,omitempty"`
	}
	promptInput struct {
		Type        string `json:"type"`
		ID          string `json:"id"`
		Description string `json:"description"`
		Password    bool   `json:"password"`
	}
)

// ListClients lists the clients.
func ListClients() []Client {
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
			inputs:    []promptInput{{"promptString", inputID, TokenSetting + " of CodeForge", true}},
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
		{
			Name: codexName, Title: "Codex", file: home(".codex", "config.toml"), key: "mcp_servers", reference: TokenSetting,
			remote: func(url string, h map[string]string) any { return httpEntry{URL: url, Headers: h} },
		},
		{
			Name: "opencode", Title: "opencode", file: home(".config", "opencode", "opencode.json"), key: "mcp",
			reference: "{env:NAME}",
			remote:    func(url string, h map[string]string) any { return httpEntry{Type: "remote", URL: url, Headers: h} },
			program:   func(command []string) any { return localEntry{"local", command} },
		},
		{
			Name: "cline", Title: "Cline", file: home(".cline", "data", "settings", "cline_mcp_settings.json"),
			key:  "mcpServers",
			Note: "This is for Cline's command line. The extension has a file elsewhere: name it with --file.",
			remote: func(url string, h map[string]string) any {
				return httpEntry{Type: "streamableHttp", URL: url, Headers: h}
			},
		},
		{
			Name: "continue", Title: "Continue", file: home(".continue", "mcpServers", "codeforge.json"), key: "mcpServers",
			Note:   "This is for the extension. The command line cn reads ~/.continue/config.yaml only.",
			remote: func(url string, h map[string]string) any { return httpEntry{Type: "http", URL: url, Headers: h} },
		},
		{
			Name: "zed", Title: "Zed", file: zedFile, key: "context_servers",
			remote: func(url string, h map[string]string) any { return httpEntry{URL: url, Headers: h} },
		},
		{
			Name: "lmstudio", Title: "LM Studio", file: home(".lmstudio", "mcp.json"), key: "mcpServers",
			remote: func(url string, h map[string]string) any { return httpEntry{URL: url, Headers: h} },
		},
	}
}

// codexName is the name of the only client whose file is TOML.
const codexName = "codex"

// inputID is the name under which VS Code stores the token.
const inputID = "codeforge-token"

// desktopFile returns the path of Claude Desktop's configuration.
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

// zedFile returns the path of Zed's settings.
func zedFile(s System) string {
	if s.OS == "windows" {
		return filepath.Join(s.AppData, "Zed", "settings.json")
	}
	return filepath.Join(s.Home, ".config", "zed", "settings.json")
}

// ConfigPath returns the path of the client's configuration.
func (c Client) ConfigPath(s System) string { return c.file(s) }

// ListNames returns the names of all clients.
func ListNames() []string {
	return convert.Each(ListClients(), func(c Client) string { return c.Name })
}

// FindClient returns the client with a name.
func FindClient(name string) (Client, bool) {
	for _, c := range ListClients() {
		if c.Name == name {
			return c, true
		}
	}
	return Client{}, false
}

func requestHeaders(token bool, reference string) map[string]string {
	if !token {
		return nil
	}
	return map[string]string{"Authorization": "Bearer " + reference}
}

// Placeholder stands for the user's token in printed texts.
const Placeholder = "<" + TokenSetting + ">"

// Placeholder returns the placeholder for the token of the tenant or of the operator.
func (a Access) Placeholder() string {
	if a.Tenant != "" {
		return "<token of " + a.Tenant + ">"
	}
	return Placeholder
}

// newEntry returns the client's entry, with a reference instead of the token. A client that cannot use the endpoint, or
// cannot reference the token, gets the program. Without a program it gets npm's bridge, mcp-remote.
func (c Client) newEntry(a Access, reference string, preferProgram bool) any {
	useProgram := c.remote == nil || a.Token && reference == "" || preferProgram
	switch {
	case useProgram && len(a.Command) > 0 && c.program != nil:
		return c.program(a.Command)
	case useProgram && len(a.Command) > 0:
		return programEntry{a.Command[0], a.Command[1:], a.Env}
	case c.remote == nil:
		args := []string{"-y", "mcp-remote", a.URL}
		if a.Token {
			args = append(args, "--header", "Authorization: Bearer "+a.Placeholder())
		}
		return programEntry{Command: "npx", Args: args}
	}
	return c.remote(a.URL, requestHeaders(a.Token, reference))
}

// OneLineConfig returns the whole configuration on one line for copying, with a placeholder for the token.
func (c Client) OneLineConfig(a Access) string {
	if c.remote == nil {
		a.Command = nil // it is printed on a separate line
	}
	if c.Name == codexName {
		return codexCommand(a)
	}
	return jsonfile.FormatCompact(map[string]map[string]any{c.key: {name: c.newEntry(a, a.Placeholder(), false)}})
}

// ClaudeCode returns the command that adds the server to Claude Code.
func ClaudeCode(a Access) string {
	line := "claude mcp add --transport http " + name + " " + a.URL
	if a.Token {
		line += ` --header "Authorization: Bearer ` + a.Placeholder() + `"`
	}
	return line
}

// AddCodeForge returns the client's file with CodeForge added. If a token is required, the client starts the program,
// which needs no token. If there is no program, or preferHTTP is set, the file references the variable instead.
func (c Client) AddCodeForge(text []byte, a Access, preferHTTP bool) ([]byte, error) {
	reference := strings.ReplaceAll(c.reference, "NAME", TokenSetting)
	e := c.newEntry(a, reference, a.Token && !preferHTTP)
	if c.Name == codexName {
		return addCodexTable(text, e)
	}
	out, err := jsonfile.SetValue(text, e, c.key, name)
	if _, remote := e.(httpEntry); err != nil || !remote || !a.Token || c.inputs == nil {
		return out, err
	}
	var have struct {
		Inputs []promptInput `json:"inputs"`
	}
	_ = json.Unmarshal(out, &have) // any other form is the user's and stays
	if len(have.Inputs) > 0 {
		for _, i := range have.Inputs {
			if i.ID == inputID {
				return out, nil
			}
		}
		return jsonfile.AppendToList(out, "inputs", c.inputs)
	}
	return jsonfile.SetValue(out, c.inputs, "inputs")
}

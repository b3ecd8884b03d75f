package clients

import (
	"bytes"
	"errors"
	"reflect"
	"regexp"

	"github.com/BurntSushi/toml"
)

// ErrCannotEdit is the error for a config.toml of Codex that is not TOML, or has another entry with this name.
// AddCodeForge does not change such a file.
var ErrCannotEdit = errors.New("the file is not TOML, or has another [mcp_servers.codeforge]")

// codexTable is an entry of Codex's config.toml. Codex reads the token from a variable of its environment.
type codexTable struct {
	URL           string   `toml:"url,omitempty"`
	TokenVariable string   `toml:"bearer_token_env_var,omitempty"`
	Command       string   `toml:"command,omitempty"`
	Args          []string `toml:"args,omitempty"`
}

// codexFile is the part of config.toml that codeforge reads and writes.
type codexFile struct {
	Servers map[string]codexTable `toml:"mcp_servers"`
}

// inlineServers finds mcp_servers = {...}. TOML 1.0 (Inline Table) lets no [mcp_servers.NAME] follow it.
var inlineServers = regexp.MustCompile(`(?m)^\s*mcp_servers\s*=`)

// codexCommand returns the command that adds the server to Codex.
func codexCommand(a Access) string {
	line := "codex mcp add " + name + " --url " + a.URL
	if a.Token {
		line += " --bearer-token-env-var " + TokenSetting
	}
	return line
}

// addCodexTable appends an entry to a config.toml. The rest of the file keeps its comments and its order.
func addCodexTable(text []byte, entry any) ([]byte, error) {
	var have codexFile
	if err := toml.Unmarshal(text, &have); err != nil || inlineServers.Match(text) {
		return nil, ErrCannotEdit // the parser's message quotes the file, which may hold keys
	}
	table := codexTable{}
	switch e := entry.(type) {
	case programEntry:
		table.Command, table.Args = e.Command, e.Args
	case httpEntry:
		table.URL = e.URL
		if e.Headers != nil {
			table.TokenVariable = TokenSetting
		}
	}
	if old, there := have.Servers[name]; there {
		if reflect.DeepEqual(old, table) {
			return text, nil
		}
		return nil, ErrCannotEdit
	}
	var out bytes.Buffer
	if rest := bytes.TrimRight(text, "\n"); len(rest) > 0 {
		out.Write(rest)
		out.WriteString("\n\n")
	}
	out.WriteString("[mcp_servers." + name + "]\n")
	if err := toml.NewEncoder(&out).Encode(table); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

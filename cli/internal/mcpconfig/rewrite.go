package mcpconfig

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// ErrNotClient is the error for a file that belongs to no client.
var ErrNotClient = errors.New("forge.toml is Forgemax's: remove Forgemax from your clients, and the file with its keys")

// ErrTOML is the error for Codex's file. A parser of TOML would lose its comments.
var ErrTOML = errors.New("only JSON can be rewritten: import without --clients, then remove the servers from the " +
	"file, and run codeforge connect codex")

// KeepOnlyCodeForge returns a client's file with CodeForge as its only server. Everything else stays, including
// comments. url is CodeForge's endpoint. If program is not empty, the client starts it instead.
func KeepOnlyCodeForge(name string, text []byte, url string, program []string) ([]byte, error) {
	root, err := decodeFile(name, text)
	switch {
	case err != nil:
		return nil, err
	case root["mcp_servers"] != nil:
		return nil, ErrTOML
	case strings.HasSuffix(strings.ToLower(name), ".toml"):
		return nil, ErrNotClient
	}
	type patch struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	var patches []patch
	put := func(path string, entry any) {
		value := map[string]any{}
		if entry != nil {
			value["codeforge"] = entry
		}
		patches = append(patches, patch{"replace", path, value})
	}
	// Claude Code keeps further servers for each project in ~/.claude.json.
	for _, project := range slices.Sorted(maps.Keys(toObject(root["projects"]))) {
		if about := toObject(toObject(root["projects"])[project]); len(toObject(about["mcpServers"])) > 0 {
			put("/projects/"+escapePointer(project)+"/mcpServers", nil)
		}
	}
	typed := map[string]any{"type": "http", "url": url}
	started := map[string]any(nil)
	if len(program) > 0 {
		started = map[string]any{"command": program[0], "args": program[1:]}
		typed = started
	}
	mcp := toObject(root["mcp"])
	switch {
	case root["mcpServers"] != nil:
		put("/mcpServers", typed)
	case root["servers"] != nil:
		put("/servers", typed)
	case root["context_servers"] != nil:
		entry := map[string]any{"url": url}
		if started != nil {
			entry = started
		}
		put("/context_servers", entry)
	case mcp["servers"] != nil:
		put("/mcp/servers", typed)
	case mcp != nil:
		entry := map[string]any{"type": "remote", "url": url, "enabled": true}
		if started != nil {
			entry = map[string]any{"type": "local", "command": program, "enabled": true}
		}
		put("/mcp", entry)
	}
	tree, err := hujson.Parse(text)
	if err != nil {
		return nil, err
	}
	line, _ := json.Marshal(patches) // texts
	if err := tree.Patch(line); err != nil {
		return nil, errors.New("the file could not be changed")
	}
	out := tree.Pack()
	if json.Valid(text) { // no comments, so it may be reformatted
		tree.Format()
		out = tree.Pack()
	}
	return out, nil
}

// escapePointer returns a key in the form of a JSON pointer (RFC 6901).
func escapePointer(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }

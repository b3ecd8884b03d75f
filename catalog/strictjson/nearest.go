package strictjson

import (
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/typo"
)

// NearestName returns the known name that a misspelt name most likely means, or "".
func NearestName(name string, known []string) string {
	folded := foldName(name)
	// Before the distance: an alias may be far from its field.
	for from, to := range fieldAliases() {
		if folded == from && slices.Contains(known, to) {
			return to
		}
	}
	var names typo.NameIndex
	for _, k := range known {
		names.AddName(foldName(k))
	}
	const slips, short = 2, 2
	if i := names.NearestIndex(folded, slips); i >= 0 && len(known[i]) > short {
		return known[i]
	}
	return ""
}

func foldName(s string) string {
	const longest = 64
	if len(s) > longest {
		s = s[:longest]
	}
	return strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(s))
}

// fieldAliases maps folded names that people often write to the right field.
func fieldAliases() map[string]string {
	return map[string]string{
		"hosts": "domains", "host": "domains", "hostnames": "domains",
		"urls": "domains", "url": "domains", "baseurl": "domains",
		"tokens": "credentials", "secrets": "credentials", "keys": "credentials", "apikey": "credentials",
		"docs": "reference", "documentation": "reference", "enabled": "active", "disabled": "active",
		"methods": "allowed_methods", "blockedmethods": "restricted_methods", "deniedmethods": "restricted_methods",
		"ca": "ca_file", "cafile": "ca_file", "private": "allow_private", "http": "allow_http", "insecure": "allow_http",
		"gzip": "compress", "compression": "compress", "allowcompression": "compress",
		"server": "mcp", "mcpserver": "mcp", "npm": "package", "module": "package", "cmd": "command", "arguments": "args",
		"variables": "env", "header": "headers", "type": "transport", "protocolversion": "protocol",
		"toolfilter": "tools", "calltimeout": "timeout", "idletimeout": "idle", "concurrency": "max_concurrent",
		"surfaces": "in", "where": "in", "path": "file", "secret": "value", "token": "value", "environment": "env",
	}
}

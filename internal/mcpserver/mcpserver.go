// Package mcpserver describes an MCP server that code may call: its settings, its state, and the names of its tools.
package mcpserver

import (
	"slices"
	"strings"
)

// Settings is the "mcp" of a config.json: how CodeForge starts or reaches an MCP server, and which of its tools may be
// used. Exactly one of URL, Package and Command is set. Env and Headers contain constants and token names.
type Settings struct {
	URL     string `json:"url,omitempty"`
	Package string `json:"package,omitempty"` // npm:NAME@VERSION or pypi:NAME@VERSION, and optionally /PROGRAM
	// Registry is the package registry of Package. If it is empty, PACKAGE_REGISTRY applies. A package of PyPI needs it.
	// RegistryHosts are further hosts from which the registry serves files.
	Registry      string   `json:"registry,omitempty"`
	RegistryHosts []string `json:"registry_hosts,omitempty"`
	// Constraints limit the versions of the dependencies of a package of PyPI, e.g. "mcp<2".
	Constraints []string `json:"constraints,omitempty"`
	Command     []string `json:"command,omitempty"`
	// Args are arguments for a package. Permissions are further permissions of its interpreter: "run".
	Args        []string          `json:"args,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"` // of requests to URL
	Permissions []string          `json:"permissions,omitempty"`
	// Folders are the names of the host folders that Package or Command sees.
	Folders []string `json:"folders,omitempty"`
	// Transport is the transport of URL: "auto", "http" or "sse". Protocol is a revision to use without negotiation, or
	// empty.
	Transport string `json:"transport,omitempty"`
	Protocol  string `json:"protocol,omitempty"`
	// Allow and Deny are globs over names of tools. An empty Allow allows all tools.
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
	// Times in milliseconds: of a call, of connecting, and of inactivity before CodeForge stops the server.
	TimeoutMS        int64 `json:"timeout_ms"`
	ConnectTimeoutMS int64 `json:"connect_timeout_ms"`
	IdleMS           int64 `json:"idle_ms"`
	// State says which calls share a process: "shared", "session" or "run".
	State         string   `json:"state"`
	MaxConcurrent int      `json:"max_concurrent"`
	ExclusiveWith []string `json:"exclusive_with,omitempty"`
	// Retry allows CodeForge to repeat calls of tools that claim to be read-only or idempotent.
	Retry bool `json:"retry,omitempty"`
	// Pins is "off" if tools may change without the user's consent.
	Pins string `json:"pins,omitempty"`
}

// PackageToInstall returns a server's package in the form of sandboxapi.ServerHead, without the program of
// NAME@VERSION/PROGRAM, or "". One installation serves all programs of a package.
func (s *Settings) PackageToInstall() string {
	if s.Package == "" {
		return ""
	}
	name, version, _ := CutPackage(s.Package)
	constraints := slices.Compact(slices.Sorted(slices.Values(s.Constraints)))
	return strings.Join(append([]string{name + "@" + version}, constraints...), " ")
}

// CutPackage splits NAME@VERSION/PROGRAM.
func CutPackage(pkg string) (name, version, program string) {
	at := strings.LastIndex(pkg, "@")
	version, program, _ = strings.Cut(pkg[at+1:], "/")
	return pkg[:at], version, program
}

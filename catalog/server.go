package catalog

import (
	"slices"

	"github.com/codeforge-mcp/codeforge/internal/mcpserver"
)

// serverTexts returns all strings of a server's settings. mcp-server sees them, and perhaps the model. Nil has
// none.
func serverTexts(s *mcpserver.Settings) []string {
	if s == nil {
		return nil
	}
	out := slices.Concat([]string{s.URL, s.Package, s.Registry, s.Protocol}, s.RegistryHosts, s.Constraints,
		s.Command, s.Args, s.Allow, s.Deny, s.ExclusiveWith, s.Permissions, s.Folders)
	for _, m := range []map[string]string{s.Env, s.Headers} {
		for key, value := range m {
			out = append(out, key, value)
		}
	}
	return out
}

// The bounds of a server's settings.
const (
	serverConcurrent    = 8 // the default
	maxServerConcurrent = 64
	maxServerList       = 100
	maxServerText       = 4096 // bytes of one argument, variable or header
)

func newServer() *mcpserver.Settings {
	return &mcpserver.Settings{
		TimeoutMS: 60_000, ConnectTimeoutMS: 30_000, IdleMS: 600_000, MaxConcurrent: serverConcurrent,
		Transport: serverTransports()[0], State: serverStates()[0],
	}
}

// serverTransports, serverStates and serverPins are the allowed words of a server's settings. The first word is the
// default.
func serverTransports() []string { return []string{"auto", "http", "sse"} }

func serverStates() []string { return []string{"shared", "session", "run"} }

func serverPins() []string { return []string{"on", "off"} }

// serverFields are the fields of "mcp", in the order of the documentation.
func serverFields() fieldSpecs[mcpserver.Settings] {
	type settings = mcpserver.Settings
	return fieldSpecs[settings]{
		stringField("url", func(s *settings) *string { return &s.URL }),
		stringField("package", func(s *settings) *string { return &s.Package }),
		stringField("registry", func(s *settings) *string { return &s.Registry }),
		listField("registry_hosts", `["files.example.com"]`, func(s *settings) *[]string { return &s.RegistryHosts }),
		listField("constraints", `["mcp<2"]`, func(s *settings) *[]string { return &s.Constraints }),
		listField("command", `["github-mcp-server", "stdio"]`, func(s *settings) *[]string { return &s.Command }),
		listField("args", `["--read-only"]`, func(s *settings) *[]string { return &s.Args }),
		{"env", func(d *configDecoder, s *settings, f string, n *node) {
			s.Env = d.readTexts(f, n, `{"API_TOKEN": "EXAMPLE_TOKEN"}`)
		}},
		{"headers", func(d *configDecoder, s *settings, f string, n *node) {
			s.Headers = d.readTexts(f, n, `{"Authorization": "Bearer EXAMPLE_TOKEN"}`)
		}},
		stringField("transport", func(s *settings) *string { return &s.Transport }),
		stringField("protocol", func(s *settings) *string { return &s.Protocol }),
		{"tools", func(d *configDecoder, s *settings, f string, n *node) { d.readTools(f, s, n) }},
		{"timeout", func(d *configDecoder, s *settings, f string, n *node) { d.milliseconds(f, n, &s.TimeoutMS) }},
		{"connect_timeout", func(d *configDecoder, s *settings, f string, n *node) {
			d.milliseconds(f, n, &s.ConnectTimeoutMS)
		}},
		{"idle", func(d *configDecoder, s *settings, f string, n *node) { d.milliseconds(f, n, &s.IdleMS) }},
		stringField("state", func(s *settings) *string { return &s.State }),
		{"max_concurrent", func(d *configDecoder, s *settings, f string, n *node) { d.ReadInt(f, n, &s.MaxConcurrent) }},
		listField("exclusive_with", `["browser"]`, func(s *settings) *[]string { return &s.ExclusiveWith }),
		listField("permissions", `["run"]`, func(s *settings) *[]string { return &s.Permissions }),
		listField("folders", `["reports"]`, func(s *settings) *[]string { return &s.Folders }),
		boolField("retry", func(s *settings) *bool { return &s.Retry }),
		stringField("pins", func(s *settings) *string { return &s.Pins }),
	}
}

func toolsFields() fieldSpecs[mcpserver.Settings] {
	return fieldSpecs[mcpserver.Settings]{
		listField("allow", `["get_*", "search"]`, func(s *mcpserver.Settings) *[]string { return &s.Allow }),
		listField("deny", `["delete_*"]`, func(s *mcpserver.Settings) *[]string { return &s.Deny }),
	}
}

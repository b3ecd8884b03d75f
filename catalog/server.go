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
	out := slices.Concat([]string{s.URL, s.Package, s.Registry, s.Protocol},
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

// newServer returns a server with the defaults.
func newServer() *mcpserver.Settings {
	return &mcpserver.Settings{
		TimeoutMS: 60_000, ConnectTimeoutMS: 30_000, IdleMS: 600_000, MaxConcurrent: serverConcurrent,
		Transport: serverTransports()[0], State: serverStates()[0],
	}
}

// serverTransports, serverStates and serverPermissions are the allowed words of a server's settings. The first word is
// the default. By default a package has no permission.
func serverTransports() []string { return []string{"auto", "http", "sse"} }

func serverStates() []string { return []string{"shared", "session", "run"} }

func serverPins() []string { return []string{"on", "off"} }

func serverPermissions() []string { return []string{"run"} }

// serverFields are the fields of "mcp", in the order of the documentation.
func serverFields() fieldSpecs[mcpserver.Settings] {
	return fieldSpecs[mcpserver.Settings]{
		{"url", "Where a remote server is. Its host is open to the server alone, unless domains names it.",
			jsonSchema{Type: "string", Pattern: "^https?://"},
			func(d *configDecoder, s *mcpserver.Settings, f string, n *node) { d.ReadString(f, n, &s.URL) }},
		{"package", "A package from npm, with an exact version: npm:NAME@VERSION.",
			jsonSchema{Type: "string", Pattern: "^npm:.+@[0-9]"},
			func(d *configDecoder, s *mcpserver.Settings, f string, n *node) { d.ReadString(f, n, &s.Package) }},
		{"registry", "The registry that a package comes from, if PACKAGE_REGISTRY does not name it.",
			jsonSchema{Type: "string", Pattern: "^https://"},
			func(d *configDecoder, s *mcpserver.Settings, f string, n *node) { d.ReadString(f, n, &s.Registry) }},
		{"command", "A program and its arguments.", listShape(1),
			func(d *configDecoder, s *mcpserver.Settings, f string, n *node) {
				s.Command = d.ReadStrings(f, n, `["github-mcp-server", "stdio"]`)
			}},
		{"args", "Arguments of a package.", listShape(0),
			func(d *configDecoder, s *mcpserver.Settings, f string, n *node) {
				s.Args = d.ReadStrings(f, n, `["--read-only"]`)
			}},
		{"env", "Environment variables: constants and token names of this API.", textsShape(envPattern),
			func(d *configDecoder, s *mcpserver.Settings, f string, n *node) {
				s.Env = d.readTexts(f, n, `{"API_TOKEN": "EXAMPLE_TOKEN"}`)
			}},
		{"headers", "Headers of every request to url: constants and token names of this API.",
			textsShape("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"),
			func(d *configDecoder, s *mcpserver.Settings, f string, n *node) {
				s.Headers = d.readTexts(f, n, `{"Authorization": "Bearer EXAMPLE_TOKEN"}`)
			}},
		{"transport", "The transport of url.", jsonSchema{Type: "string", Enum: serverTransports(), Default: "auto"},
			func(d *configDecoder, s *mcpserver.Settings, f string, n *node) { d.ReadString(f, n, &s.Transport) }},
		{"protocol", "A protocol revision to use without negotiation.", jsonSchema{Type: "string", Pattern: protocolPattern},
			func(d *configDecoder, s *mcpserver.Settings, f string, n *node) { d.ReadString(f, n, &s.Protocol) }},
		{"tools", "Which tools may be used: names, in which * stands for any characters and ? for one.",
			toolsFields().objectSchema(),
			func(d *configDecoder, s *mcpserver.Settings, f string, n *node) { d.readTools(f, s, n) }},
		{"timeout", "How long a call may take.", durationShape(60),
			func(d *configDecoder, s *mcpserver.Settings, f string, n *node) { d.milliseconds(f, n, &s.TimeoutMS) }},
		{"connect_timeout", "How long the server may take to start or to be reached, and then to list its tools.",
			durationShape(30),
			func(d *configDecoder, s *mcpserver.Settings, f string, n *node) {
				d.milliseconds(f, n, &s.ConnectTimeoutMS)
			}},
		{"idle", "After how long without a call the server is stopped.", durationShape(600),
			func(d *configDecoder, s *mcpserver.Settings, f string, n *node) { d.milliseconds(f, n, &s.IdleMS) }},
		{"state", "Which calls share a process: all, those of an MCP session, or those of a run.",
			jsonSchema{Type: "string", Enum: serverStates(), Default: "shared"},
			func(d *configDecoder, s *mcpserver.Settings, f string, n *node) { d.ReadString(f, n, &s.State) }},
		{"max_concurrent", "How many calls there may be at once.", jsonSchema{Type: "integer", Default: serverConcurrent},
			func(d *configDecoder, s *mcpserver.Settings, f string, n *node) { d.ReadInt(f, n, &s.MaxConcurrent) }},
		{"exclusive_with", "Servers that may not be used in the same run.", listShape(0),
			func(d *configDecoder, s *mcpserver.Settings, f string, n *node) {
				s.ExclusiveWith = d.ReadStrings(f, n, `["browser"]`)
			}},
		{"permissions", "Further permissions of a package: \"run\" lets it start programs.",
			jsonSchema{Type: "array", Items: &jsonSchema{Type: "string", Enum: serverPermissions()}, UniqueItems: true},
			func(d *configDecoder, s *mcpserver.Settings, f string, n *node) {
				s.Permissions = d.ReadStrings(f, n, `["run"]`)
			}},
		{"folders", "Folders of this machine, named by `codeforge folder add`, that a package or command sees in /files.",
			jsonSchema{Type: "array", Items: &jsonSchema{Type: "string"}, UniqueItems: true},
			func(d *configDecoder, s *mcpserver.Settings, f string, n *node) {
				s.Folders = d.ReadStrings(f, n, `["reports"]`)
			}},
		{"retry", "Repeats failed calls of tools that claim to be read-only or idempotent.",
			jsonSchema{Type: "boolean", Default: false},
			func(d *configDecoder, s *mcpserver.Settings, f string, n *node) { d.ReadBool(f, n, &s.Retry) }},
		{"pins", "Whether tools that are new or changed wait until the user has seen them.",
			jsonSchema{Type: "string", Enum: serverPins(), Default: "on"},
			func(d *configDecoder, s *mcpserver.Settings, f string, n *node) { d.ReadString(f, n, &s.Pins) }},
	}
}

// The checks of the validator, as far as a pattern can express them.
const (
	envPattern      = "^[A-Za-z_][A-Za-z0-9_]*$"
	protocolPattern = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
)

func listShape(least int) jsonSchema {
	return jsonSchema{Type: "array", Items: &jsonSchema{Type: "string"}, MinItems: least}
}

func textsShape(pattern string) jsonSchema {
	return jsonSchema{Type: "object", Closed: true, PatternProperties: map[string]jsonSchema{pattern: textSchema()}}
}

func durationShape(seconds int) jsonSchema {
	return jsonSchema{OneOf: []jsonSchema{{Type: "number"}, {Type: "string", Pattern: "^([0-9.]+(ms|s|m|h))+$"}},
		Default: seconds}
}

func toolsFields() fieldSpecs[mcpserver.Settings] {
	list := jsonSchema{Type: "array", Items: &jsonSchema{Type: "string"}}
	some := list
	some.MinItems = 1
	return fieldSpecs[mcpserver.Settings]{
		{"allow", "The only tools that may be used. Default: all.", some,
			func(d *configDecoder, s *mcpserver.Settings, f string, n *node) {
				s.Allow = d.ReadStrings(f, n, `["get_*", "search"]`)
			}},
		{"deny", "Tools that may not be used.", list,
			func(d *configDecoder, s *mcpserver.Settings, f string, n *node) {
				s.Deny = d.ReadStrings(f, n, `["delete_*"]`)
			}},
	}
}

func serverShape() jsonSchema {
	s := serverFields().objectSchema()
	s.OneOf = []jsonSchema{{Required: []string{"url"}}, {Required: []string{"package"}}, {Required: []string{"command"}}}
	return s
}

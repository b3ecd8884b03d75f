module github.com/codeforge-mcp/codeforge/codeforge

go 1.26.0

require github.com/codeforge-mcp/codeforge/catalog v0.0.0

replace github.com/codeforge-mcp/codeforge/catalog => ../catalog

require github.com/codeforge-mcp/codeforge/proxy v0.0.0

replace github.com/codeforge-mcp/codeforge/proxy => ../proxy

require (
	github.com/codeforge-mcp/codeforge/sandbox-image v0.0.0
	github.com/google/go-cmp v0.7.0
	github.com/modelcontextprotocol/go-sdk v1.8.0
	github.com/rogpeppe/go-internal v1.16.0
	github.com/vishvananda/netlink v1.3.1
	github.com/vishvananda/netns v0.0.5
	golang.org/x/sys v0.49.0
	golang.org/x/term v0.47.0
)

require (
	github.com/creack/pty v1.1.24 // indirect
	github.com/google/jsonschema-go v0.4.3 // indirect
	github.com/segmentio/asm v1.1.3 // indirect
	github.com/segmentio/encoding v0.5.4 // indirect
	github.com/yosida95/uritemplate/v3 v3.0.2 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/oauth2 v0.35.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	golang.org/x/time v0.16.0 // indirect
	golang.org/x/tools v0.52.0 // indirect
)

replace github.com/codeforge-mcp/codeforge/sandbox-image => ../sandbox-image

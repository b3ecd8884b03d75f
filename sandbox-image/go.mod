module github.com/codeforge-mcp/codeforge/sandbox-image

go 1.26.0

require (
	github.com/codeforge-mcp/codeforge/catalog v0.0.0
	github.com/coreos/go-iptables v0.8.0
	github.com/vishvananda/netlink v1.3.1
	github.com/vishvananda/netns v0.0.5
	golang.org/x/net v0.62.0
	golang.org/x/sys v0.49.0
)

require golang.org/x/text v0.43.0 // indirect

replace github.com/codeforge-mcp/codeforge/catalog => ../catalog

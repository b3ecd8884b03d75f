package policy

import (
	"slices"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// Kind is the kind of client that asks. KindNone may reach no host.
type Kind uint8

// The kinds of clients in a slot.
const (
	KindNone    Kind = iota
	KindRun          // code: the hosts of the run's APIs, and the tools of APIs that are MCP servers
	KindServer       // an MCP server: the hosts of the server's API
	KindInstall      // the installation of a server's package: the package registry
)

// checkKind refuses the proxy's internal hosts. For an MCP server it also refuses the hosts of other APIs, without
// naming these APIs.
func (r Rules) checkKind(run Run, h catalog.Host, holders []*catalog.API) (Verdict, bool) {
	mine := func(a *catalog.API) bool { return run.CanUse(a.Name) }
	//defence:server-hosts permits
	included := slices.ContainsFunc(holders, mine)
	switch kind := run.Kind(); {
	case catalog.IsOwnHost(h):
		return buildRefusal(CodeHostUnknown, h, ""), false
	case kind == KindRun, kind == KindServer && included:
		return Verdict{}, true
	case kind == KindServer:
		return buildRefusal(CodeHostNotServers, h, ""), false
	}
	return buildRefusal(CodeNoPolicy, h, ""), false
}

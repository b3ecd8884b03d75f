package broker

import "github.com/codeforge-mcp/codeforge/mcp-server/internal/tenant"

// maxHolds bounds the arguments and unread answers of all calls in mcp-server's memory, in bytes. Large ones get half.
// Memory holds each byte a few times.
const maxHolds = 256 << 20

// holder is whom calls of a run are counted for: its tenant, or the run itself.
func (b *Broker) holder(run string) string {
	if session, _ := b.session(run); tenant.Of(session) != "" {
		return "tenant " + tenant.Of(session)
	}
	return run
}

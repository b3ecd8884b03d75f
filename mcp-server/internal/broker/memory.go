package broker

import "github.com/codeforge-mcp/codeforge/mcp-server/internal/tenant"

// maxHolds bounds the arguments and unread answers of all calls in mcp-server's memory, in bytes. Large ones get half.
// A byte is in memory several times.
const maxHolds = 256 << 20

// holderOf returns the holder that the memory of a run's calls counts for: its tenant, or else the run.
func (b *Broker) holderOf(run string) string {
	if session, _ := b.sessionOfRun(run); tenant.TenantOf(session) != "" {
		return "tenant " + tenant.TenantOf(session)
	}
	return run
}

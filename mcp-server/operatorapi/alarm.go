package operatorapi

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// ErrNotFrozen is the error for a session that is not frozen.
var ErrNotFrozen error = &rpc.Error{
	API: PeerName, Status: http.StatusConflict, Code: "not_frozen", Text: "no such session is frozen",
}

// Alarm is an alarm of the proxy with the session of its run. Numbers only grow.
type Alarm struct {
	Number int64 `json:"number"`
	proxyapi.Alarm
	// Session is a name for the MCP session, or for the client if it has no sessions. It is empty if an MCP server sent
	// the request.
	Session string `json:"session,omitempty"`
	Client  string `json:"client,omitempty"`
	// Frozen means that the session cannot run code until it is unfrozen.
	Frozen bool `json:"frozen,omitempty"`
}

// Alarms lists the alarms, latest first.
func (c Client) Alarms(ctx context.Context) ([]Alarm, error) {
	return fetchAnswer[[]Alarm](ctx, c, http.MethodGet, "alarms", nil)
}

// FrozenSessions returns the names of the frozen sessions, each once.
func (c Client) FrozenSessions(ctx context.Context) (names []string, err error) {
	list, err := c.Alarms(ctx)
	for _, a := range list {
		if a.Frozen && !slices.Contains(names, a.Session) {
			names = append(names, a.Session)
		}
	}
	return names, err
}

// Unfreeze lets a session run code again.
func (c Client) Unfreeze(ctx context.Context, session string) error {
	return c.postEmpty(ctx, "unfreeze", url.Values{"session": {session}})
}

package console

import (
	"net/http"

	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
)

// shownClient is a hosted client, with the hosts to which it may lead a browser.
type shownClient struct {
	operatorapi.HostedClient
	Hosts []string `json:"hosts"`
}

// listClients returns the hosted clients that have logged in, the latest first.
func (c *Console) listClients(r *http.Request) (any, error) {
	out := []shownClient{}
	if c.cfg.Logins == nil {
		return out, nil
	}
	list, err := c.cfg.Logins.ListLogins(r.Context())
	for _, l := range list {
		h := l.ToHostedClient()
		out = append(out, shownClient{h, h.Hosts()})
	}
	return out, err
}

// revokeClient ends the access of a hosted client. Its tokens are invalid at once.
func (c *Console) revokeClient(r *http.Request) (any, error) {
	if c.cfg.Logins == nil {
		return nil, errNotFound
	}
	return struct{}{}, c.cfg.Logins.RevokeLogin(r.Context(), r.PathValue("id"))
}

package operatorapi

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// HostedClient is a client that logged in at this CodeForge as a tenant.
type HostedClient struct {
	// ID identifies the login. Its end needs the ID.
	ID string `json:"id"`
	// Name is the client's claim. Redirects has the address to which mcp-server redirected the browser. If the login has
	// no stored address, Redirects has all addresses of the client.
	Name      string   `json:"name"`
	Redirects []string `json:"redirects"`
	Tenant    string   `json:"tenant"`
	// Began is the time of the login, Used the time of the last token.
	Began time.Time `json:"began"`
	Used  time.Time `json:"used"`
}

// Hosts returns the hosts of Redirects, each once.
func (h HostedClient) Hosts() []string {
	var list []string
	for _, redirect := range h.Redirects {
		if u, err := url.Parse(redirect); err == nil && !slices.Contains(list, u.Host) {
			list = append(list, u.Host)
		}
	}
	return list
}

// OneTimeCode is a code with which a person signs in once, within ten minutes.
type OneTimeCode struct {
	Code string `json:"code"`
}

// HostedClients lists the clients that have logged in, the latest first.
func (c Client) HostedClients(ctx context.Context) ([]HostedClient, error) {
	return fetchAnswer[[]HostedClient](ctx, c, http.MethodGet, "clients", nil)
}

// RevokeClient ends the login of a client.
func (c Client) RevokeClient(ctx context.Context, id string) error {
	return c.postEmpty(ctx, "clients/revoke", url.Values{"id": {id}})
}

// NewOneTimeCode makes a code for signing in as a tenant, for a client that leads back to one of these hosts. The host
// localhost stands for programs on the user's device.
func (c Client) NewOneTimeCode(ctx context.Context, tenant string, hosts ...string) (OneTimeCode, error) {
	return fetchAnswer[OneTimeCode](ctx, c, http.MethodPost, "clients/code", url.Values{"tenant": {tenant}, "host": hosts})
}

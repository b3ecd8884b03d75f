// Package credentialapi is what whoever runs CodeForge may do with credentials that the proxy obtains, over HTTP on a
// unix socket of the proxy's own. mcp-server has no way to it. No answer contains a credential, a verifier or a state,
// except the state that is in the address of a login.
//
//	GET    /credentials/v1                        -> []Credential
//	POST   /credentials/v1/logins       Login     -> Started
//	POST   /credentials/v1/logins/finish Redirect -> {} when the login is done
//	POST   /credentials/v1/logins/poll  Poll      -> Progress
//	DELETE /credentials/v1/{name}                 -> {}: the login is forgotten
//	PUT    /credentials/v1/{name}       Supply    -> {}: the value of a "command"
//
// Other answers have the body rpc.Error.
//
// The socket is reachable by its owner alone: in embedded mode it is in the state directory, in Docker in a tmpfs of
// the proxy's container, where only docker exec leads.
package credentialapi

import (
	"context"
	"net/http"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/rpc"
)

// ContainerSocket is where the socket is in the proxy's container.
const ContainerSocket = "/run/codeforge/credentials/credentials.sock"

// Prefix begins every path.
const Prefix = "/credentials/v1"

const baseURL = "http://proxy" + Prefix

// State is what a credential needs or has.
type State string

// The states.
const (
	StateUnused State = "unused"       // nothing was needed yet, and nothing is stored
	StateReady  State = "ready"        // there is one, or the proxy can get one
	StateLogin  State = "login_needed" // somebody must log in
	StateFailed State = "failed"       // the last attempt failed
	StateSupply State = "not_supplied" // a feeder must supply it
)

// Credential is a credential that the proxy obtains.
type Credential struct {
	Name string `json:"name"`
	API  string `json:"api"`
	// Kind is the field of config.json, e.g. "oauth2".
	Kind  string `json:"kind"`
	State State  `json:"state"`
	// Logins: somebody has to log in, with codeforge login.
	Logins bool `json:"logins,omitempty"`
	// Device and Browser are the ways to log in that the configuration offers.
	Device  bool `json:"device,omitempty"`
	Browser bool `json:"browser,omitempty"`
	// RedirectHost and RedirectPort say where a login's redirect is expected. Port 0: any.
	RedirectHost string `json:"redirect_host,omitempty"`
	RedirectPort int    `json:"redirect_port,omitempty"`
	// ValidUntil is when the current value ends. Nil means that there is none, or it does not end.
	ValidUntil *time.Time `json:"valid_until,omitempty"`
	// LastError is the code of the last failure, if nothing succeeded since.
	LastError string `json:"last_error,omitempty"`
	// DueAt is when a feeder should supply the next output of a "command".
	DueAt *time.Time `json:"due_at,omitempty"`
}

// The ways to log in.
const (
	WayBrowser = "browser" // also where the redirect's address is pasted
	WayDevice  = "device"
)

// Login asks for one.
type Login struct {
	Name string `json:"name"`
	Way  string `json:"way"`
	// Port is where the redirect is listened for. It counts for WayBrowser.
	Port int `json:"port,omitempty"`
}

// StartedLogin is a login that waits for a person. It ends ten minutes later, or with the next login of the same
// credential.
type StartedLogin struct {
	ID string `json:"id"`
	// URL is where the person goes.
	URL string `json:"url"`
	// Code is what the person enters there (WayDevice).
	Code string `json:"code,omitempty"`
	// Interval is how long to wait between two polls, in seconds.
	Interval int `json:"interval,omitempty"`
	// Redirect is the address that the browser comes back to (WayBrowser).
	Redirect string `json:"redirect,omitempty"`
}

// Redirect is what the browser brought back.
type Redirect struct {
	ID    string `json:"id"`
	State string `json:"state"`
	Code  string `json:"code"`
	// Issuer is "iss" (RFC 9207), and Error "error".
	Issuer string `json:"issuer,omitempty"`
	Error  string `json:"error,omitempty"`
}

// LoginPoll asks whether a login by WayDevice is done.
type LoginPoll struct {
	ID string `json:"id"`
}

// LoginProgress answers it.
type LoginProgress struct {
	Done bool `json:"done"`
	// Interval is how long to wait before the next poll, in seconds.
	Interval int `json:"interval,omitempty"`
}

// SuppliedValue is a value from outside.
type SuppliedValue struct {
	Value string `json:"value"`
	// ExpiresAt is when it ends. Nil means after the TTL of config.json.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

// Peer is the proxy behind an HTTP client that connects to the socket.
type Peer struct{ *http.Client }

// Name implements rpc.Peer.
func (Peer) Name() string { return "the proxy" }

// Client asks over an HTTP client that connects to the socket.
type Client struct{ HTTP *http.Client }

// ListCredentials lists the credentials that the proxy obtains.
func (c Client) ListCredentials(ctx context.Context) ([]Credential, error) {
	return rpc.Call[[]Credential](ctx, Peer{c.HTTP}, http.MethodGet, baseURL, nil)
}

// BeginLogin begins a login.
func (c Client) BeginLogin(ctx context.Context, l Login) (StartedLogin, error) {
	return rpc.Call[StartedLogin](ctx, Peer{c.HTTP}, http.MethodPost, baseURL+"/logins", l)
}

// FinishLogin ends a login with what the browser brought back.
func (c Client) FinishLogin(ctx context.Context, r Redirect) error {
	_, err := rpc.Call[struct{}](ctx, Peer{c.HTTP}, http.MethodPost, baseURL+"/logins/finish", r)
	return err
}

// PollLogin asks whether a login is done.
func (c Client) PollLogin(ctx context.Context, id string) (LoginProgress, error) {
	return rpc.Call[LoginProgress](ctx, Peer{c.HTTP}, http.MethodPost, baseURL+"/logins/poll", LoginPoll{id})
}

// ForgetLogin forgets a login.
func (c Client) ForgetLogin(ctx context.Context, name string) error {
	_, err := rpc.Call[struct{}](ctx, Peer{c.HTTP}, http.MethodDelete, baseURL+"/"+name, nil)
	return err
}

// SupplyValue gives the value of a "command".
func (c Client) SupplyValue(ctx context.Context, name string, s SuppliedValue) error {
	_, err := rpc.Call[struct{}](ctx, Peer{c.HTTP}, http.MethodPut, baseURL+"/"+name, s)
	return err
}

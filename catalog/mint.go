package catalog

import "github.com/codeforge-mcp/codeforge/catalog/secret"

// Mint says how the proxy obtains a credential that changes: by minting it, or by asking a source for it. Exactly one
// field is set. Nothing that stands in it is a token name; all secrets in it are scrubbed from every response.
type Mint struct {
	OAuth2    *OAuth2
	GitHubApp *GitHubApp
	Google    *Google
	AWS       *AWS
	HMAC      *HMAC
	Fetch     *Fetch
	Command   *Command
}

// Grant is how an OAuth 2.0 client gets its tokens (RFC 6749).
type Grant string

// The grants. A login by authorization code or device code ends in a refresh token too.
const (
	GrantRefreshToken      Grant = "refresh_token"
	GrantClientCredentials Grant = "client_credentials"
)

// OAuth2 is "oauth2": an access token from a token endpoint.
type OAuth2 struct {
	// Provider is the preset that filled in what config.json left out. Empty: none.
	Provider string
	Grant    Grant
	// The endpoints, https only. AuthURL and DeviceURL serve logins; empty: that way is not offered.
	TokenURL, AuthURL, DeviceURL string
	ClientID                     string
	ClientSecret                 secret.Value // empty for public clients
	Scopes                       []string
	// Basic means that the client authenticates by the Authorization header, else in the body ("auth": "basic", "body").
	Basic bool
	// Params are added to the authorization request.
	Params map[string]string
	// Resource is an MCP server's URL, whose authorization server is discovered (RFC 9728, 8414, 8707). It stands in
	// place of the endpoints and the client.
	Resource string
	// RedirectPort is the port of the login's redirect address on 127.0.0.1. 0: an ephemeral one.
	RedirectPort int
}

// GitHubApp is "github_app": installation access tokens.
type GitHubApp struct {
	AppID, InstallationID string
	Key                   secret.Value // PEM, RSA
	Repositories          []string
	Permissions           map[string]string
	// BaseURL is the API's, by default https://api.github.com.
	BaseURL string
}

// Google is "google": access tokens of a service account.
type Google struct {
	Key     secret.Value // the service account's JSON file
	Scopes  []string
	Subject string // whom it acts for (domain-wide delegation). Empty: itself
}

// AWS is "aws": requests are signed with Signature Version 4.
type AWS struct {
	AccessKeyID     string
	SecretAccessKey secret.Value
	SessionToken    secret.Value
	// RoleARN is assumed through STS before signing. Empty: none.
	RoleARN  string
	Region   string
	Services []string
}

// HMAC is "hmac": headers that hold a signature over parts of the request.
type HMAC struct {
	Key     secret.Value
	Hash    string            // sha256, sha512, sha1
	Message string            // with {timestamp}, {method}, {path}, {query}, {body}, {nonce}
	Headers map[string]string // by header name, with {signature:hex}, {signature:base64}, {timestamp}, {nonce}
}

// Fetch is "fetch": one HTTPS request, with other credentials swapped in, whose JSON answer holds the credential.
type Fetch struct {
	URL     string
	Headers map[string]string // values may be token names of internal APIs
	Pointer string            // a JSON pointer (RFC 6901) into the answer. Empty: the whole body
	TTL     Seconds
}

// Command is "command": a program that a feeder outside the proxy runs, whose output is the credential.
type Command struct {
	Args []string
	TTL  Seconds
}

// Seconds is a duration in whole seconds.
type Seconds int

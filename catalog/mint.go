package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/secret"
)

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
	File      *File
}

// Kind is the field of config.json that says how the credential is obtained, e.g. "oauth2".
func (m *Mint) Kind() string {
	switch {
	case m == nil:
		return ""
	case m.OAuth2 != nil:
		return kindOAuth2
	case m.GitHubApp != nil:
		return kindGitHubApp
	case m.Google != nil:
		return kindGoogle
	case m.AWS != nil:
		return kindAWS
	case m.HMAC != nil:
		return kindHMAC
	case m.Fetch != nil:
		return kindFetch
	case m.Command != nil:
		return kindCommand
	case m.File != nil:
		return kindFile
	}
	return ""
}

// Signs reports whether the credential is not a text that is put in place of its name, but a key with which whole
// requests are signed.
func (m *Mint) Signs() bool { return m != nil && (m.AWS != nil || m.HMAC != nil) }

// Logins reports whether a person has to log in once.
func (m *Mint) Logins() bool {
	return m != nil && m.OAuth2 != nil && m.OAuth2.Grant == GrantRefreshToken
}

// Server is the host that the credential is obtained from, with its port if that is not 443. Empty: no fixed one.
func (m *Mint) Server() string {
	var address string
	switch {
	case m == nil:
	case m.OAuth2 != nil && m.OAuth2.Resource != "":
		address = m.OAuth2.Resource
	case m.OAuth2 != nil:
		address = m.OAuth2.TokenURL
	case m.GitHubApp != nil:
		address = m.GitHubApp.BaseURL
	case m.Google != nil:
		address = m.Google.TokenURL
	case m.Fetch != nil:
		address = m.Fetch.URL
	}
	host, err := serverHost(address)
	if address == "" || err != nil {
		return ""
	}
	return host.String()
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
	// ScopeSeparator joins Scopes: a space, or what the provider wants in its place. Never empty.
	ScopeSeparator string
	// Basic means that the client authenticates by the Authorization header, else in the body ("auth": "basic", "body").
	Basic bool
	// Params are added to the authorization request, or, for GrantClientCredentials, to the token request.
	Params map[string]string
	// Resource is an MCP server's URL, whose authorization server is discovered (RFC 9728, 8414, 8707). It stands in
	// place of the endpoints; ClientID may be empty then, and is registered.
	Resource string
	// RedirectHost is the host of the login's redirect address: "127.0.0.1", or "localhost" for providers that want the
	// name.
	RedirectHost string
	// RedirectPort is its port. 0: an ephemeral one.
	RedirectPort int
}

// RedirectPath is the path of every login's redirect address.
const RedirectPath = "/callback"

// RedirectURI is the login's redirect address, for a listener at port.
func (o *OAuth2) RedirectURI(port int) string {
	return "http://" + o.RedirectHost + ":" + strconv.Itoa(port) + RedirectPath
}

// GitHubApp is "github_app": installation access tokens.
type GitHubApp struct {
	AppID, InstallationID string
	Key                   secret.Value // PEM, RSA
	Repositories          []string
	Permissions           map[string]string
	// BaseURL is the API's, without a slash at its end.
	BaseURL string
}

// Google is "google": access tokens of a service account.
type Google struct {
	Key secret.Value // the service account's JSON file
	// What the file says.
	Email, KeyID, TokenURL string
	PrivateKey             secret.Value // PEM, RSA
	Scopes                 []string
	Subject                string // whom it acts for (domain-wide delegation). Empty: itself
}

// AWS is "aws": requests are signed with Signature Version 4.
type AWS struct {
	AccessKeyID     string
	SecretAccessKey secret.Value
	SessionToken    secret.Value
	// RoleARN is assumed through STS before signing. Empty: none.
	RoleARN    string
	ExternalID string // for RoleARN. Empty: none
	Region     string
	// Services are the only ones that requests are signed for. Empty: whatever the API's hosts are.
	Services []string
}

// HMAC is "hmac": headers that hold a signature over parts of the request.
type HMAC struct {
	Key secret.Value
	// KeyEncoding is how the key is written: "text", "base64" or "hex".
	KeyEncoding string
	Hash        string            // sha256, sha512, sha1
	Message     string            // with the placeholders of SignatureParts
	Headers     map[string]string // by header name, with {signature:hex}, {signature:base64}, {timestamp}, {nonce}
}

// Fetch is "fetch": one HTTPS request, with other credentials swapped in, whose answer holds the credential.
type Fetch struct {
	URL, Method string
	Headers     map[string]string // values may hold token names of APIs that have the URL's host
	Body        string            // empty: none
	Pointer     string            // a JSON pointer (RFC 6901) into the answer. Empty: the whole body
	Base64      bool              // what Pointer finds is base64
	TTL         Seconds
	// Uses are the token names in Headers.
	Uses []string
}

// Command is "command": a program that a feeder outside the proxy runs, whose output is the credential.
type Command struct {
	Args []string
	TTL  Seconds
}

// File is "file" with "ttl": a file that is read again and again, because something else rewrites it.
type File struct {
	// Path is absolute, or relative to API's folder. See Read.
	Path, API string
	Pointer   string // as Fetch.Pointer
	TTL       Seconds
}

// ClientCert is the certificate by which the proxy authenticates at the hosts of an API ("client_cert").
type ClientCert struct {
	Cert []byte       // PEM, with intermediates
	Key  secret.Value // PEM
}

// Equal reports whether both are the same certificate and key, or none.
func (c *ClientCert) Equal(o *ClientCert) bool {
	return c == o || c != nil && o != nil && string(c.Cert) == string(o.Cert) && c.Key.Equal(o.Key)
}

// Seconds is a duration in whole seconds.
type Seconds int

// Duration is the duration.
func (s Seconds) Duration() time.Duration { return time.Duration(s) * time.Second }

// Secrets are all secrets that the credential is made from, for scrubbing: a key in PEM line by line, because nothing
// shows it in one piece.
func (m *Mint) Secrets() []secret.Value {
	var out []secret.Value
	one := func(values ...secret.Value) {
		for _, v := range values {
			if !v.Empty() {
				out = append(out, v)
			}
		}
	}
	switch {
	case m == nil:
	case m.OAuth2 != nil:
		one(m.OAuth2.ClientSecret)
	case m.GitHubApp != nil:
		one(keyLines(m.GitHubApp.Key)...)
	case m.Google != nil:
		one(keyLines(m.Google.PrivateKey)...)
	case m.AWS != nil:
		one(m.AWS.SecretAccessKey, m.AWS.SessionToken)
	case m.HMAC != nil:
		one(m.HMAC.Key)
	}
	return out
}

// keyLines are the lines of a PEM text that hold key material.
func keyLines(key secret.Value) []secret.Value {
	const shortest = 16
	var out []secret.Value
	for line := range strings.Lines(key.Reveal()) {
		line = strings.TrimSpace(line)
		if len(line) >= shortest && !strings.HasPrefix(line, "-----") && !strings.Contains(line, ":") {
			out = append(out, secret.New(line))
		}
	}
	return out
}

// Digest identifies what a stored token was obtained with: a token of another digest is of no use. It is the same in
// every process and version, and covers no secret: replacing a client's secret or an app's key ends no login.
func (m *Mint) Digest() string {
	parts := [][2]string{{"kind", m.Kind()}}
	add := func(name string, values ...string) {
		if v, err := json.Marshal(values); err == nil && strings.Join(values, "") != "" {
			parts = append(parts, [2]string{name, string(v)})
		}
	}
	table := func(name string, values map[string]string) {
		for _, key := range slices.Sorted(maps.Keys(values)) {
			add(name, key, values[key])
		}
	}
	sorted := func(list []string) []string { return slices.Sorted(slices.Values(list)) }
	switch {
	case m == nil:
	case m.OAuth2 != nil:
		o := m.OAuth2
		add("grant", string(o.Grant))
		add("token_url", o.TokenURL)
		add("client_id", o.ClientID)
		add("scopes", sorted(o.Scopes)...)
		add("resource", o.Resource)
		table("params", o.Params)
	case m.GitHubApp != nil:
		g := m.GitHubApp
		add("app_id", g.AppID)
		add("installation_id", g.InstallationID)
		add("repositories", sorted(g.Repositories)...)
		table("permissions", g.Permissions)
		add("base_url", g.BaseURL)
	case m.Google != nil:
		g := m.Google
		add("email", g.Email)
		add("token_url", g.TokenURL)
		add("scopes", sorted(g.Scopes)...)
		add("subject", g.Subject)
	case m.AWS != nil:
		a := m.AWS
		add("access_key_id", a.AccessKeyID)
		add("role_arn", a.RoleARN)
		add("external_id", a.ExternalID)
		add("region", a.Region)
	case m.Fetch != nil:
		f := m.Fetch
		add("request", f.Method, f.URL, f.Body, f.Pointer, fmt.Sprint(f.Base64))
		table("headers", f.Headers)
	case m.Command != nil:
		add("args", m.Command.Args...)
	case m.File != nil:
		add("file", m.File.Path, m.File.Pointer)
	}
	sum := sha256.New()
	for _, p := range parts {
		field(sum, p[0])
		field(sum, p[1])
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// write gives everything in the Mint to a digest, secrets included.
func (m *Mint) write(add func(string)) {
	if m == nil {
		return
	}
	add(m.Kind())
	for _, v := range []any{m.OAuth2, m.GitHubApp, m.Google, m.AWS, m.HMAC, m.Fetch, m.Command, m.File} {
		add(fmt.Sprintf("%#v", dereferenced(v))) // maps are printed in the order of their keys, secrets masked
	}
	for _, s := range m.Secrets() {
		add(s.Reveal())
	}
}

// dereferenced is what a pointer of a Mint points to, so that printing shows it and not its address.
func dereferenced(v any) any {
	switch p := v.(type) {
	case *OAuth2:
		return value(p)
	case *GitHubApp:
		return value(p)
	case *Google:
		return value(p)
	case *AWS:
		return value(p)
	case *HMAC:
		return value(p)
	case *Fetch:
		return value(p)
	case *Command:
		return value(p)
	case *File:
		return value(p)
	}
	return nil
}

func value[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

// Secrets are the credential's value, if config.json or a file gives it, and the secrets that it is made from.
func (c Credential) Secrets() []secret.Value {
	if !c.Value.Empty() {
		return append([]secret.Value{c.Value}, c.Mint.Secrets()...)
	}
	return c.Mint.Secrets()
}

// Same reports whether both have one name, and are or give the same value.
func (c Credential) Same(o Credential) bool {
	text := func(m *Mint) string {
		var b strings.Builder
		m.write(func(s string) { b.WriteString(strconv.Itoa(len(s)) + ":" + s) })
		return b.String()
	}
	return c.Name == o.Name && c.Value.Equal(o.Value) && text(c.Mint) == text(o.Mint)
}

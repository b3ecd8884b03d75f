package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/secret"
)

// Mint says how the proxy obtains a credential that changes: by minting it, or by asking a source for it. Nothing that
// stands in it is a token name; all secrets in it are scrubbed from every response. Each kind is in a file with its
// fields: *OAuth2, *GitHubApp, *Google, *AWS, *HMAC, *Fetch, *Command and *File.
type Mint interface {
	// Kind is the field of config.json that says how the credential is obtained, e.g. "oauth2".
	Kind() string
	// Secrets are all secrets that the credential is made from, for scrubbing, or empty values: a key in PEM line by line,
	// because nothing shows it in one piece.
	Secrets() []secret.Value
	// address is the URL that the credential is obtained from. Empty: no fixed one.
	address() string
	// identify adds what decides whether a stored token is of use. It adds no secret.
	identify(id *identity)
}

// Signs reports whether the credential is not a text that is put in place of its name, but a key with which whole
// requests are signed.
func (c Credential) Signs() bool {
	switch c.Mint.(type) {
	case *AWS, *HMAC:
		return true
	}
	return false
}

// Login is the client with which a person has to log in once, or nil.
func (c Credential) Login() *OAuth2 {
	if o, ok := c.Mint.(*OAuth2); ok && o.Grant == GrantRefreshToken {
		return o
	}
	return nil
}

// Server is the host that the credential is obtained from, with its port if that is not 443. Empty: no fixed one.
func (c Credential) Server() string {
	if c.Mint == nil || c.Mint.address() == "" {
		return ""
	}
	host, err := serverHost(c.Mint.address())
	if err != nil {
		return ""
	}
	return host.String()
}

// Seconds is a duration in whole seconds.
type Seconds int

// Duration is the duration.
func (s Seconds) Duration() time.Duration { return time.Duration(s) * time.Second }

// identity is what a digest of a Mint covers: names with values.
type identity struct{ parts [][2]string }

func (id *identity) add(name string, values ...string) {
	if v, err := json.Marshal(values); err == nil && strings.Join(values, "") != "" {
		id.parts = append(id.parts, [2]string{name, string(v)})
	}
}

func (id *identity) addSorted(name string, values []string) {
	id.add(name, slices.Sorted(slices.Values(values))...)
}

func (id *identity) addTable(name string, values map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		id.add(name, key, values[key])
	}
}

// MintDigest identifies what a stored token was obtained with: a token of another digest is of no use. It is the same
// in every process and version, and covers no secret: replacing a client's secret or an app's key ends no login. The
// credential must have a Mint.
func (c Credential) MintDigest() string {
	id := identity{parts: [][2]string{{"kind", c.Mint.Kind()}}}
	c.Mint.identify(&id)
	sum := sha256.New()
	for _, p := range id.parts {
		field(sum, p[0])
		field(sum, p[1])
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// writeMint gives everything in the credential's Mint to a digest, secrets included.
func (c Credential) writeMint(add func(string)) {
	if c.Mint == nil {
		return
	}
	add(fmt.Sprintf("%#v", c.Mint)) // maps are printed in the order of their keys, secrets masked
	for _, s := range c.Mint.Secrets() {
		add(s.Reveal())
	}
}

// Secrets are the credential's value, if config.json or a file gives it, and the secrets that it is made from.
func (c Credential) Secrets() []secret.Value {
	all := []secret.Value{c.Value}
	if c.Mint != nil {
		all = append(all, c.Mint.Secrets()...)
	}
	return slices.DeleteFunc(all, secret.Value.Empty)
}

// Same reports whether both have one name, and are or give the same value.
func (c Credential) Same(o Credential) bool {
	return c.Name == o.Name && c.Value.Equal(o.Value) && reflect.DeepEqual(c.Mint, o.Mint)
}

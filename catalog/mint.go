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

// Mint describes how the proxy obtains a credential that changes: it mints the credential, or asks a source. No text
// inside a Mint is a token name. All its secrets are scrubbed from every response. Each kind has its own file: *OAuth2,
// *GitHubApp, *Google, *AWS, *HMAC, *Fetch, *Command and *File.
type Mint interface {
	// Kind returns the field of config.json that selects the kind, for example "oauth2".
	Kind() string
	// Secrets returns all secrets from which the credential is made, for scrubbing. It may contain empty values. A PEM key
	// is returned line by line, because responses rarely contain it as one text.
	Secrets() []secret.Value
	// mintAddress returns the URL from which the credential is obtained, or "" if the URL is not fixed.
	mintAddress() string
	// addIdentity adds the properties that decide whether a stored token is still usable. It adds no secret.
	addIdentity(id *mintIdentity)
}

// IsSigner reports whether the credential is a key that signs whole requests, and not a text that replaces its
// name.
func (c Credential) IsSigner() bool {
	switch c.Mint.(type) {
	case *AWS, *HMAC:
		return true
	}
	return false
}

// LoginClient returns the client for which a person must log in once, or nil.
func (c Credential) LoginClient() *OAuth2 {
	if o, ok := c.Mint.(*OAuth2); ok && o.Grant == GrantRefreshToken {
		return o
	}
	return nil
}

// MintHost returns the host from which the credential is obtained, with its port if that is not 443. It returns "" if
// the host is not fixed.
func (c Credential) MintHost() string {
	if c.Mint == nil || c.Mint.mintAddress() == "" {
		return ""
	}
	host, err := serverHost(c.Mint.mintAddress())
	if err != nil {
		return ""
	}
	return host.String()
}

// Seconds is a duration in whole seconds.
type Seconds int

// Duration is the duration.
func (s Seconds) Duration() time.Duration { return time.Duration(s) * time.Second }

// mintIdentity is the input of a digest of a Mint: names with values.
type mintIdentity struct{ parts [][2]string }

func (id *mintIdentity) addField(name string, values ...string) {
	// An unset field adds nothing, so that a new field does not change existing digests.
	if v, err := json.Marshal(values); err == nil && strings.Join(values, "") != "" {
		id.parts = append(id.parts, [2]string{name, string(v)})
	}
}

func (id *mintIdentity) addSorted(name string, values []string) {
	id.addField(name, slices.Sorted(slices.Values(values))...)
}

func (id *mintIdentity) addTable(name string, values map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		id.addField(name, key, values[key])
	}
}

// MintDigest identifies the configuration with which a stored token was obtained. A token with another digest is not
// used. The digest is the same in every process and version. It covers no secret, so replacing a client's secret or an
// app's key does not end a login. The credential must have a Mint.
func (c Credential) MintDigest() string {
	id := mintIdentity{parts: [][2]string{{"kind", c.Mint.Kind()}}}
	c.Mint.addIdentity(&id)
	sum := sha256.New()
	for _, p := range id.parts {
		hashField(sum, p[0])
		hashField(sum, p[1])
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// writeMint passes everything in the credential's Mint to a digest, including secrets.
func (c Credential) writeMint(add func(string)) {
	if c.Mint == nil {
		return
	}
	// The format prints maps in the order of their keys, and masks secrets.
	add(fmt.Sprintf("%#v", c.Mint))
	for _, s := range c.Mint.Secrets() {
		add(s.Reveal())
	}
}

// AllSecrets returns the credential's value, if config.json or a file has it, and the secrets from which the credential
// is made.
func (c Credential) AllSecrets() []secret.Value {
	all := []secret.Value{c.Value}
	if c.Mint != nil {
		all = append(all, c.Mint.Secrets()...)
	}
	return slices.DeleteFunc(all, secret.Value.IsEmpty)
}

// IsSame reports whether both have the same name, and have or obtain the same value.
func (c Credential) IsSame(o Credential) bool {
	return c.Name == o.Name && c.Value.Equal(o.Value) && reflect.DeepEqual(c.Mint, o.Mint)
}

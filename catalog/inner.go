package catalog

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog/secret"
)

// minLine is how long a line of a secret of several lines must be to be recognised by itself.
const minLine = 16

// Secrets lists what must not be shown of how a credential is obtained, each in the form in which it would be echoed.
func (m *Mint) Secrets() []secret.Value {
	if m == nil {
		return nil
	}
	var whole []secret.Value
	if m.OAuth2 != nil {
		whole = append(whole, m.OAuth2.ClientSecret)
	}
	if m.GitHubApp != nil {
		whole = append(whole, m.GitHubApp.Key)
	}
	if m.Google != nil {
		whole = append(whole, m.Google.Key)
	}
	if m.AWS != nil {
		whole = append(whole, m.AWS.SecretAccessKey, m.AWS.SessionToken)
	}
	if m.HMAC != nil {
		whole = append(whole, m.HMAC.Key)
	}
	var out []secret.Value
	for _, v := range whole {
		for _, line := range pieces(v.Reveal()) {
			out = append(out, secret.New(line))
		}
	}
	return out
}

// pieces are the parts of a secret that would be recognised: itself, or the lines of a key in PEM, also of one inside
// JSON. A pattern with a line feed in it would make every stream wait for the bytes after its lines.
func pieces(text string) []string {
	text = strings.TrimSpace(text)
	var account struct {
		Key string `json:"private_key"`
	}
	if strings.HasPrefix(text, "{") && json.Unmarshal([]byte(text), &account) == nil {
		text = strings.TrimSpace(account.Key)
	}
	if !strings.Contains(text, "\n") {
		if text == "" {
			return nil
		}
		return []string{text}
	}
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if len(line) >= minLine && !strings.HasPrefix(line, "-----") && !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	return out
}

// InnerSecrets lists the secrets inside all credentials that the proxy obtains. Their name is a mask: a token name in
// the place of one would be swapped if code sent it back.
func (c *Catalog) InnerSecrets() []Credential {
	var out []Credential
	for _, a := range c.APIs() {
		for _, cr := range a.Credentials {
			for _, v := range cr.Mint.Secrets() {
				out = append(out, Credential{Name: secret.Mask, Value: v})
			}
		}
	}
	return out
}

// Mints reports whether the proxy obtains a credential of this catalog itself.
func (c *Catalog) Mints() bool {
	return slices.ContainsFunc(c.APIs(), func(a *API) bool {
		return slices.ContainsFunc(a.Credentials, func(cr Credential) bool { return cr.Mint != nil })
	})
}

// Equal reports whether two credentials are obtained in the same way, with the same secrets.
func (m *Mint) Equal(o *Mint) bool {
	// secret.Value holds a pointer, behind which DeepEqual compares.
	return reflect.DeepEqual(m, o)
}

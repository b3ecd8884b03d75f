package catalog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/secret"
)

func googleKind() mintKind {
	return mintKind{kindGoogle, (*configValidator).buildGoogle, []mintField{
		{name: "key", form: formSecret, required: true, example: `{"file": "sa.json"}`},
		{name: "scopes", form: formList, required: true, example: `["https://www.googleapis.com/auth/cloud-platform"]`},
		{name: "subject"},
	}}
}

// Google is "google": access tokens of a service account.
type Google struct {
	// The fields of the file.
	Email, KeyID, TokenURL string
	PrivateKey             secret.Value // PEM, RSA
	Scopes                 []string
	Subject                string // the user for whom the account acts (domain-wide delegation); may be empty
}

// Kind implements Mint.
func (*Google) Kind() string { return kindGoogle }

// Secrets implements Mint.
func (g *Google) Secrets() []secret.Value { return keyLines(g.PrivateKey) }

func (g *Google) mintAddress() string { return g.TokenURL }

func (g *Google) addIdentity(id *mintIdentity) {
	id.addField("email", g.Email)
	id.addField("token_url", g.TokenURL)
	id.addSorted("scopes", g.Scopes)
	id.addField("subject", g.Subject)
}

func (v *configValidator) buildGoogle(path string, m *rawMint) Mint {
	g := &Google{Scopes: m.list["scopes"], Subject: m.text["subject"]}
	const want = "the JSON file that Google gave for the service account"
	if text, ok := v.readInnerText(path, "key", m); ok {
		var file struct {
			Type     string `json:"type"`
			Email    string `json:"client_email"`
			KeyID    string `json:"private_key_id"`
			Key      string `json:"private_key"`
			TokenURI string `json:"token_uri"`
		}
		switch err := json.Unmarshal([]byte(text), &file); {
		case err != nil: // the error may quote the key
			v.AddError(path+".key", "not a JSON object with texts", want)
		case file.Type != "service_account":
			v.AddError(path+".key", "a file that is not of the type service_account", want)
		case !strings.Contains(file.Email, "@"):
			v.AddError(path+".key", "a file without client_email", want)
		default:
			g.Email, g.KeyID, g.TokenURL = file.Email, file.KeyID, file.TokenURI
			g.TokenURL = cmp.Or(g.TokenURL, "https://oauth2.googleapis.com/token")
			// The file chooses the address to which the assertion is sent.
			v.parseURL(path+".key", g.TokenURL, `token_uri "https://oauth2.googleapis.com/token"`)
			g.PrivateKey = v.parseRSAKey(path+".key", file.Key)
		}
	}
	if m.has["scopes"] && len(g.Scopes) == 0 && !v.IsFull() {
		v.AddError(path+".scopes", "an empty list", `at least one, e.g. ["https://www.googleapis.com/auth/cloud-platform"]`)
	}
	for i, s := range g.Scopes {
		if s == "" || strings.ContainsAny(s, " \"\\") {
			v.AddError(fmt.Sprintf("%s.scopes[%d]", path, i), "not a scope", "one scope per entry, without spaces and quotes")
		}
	}
	if m.has["subject"] && !strings.Contains(g.Subject, "@") {
		v.AddError(path+".subject", "not a user", `a mail address, e.g. "ann@example.com"`)
	}
	return g
}

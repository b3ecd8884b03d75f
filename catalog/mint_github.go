package catalog

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog/strictjson"
	"github.com/codeforge-mcp/codeforge/internal/secret"
)

func githubAppKind() mintKind {
	return mintKind{kindGitHubApp, (*configValidator).buildGitHubApp, []mintField{
		{name: "app_id", form: formID, required: true, example: `"123456"`},
		{name: "installation_id", form: formID, required: true, example: `"12345678"`},
		{name: "key", form: formSecret, required: true, example: `{"file": "app.pem"}`},
		{name: "repositories", form: formList, example: `["site"]`},
		{name: "permissions", form: formTexts, example: `{"issues": "write"}`}, {name: "base_url"},
	}}
}

// GitHubApp is "github_app": installation access tokens.
type GitHubApp struct {
	AppID, InstallationID string
	Key                   secret.Value // PEM, RSA
	Repositories          []string
	Permissions           map[string]string
	// BaseURL is the URL of the API, without a slash at its end.
	BaseURL string
}

// Kind implements Mint.
func (*GitHubApp) Kind() string { return kindGitHubApp }

// Secrets implements Mint.
func (g *GitHubApp) Secrets() []secret.Value { return keyLines(g.Key) }

func (g *GitHubApp) mintAddress() string { return g.BaseURL }

func (g *GitHubApp) addIdentity(id *mintIdentity) {
	id.addField("app_id", g.AppID)
	id.addField("installation_id", g.InstallationID)
	id.addSorted("repositories", g.Repositories)
	id.addTable("permissions", g.Permissions)
	id.addField("base_url", g.BaseURL)
}

func (v *configValidator) buildGitHubApp(path string, m *rawMint) Mint {
	g := &GitHubApp{
		AppID: m.text["app_id"], InstallationID: m.text["installation_id"], Repositories: m.list["repositories"],
		Permissions: m.texts["permissions"], BaseURL: strings.TrimSuffix(m.text["base_url"], "/"),
	}
	if m.has["app_id"] && !regexp.MustCompile(`^[0-9A-Za-z.]{1,40}$`).MatchString(g.AppID) {
		v.AddError(path+".app_id", "not the id of an app", `digits, or a client id like "Iv23liABCDEFGHIJKLMN"`)
	}
	if m.has["installation_id"] && !regexp.MustCompile(`^[0-9]{1,20}$`).MatchString(g.InstallationID) {
		v.AddError(path+".installation_id", "not the id of an installation",
			"digits, as in the address of the installation's settings")
	}
	if text, ok := v.readInnerText(path, "key", m); ok {
		g.Key = v.parseRSAKey(path+".key", text)
	}
	for i, r := range g.Repositories {
		if !regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`).MatchString(r) {
			v.AddError(fmt.Sprintf("%s.repositories[%d]", path, i), "not the name of a repository",
				`one without its owner, e.g. "site"`)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(g.Permissions)) {
		field := strictjson.FieldLabel(path+".permissions.", name, isPlainKey(name))
		if !regexp.MustCompile(`^[a-z_]{1,64}$`).MatchString(name) {
			v.AddError(field, "not the name of a permission", `one like "issues" or "pull_requests"`)
		}
		if !slices.Contains([]string{"read", "write", "admin"}, g.Permissions[name]) {
			v.AddError(field, "not an access", "read, write or admin")
		}
	}
	if g.BaseURL == "" {
		g.BaseURL = "https://api.github.com"
	} else if u, ok := v.parseURL(path+".base_url", g.BaseURL, `"https://github.example.com/api/v3"`); ok &&
		u.RawQuery != "" {
		v.AddError(path+".base_url", "an address with a query", "one without")
	}
	return g
}

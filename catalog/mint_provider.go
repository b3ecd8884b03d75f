package catalog

import "github.com/codeforge-mcp/codeforge/internal/convert"

// oauthProvider is a preset of "oauth2" for fields that config.json leaves out.
type oauthProvider struct {
	name                         string
	tokenURL, authURL, deviceURL string
	basic                        bool
	params                       map[string]string
	scopes                       []string // always requested, too
	separator                    string   // between scopes; empty means a space
	// For providers that accept only registered addresses, or only the name localhost.
	redirectHost string
	redirectPort int
}

// redirectPort is the port of the login for providers that accept only a registered port.
const redirectPort = 8765

// tenantMark is replaced by "tenant" in addresses.
const tenantMark = "{tenant}"

// listProviders are the presets, from the providers' own documentation.
func listProviders() []oauthProvider {
	return []oauthProvider{
		{name: "google", tokenURL: "https://oauth2.googleapis.com/token",
			authURL:   "https://accounts.google.com/o/oauth2/v2/auth",
			deviceURL: "https://oauth2.googleapis.com/device/code",
			// Without both, Google issues a refresh token only for the first login of a user.
			params: map[string]string{"access_type": "offline", "prompt": "consent"}},
		{name: "microsoft", tokenURL: "https://login.microsoftonline.com/{tenant}/oauth2/v2.0/token",
			authURL:   "https://login.microsoftonline.com/{tenant}/oauth2/v2.0/authorize",
			deviceURL: "https://login.microsoftonline.com/{tenant}/oauth2/v2.0/devicecode",
			scopes:    []string{"offline_access"}, redirectHost: "localhost"},
		{name: "github", tokenURL: "https://github.com/login/oauth/access_token",
			authURL:   "https://github.com/login/oauth/authorize",
			deviceURL: "https://github.com/login/device/code"},
		{name: "slack", tokenURL: "https://slack.com/api/oauth.v2.access",
			authURL: "https://slack.com/oauth/v2/authorize", separator: ",",
			redirectHost: "localhost", redirectPort: redirectPort},
		{name: "linear", tokenURL: "https://api.linear.app/oauth/token",
			authURL: "https://linear.app/oauth/authorize", separator: ",",
			redirectHost: "localhost", redirectPort: redirectPort},
		{name: "notion", tokenURL: "https://api.notion.com/v1/oauth/token",
			authURL: "https://api.notion.com/v1/oauth/authorize", basic: true,
			params:       map[string]string{"owner": "user"},
			redirectHost: "localhost", redirectPort: redirectPort},
		{name: "atlassian", tokenURL: "https://auth.atlassian.com/oauth/token",
			authURL: "https://auth.atlassian.com/authorize", scopes: []string{"offline_access"},
			params:       map[string]string{"audience": "api.atlassian.com", "prompt": "consent"},
			redirectHost: "localhost", redirectPort: redirectPort},
	}
}

func providerNames() []string {
	return convert.Each(listProviders(), func(p oauthProvider) string { return p.name })
}

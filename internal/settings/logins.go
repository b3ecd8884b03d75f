package settings

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
)

// completeLogins sets the default audience, and returns the mistakes of PUBLIC_URL and the OIDC settings together.
func (s *Settings) completeLogins() (mistakes Error) {
	// Without a token, every client of a public endpoint would be the operator.
	if s.PublicURL != "" && s.MCPTokensFile == "" && s.MCPAuthToken.IsEmpty() {
		mistakes = append(mistakes, Mistake{"PUBLIC_URL", "set without a token", "MCP_TOKENS_FILE or MCP_AUTH_TOKEN with it"})
	}
	// With the other hosts come the console and the operator's paths.
	if s.PublicURL != "" && slices.ContainsFunc(s.MCPAllowedHosts, s.isPublicHost) {
		mistakes = append(mistakes, Mistake{"MCP_ALLOWED_HOSTS", "the host of PUBLIC_URL in it",
			"only hosts that may open the console"})
	}
	if len(s.MCPAllowedOrigins) > 0 && s.MCPTokensFile == "" && s.MCPAuthToken.IsEmpty() {
		mistakes = append(mistakes, Mistake{"MCP_ALLOWED_ORIGINS", "set without a token",
			"MCP_TOKENS_FILE or MCP_AUTH_TOKEN with it"})
	}
	if (s.OIDC.IntrospectionID == "") != (s.OIDC.IntrospectionSecretFile == "") {
		mistakes = append(mistakes, Mistake{"OIDC_INTROSPECTION_ID", "set without its secret, or the reverse",
			"OIDC_INTROSPECTION_SECRET_FILE with it"})
	}
	if s.OIDC.Issuer == "" {
		return mistakes
	}
	if s.PublicURL == "" {
		mistakes = append(mistakes, Mistake{"OIDC_ISSUER", "set alone", "PUBLIC_URL with it"})
	}
	// Without tenants, everyone with an account at the provider would be the operator.
	if s.MCPTokensFile == "" {
		mistakes = append(mistakes, Mistake{"OIDC_ISSUER", "set alone", "MCP_TOKENS_FILE with it, which names the logins"})
	}
	s.OIDC.Audience = cmp.Or(s.OIDC.Audience, s.PublicURL+"/mcp")
	return mistakes
}

// isPublicHost reports whether a host, with or without a port, is that of PUBLIC_URL.
func (s *Settings) isPublicHost(host string) bool {
	name := func(authority string) string { return (&url.URL{Host: authority}).Hostname() }
	return name(host) == name(strings.TrimPrefix(s.PublicURL, "https://"))
}

func parsePublicURL(t string, to *string) string {
	if t == "" {
		return ""
	}
	origin, ok := parseOrigin(t)
	if !ok || !strings.HasPrefix(origin, "https://") {
		return "an https:// URL without a path, e.g. https://codeforge.example.com"
	}
	*to = origin
	return ""
}

func parseOrigins(t string, to *[]string) string {
	return parseEach(t, to, parseOrigin, "origins separated by commas, e.g. https://app.example.com")
}

// parseOrigin normalises an origin as browsers write it: in lower case, without the default port.
func parseOrigin(t string) (string, bool) {
	u, err := url.Parse(strings.TrimSuffix(t, "/"))
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.Path != "" || u.RawQuery != "" ||
		u.ForceQuery || strings.Contains(t, "#") {
		return "", false
	}
	host, ok := parseHostPort(u.Host)
	port := map[string]string{"https": ":443", "http": ":80"}[u.Scheme]
	return u.Scheme + "://" + strings.TrimSuffix(host, port), ok
}

// parseIssuer reads the URL of an identity provider. It stays as it is written, because tokens contain the same text.
func parseIssuer(t string, to *string) string {
	if t == "" {
		return ""
	}
	u, err := url.Parse(t)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || strings.Contains(t, "#") {
		return "an https:// URL without query, exactly as the provider's tokens name it, e.g. https://login.example.com"
	}
	*to = t
	return ""
}

// readSignal returns the read function of a setting that chooses whether the collector gets a signal.
func readSignal(name string) func(*Settings, string) string {
	return func(s *Settings, t string) string {
		exporter := ""
		want := parseOption(t, &exporter, "otlp", "none")
		if exporter == "otlp" {
			s.Collector.Signals = append(s.Collector.Signals, name)
		}
		return want
	}
}

// parseCollector parses the URL of a collector. It has no user, because mcp-server holds no credential.
func parseCollector(t string, to *string) string {
	u, err := url.Parse(t)
	if t != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "") {
		return "the URL of a collector without a user, e.g. http://127.0.0.1:4318"
	}
	*to = t
	return ""
}

package catalog

// The fields of a credential that say how it is obtained.
const (
	kindOAuth2    = "oauth2"
	kindGitHubApp = "github_app"
	kindGoogle    = "google"
	kindAWS       = "aws"
	kindHMAC      = "hmac"
	kindFetch     = "fetch"
	kindCommand   = "command"
	kindFile      = "file"
)

// form is what a field of a kind holds.
type form uint8

const (
	formText    form = iota // a string
	formID                  // a string or a number
	formSecret              // a string, or an object with value, file or env
	formList                // a list of strings
	formTexts               // an object of strings
	formNumber              // a whole number
	formBoolean             // true or false
)

// mintField is one field of a kind.
type mintField struct {
	name, doc string
	form      form
	required  bool
	example   string   // what is right, for messages: JSON
	words     []string // the only values. Nil means any
	least     bool     // a list has at least one entry
}

// mintKind is a kind of credential that the proxy mints, or asks a source for.
type mintKind struct {
	name, doc string
	fields    []mintField
}

func (k mintKind) names() []string {
	var out []string
	for _, f := range k.fields {
		out = append(out, f.name)
	}
	return out
}

// mintKinds are the kinds with fields of their own, in the order of the documentation.
func mintKinds() []mintKind {
	secretDoc := ": {\"file\": \"...\"}, {\"env\": \"...\"}, or the text itself." //nolint:gosec // a text for users
	return []mintKind{
		{kindOAuth2, "A token from an OAuth 2.0 token endpoint, by a login or for the client itself.", []mintField{
			{name: "provider", doc: "Fills in addresses and parameters.", example: `"google"`, words: providerNames()},
			{name: "tenant", doc: "The directory of provider microsoft: a domain or an id. Default: common.",
				example: `"example.onmicrosoft.com"`},
			{name: "resource", doc: "The URL of an MCP server, in place of addresses: its authorization server is found.",
				example: `"https://mcp.example.com/mcp"`},
			{name: "grant", doc: "refresh_token (default): a user logs in. client_credentials: the client is the user.",
				example: `"refresh_token"`, words: []string{string(GrantRefreshToken), string(GrantClientCredentials)}},
			{name: "token_url", doc: "The token endpoint.", example: `"https://auth.example.com/token"`},
			{name: "auth_url", doc: "The authorization endpoint, for a login in a browser.",
				example: `"https://auth.example.com/authorize"`},
			{name: "device_url", doc: "The device authorization endpoint, for login --device.",
				example: `"https://auth.example.com/device"`},
			{name: "client_id", doc: "The client's id. With resource it may be left out.", form: formID, example: `"my-client"`},
			{name: "client_secret", doc: "The client's secret" + secretDoc, form: formSecret,
				example: `{"file": "client_secret"}`},
			{name: "scopes", doc: "What the token is for.", form: formList, example: `["read"]`},
			{name: "auth", doc: "How the client authenticates: body (default) or basic.", example: `"body"`,
				words: []string{"body", "basic"}},
			{name: "params", doc: "Further parameters of the authorization request; of the token request with " +
				"client_credentials.", form: formTexts, example: `{"access_type": "offline"}`},
			{name: "redirect_host", doc: "The login's redirect host: 127.0.0.1 (default) or localhost.",
				example: `"127.0.0.1"`, words: []string{"127.0.0.1", "localhost"}},
			{name: "redirect_port", doc: "The login's redirect port, for providers that accept only the one entered there.",
				form: formNumber, example: `8765`},
		}},
		{kindGitHubApp, "Installation access tokens of a GitHub App.", []mintField{
			{name: "app_id", doc: "The app's id, or its client id.", form: formID, required: true, example: `"123456"`},
			{name: "installation_id", doc: "The installation's id.", form: formID, required: true, example: `"12345678"`},
			{name: "key", doc: "The app's private key, PEM" + secretDoc, form: formSecret, required: true,
				example: `{"file": "app.pem"}`},
			{name: "repositories", doc: "The only repositories, without the owner.", form: formList, example: `["site"]`},
			{name: "permissions", doc: "The only permissions: read, write or admin by name.", form: formTexts,
				example: `{"issues": "write"}`},
			{name: "base_url", doc: "The API of GitHub Enterprise. Default: https://api.github.com.",
				example: `"https://github.example.com/api/v3"`},
		}},
		{kindGoogle, "Access tokens of a Google service account.", []mintField{
			{name: "key", doc: "The service account's key file, JSON" + secretDoc, form: formSecret, required: true,
				example: `{"file": "sa.json"}`},
			{name: "scopes", doc: "What the token is for.", form: formList, required: true,
				example: `["https://www.googleapis.com/auth/cloud-platform"]`},
			{name: "subject", doc: "The user for whom the account acts (domain-wide delegation).", example: `"ann@example.com"`},
		}},
		{kindAWS, "Requests are signed with AWS Signature Version 4.", []mintField{
			{name: "access_key_id", doc: "The access key's id.", form: formSecret, required: true, //nolint:gosec // of AWS
				example: `"AKIAIOSFODNN7EXAMPLE"`},
			{name: "secret_access_key", doc: "The secret access key" + secretDoc, form: formSecret, required: true,
				example: `{"file": "secret_access_key"}`},
			{name: "session_token", doc: "The session token of temporary credentials" + secretDoc, form: formSecret,
				example: `{"file": "session_token"}`},
			{name: "role_arn", doc: "A role to assume first.", example: `"arn:aws:iam::123456789012:role/reader"`},
			{name: "external_id", doc: "The external id that the role asks for.", example: `"codeforge"`},
			{name: "region", doc: "The only region.", required: true, example: `"eu-central-1"`},
			{name: "services", doc: "The only services. Default: whatever the hosts are; required where they are not AWS's.",
				form: formList, least: true, example: `["s3"]`},
		}},
		{kindHMAC, "Headers with a signature over parts of the request.", []mintField{
			{name: "key", doc: "The key" + secretDoc, form: formSecret, required: true, example: `{"file": "key"}`},
			{name: "key_encoding", doc: "How the key is written: text (default), base64 or hex.", example: `"base64"`,
				words: []string{"text", "base64", "hex"}},
			{name: "hash", doc: "sha256 (default), sha512 or sha1.", example: `"sha256"`,
				words: []string{"sha256", "sha512", "sha1"}},
			{name: "message", doc: "What is signed: text with {timestamp}, {timestamp:ms}, {nonce}, {method}, {host}, {path}, " +
				"{query}, {body}, {body:sha256}.", required: true, example: `"{timestamp}{method}{path}{body}"`},
			{name: "headers", doc: "The headers, with {signature:hex} or {signature:base64} in one of them, {timestamp}, " +
				"{timestamp:ms}, {nonce}.", form: formTexts, required: true,
				example: `{"X-Sign": "{signature:hex}", "X-Time": "{timestamp}"}`},
		}},
		{kindFetch, "A secret that a secret manager gives for one HTTPS request.", []mintField{
			{name: "url", doc: "Where to ask.", required: true, example: `"https://vault.example.com/v1/secret/data/stripe"`},
			{name: "method", doc: "GET, or POST if there is a body.", example: `"GET"`, words: []string{"GET", "POST"}},
			{name: "headers", doc: "Headers, with token names of APIs that have the host.", form: formTexts,
				example: `{"X-Vault-Token": "VAULT_TOKEN"}`},
			{name: "body", doc: "The body of a POST, without token names.", example: `"{}"`},
			{name: "json", doc: "A JSON pointer to the secret in the answer. Default: the whole answer.",
				example: `"/data/data/key"`},
			{name: "base64", doc: "true: what json finds is base64.", form: formBoolean, example: `true`},
		}},
	}
}

func mintKindNames() []string {
	var out []string
	for _, k := range mintKinds() {
		out = append(out, k.name)
	}
	return out
}

// shape is the field in the JSON Schema.
func (f mintField) shape() schema {
	s := schema{Description: f.doc}
	switch f.form {
	case formText:
		s.Type, s.Enum = "string", f.words
	case formID:
		s.OneOf = []schema{text(), {Type: "integer"}}
	case formSecret:
		s.OneOf = secretShape().OneOf
	case formList:
		s.Type, s.Items = "array", &schema{Type: "string"}
		if f.required || f.least {
			s.MinItems = 1
		}
	case formTexts:
		s.Type, s.PatternProperties, s.Closed = "object", map[string]schema{".": text()}, true
	case formNumber:
		s.Type = "integer"
	case formBoolean:
		s.Type, s.Default = "boolean", false
	}
	return s
}

// secretShape is a secret inside a kind.
func secretShape() schema {
	object := sourceFields().object()
	object.OneOf = sourceShapes()
	return schema{OneOf: []schema{{Type: "string", MinLength: 1}, object}}
}

func sourceShapes() []schema {
	return []schema{{Required: []string{"value"}}, {Required: []string{"file"}}, {Required: []string{"env"}}}
}

// shape is the kind in the JSON Schema.
func (k mintKind) shape() schema {
	s := schema{Type: "object", Closed: true, Properties: map[string]schema{}}
	for _, f := range k.fields {
		s.Properties[f.name] = f.shape()
		if f.required {
			s.Required = append(s.Required, f.name)
		}
	}
	return s
}

func clientCertFields() specs[rawClientCert] {
	return specs[rawClientCert]{
		{"cert", "A PEM file: the certificate, and intermediates behind it.", schema{Type: "string", MinLength: 1},
			func(d *decoder, c *rawClientCert, f string, n *node) { d.Str(f, n, &c.cert) }},
		{"key", "The private key, PEM.", secretShape(), func(d *decoder, c *rawClientCert, f string, n *node) {
			c.key, _ = d.secret(f, `{"file": "client.key"}`, n)
		}},
	}
}

func clientCertShape() schema {
	s := clientCertFields().object()
	s.Required = clientCertFields().names()
	return s
}

package catalog

import (
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/net/http/httpguts"

	"github.com/codeforge-mcp/codeforge/catalog/secret"
	"github.com/codeforge-mcp/codeforge/internal/jsonpointer"
)

// Bounds of what stands in a kind.
const (
	maxMintText = 2048 // bytes of one text
	maxMintList = 100  // entries of one list or object
	minTTL      = 10 * time.Second
	defaultTTL  = 5 * time.Minute
	minRSA      = 2048 // bits
)

// mint checks a kind. It is nil for a credential that has its value itself, and after a mistake.
func (v *validator) mint(raw rawCredential) *Mint {
	path := raw.path()
	if raw.mint == nil {
		if raw.ttl == nil {
			return nil
		}
		return v.watched(raw)
	}
	if raw.json != nil {
		v.bad(path+".json", "a JSON pointer without a file", "json inside "+raw.mint.kind+", or none")
	}
	path += "." + raw.mint.kind
	if raw.ttl != nil && raw.mint.kind != kindFetch && raw.mint.kind != kindCommand {
		v.bad(raw.path()+".ttl", "a lifetime for a credential whose server says how long it lives",
			"ttl with fetch, command or file only")
	}
	v.texts(path, raw.mint)
	switch raw.mint.kind {
	case kindOAuth2:
		return &Mint{OAuth2: v.oauth2(path, raw.mint)}
	case kindGitHubApp:
		return &Mint{GitHubApp: v.githubApp(path, raw.mint)}
	case kindGoogle:
		return &Mint{Google: v.google(path, raw.mint)}
	case kindAWS:
		return &Mint{AWS: v.aws(path, raw.mint)}
	case kindHMAC:
		return &Mint{HMAC: v.hmac(path, raw.mint)}
	case kindFetch:
		return &Mint{Fetch: v.fetch(path, raw.mint, v.ttl(raw))}
	case kindCommand:
		return &Mint{Command: v.command(path, raw.mint.list["args"], v.ttl(raw))}
	}
	return nil
}

// texts checks what all texts of a kind have in common: they are no place for a secret.
func (v *validator) texts(path string, m *rawMint) {
	const want = "what belongs there; secrets have fields of their own"
	check := func(field, s string) {
		switch {
		case len(s) > maxMintText:
			v.bad(field, fmt.Sprintf("%d bytes", len(s)), fmt.Sprintf("at most %d", maxMintText))
		case strings.ContainsFunc(s, unicode.IsControl):
			v.bad(field, "a control character", "text without control characters")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.text)) {
		check(path+"."+key, m.text[key])
		// An id may look like a key, and the body of a fetch holds ids.
		if key != "client_id" && key != "body" && secretLike(m.text[key]) {
			v.bad(path+"."+key, "what looks like a credential", want)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.list)) {
		for i, s := range v.atMost(path+"."+key, m.list[key], maxMintList) {
			field := fmt.Sprintf("%s.%s[%d]", path, key, i)
			check(field, s)
			if secretLike(s) {
				v.bad(field, "what looks like a credential", want)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.texts)) {
		if len(m.texts[key]) > maxMintList {
			v.bad(path+"."+key, fmt.Sprintf("%d entries", len(m.texts[key])), fmt.Sprintf("at most %d", maxMintList))
		}
		for _, name := range slices.Sorted(maps.Keys(m.texts[key])) {
			field := label(path+"."+key+".", name, plainKey(name))
			check(field, m.texts[key][name])
			if secretLike(m.texts[key][name]) {
				v.bad(field, "what looks like a credential", want)
			}
		}
	}
}

// option checks a setting that is one of a few words, or absent. What it is not, is shown only if it is a plain word.
func (v *validator) option(path, field string, m *rawMint, known []string) string {
	s := m.text[field]
	if !m.has[field] || slices.Contains(known, s) {
		return s
	}
	found, want := "none of the known words", "one of "+strings.Join(known, ", ")
	if near := nearest(s, known); near != "" {
		found, want = strconv.Quote(cut(s)), fmt.Sprintf("did you mean %q?", near)
	}
	v.bad(path+"."+field, found, want)
	return ""
}

// https checks a URL, which messages never show: it may have a secret in it.
func (v *validator) https(field, s, example string) (*url.URL, bool) {
	want := "an address like " + example
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || strings.ContainsFunc(s, unicode.IsSpace):
		v.bad(field, "not an address", want)
	case u.Scheme != "https":
		v.bad(field, "an address that is not https", want)
	case u.User != nil:
		v.bad(field, "an address with a user", "one without; secrets have fields of their own")
	case u.Fragment != "":
		v.bad(field, "an address with a fragment", want)
	default:
		host, err := serverHost(s)
		if err == nil && reserved(host) {
			err = errReserved
		}
		if err == nil {
			return u, true
		}
		v.bad(field, "an address whose host is "+err.Error(), want)
	}
	return nil, false
}

// inner reads a secret of one line inside a kind. The empty one is absent or refused.
func (v *validator) inner(path, field string, m *rawMint) secret.Value {
	text, ok := v.innerText(path, field, m)
	if !ok {
		return secret.Value{}
	}
	s, _ := v.secretText(path+"."+field, m.secret[field], text)
	return s
}

func (v *validator) innerText(path, field string, m *rawMint) (string, bool) {
	from, ok := m.secret[field]
	if !ok {
		return "", false
	}
	return v.resolve(path+"."+field, from)
}

func (v *validator) oauth2(path string, m *rawMint) *OAuth2 {
	o := &OAuth2{
		Grant:    Grant(v.option(path, "grant", m, []string{string(GrantRefreshToken), string(GrantClientCredentials)})),
		TokenURL: m.text["token_url"], AuthURL: m.text["auth_url"], DeviceURL: m.text["device_url"],
		ClientID: m.text["client_id"], ClientSecret: v.inner(path, "client_secret", m), Scopes: m.list["scopes"],
		ScopeSeparator: " ", Resource: m.text["resource"], Params: m.texts["params"],
		Basic:        v.option(path, "auth", m, []string{"body", "basic"}) == "basic",
		RedirectHost: v.option(path, "redirect_host", m, []string{"127.0.0.1", "localhost"}),
		RedirectPort: m.number["redirect_port"],
	}
	o.Provider = v.option(path, "provider", m, providerNames())
	v.preset(path, m, o)
	for _, f := range []struct{ name, text string }{
		{"token_url", o.TokenURL}, {"auth_url", o.AuthURL}, {"device_url", o.DeviceURL}, {"resource", o.Resource},
	} {
		if m.has[f.name] {
			v.https(path+"."+f.name, f.text, `"https://auth.example.com/`+strings.TrimSuffix(f.name, "_url")+`"`)
		}
	}
	v.oauth2Fits(path, m, o)
	for i, s := range o.Scopes {
		if s == "" || strings.ContainsAny(s, " \"\\") {
			v.bad(fmt.Sprintf("%s.scopes[%d]", path, i), "not a scope", "one scope per entry, without spaces and quotes")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Params)) {
		if slices.Contains(ownParams, name) {
			v.bad(path+".params."+name, "a parameter that CodeForge sets", "it left out")
		}
	}
	const ports = 1 << 16
	if m.has["redirect_port"] && (o.RedirectPort < 1024 || o.RedirectPort >= ports) {
		v.bad(path+".redirect_port", strconv.Itoa(o.RedirectPort), "1024 to 65535")
	}
	if o.Grant == "" {
		o.Grant = GrantRefreshToken
	}
	if o.RedirectHost == "" {
		o.RedirectHost = "127.0.0.1"
	}
	return o
}

// ownParams are the parameters of authorization and token requests that are not the user's to set.
var ownParams = []string{
	"response_type", "response_mode", "client_id", "client_secret", "redirect_uri", "scope", "state", "code",
	"code_verifier",
	"code_challenge", "code_challenge_method", "grant_type", "refresh_token", "device_code", "nonce", "request",
	"request_uri", "client_assertion", "client_assertion_type", "username", "password", "resource",
}

// preset fills in what the provider knows and config.json leaves out.
func (v *validator) preset(path string, m *rawMint, o *OAuth2) {
	tenant := m.text["tenant"]
	if m.has["tenant"] && o.Provider != "microsoft" {
		v.bad(path+".tenant", "a field that is only for provider microsoft", "it left out")
	}
	if m.has["tenant"] && !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,127}$`).MatchString(tenant) {
		v.bad(path+".tenant", "not a tenant", `a domain or an id, e.g. "example.onmicrosoft.com", or "organizations"`)
		tenant = ""
	}
	if tenant == "" {
		tenant = "common"
	}
	for _, p := range providers() {
		if p.name != o.Provider {
			continue
		}
		for _, f := range []struct {
			to   *string
			from string
		}{
			{&o.TokenURL, p.tokenURL}, {&o.AuthURL, p.authURL}, {&o.DeviceURL, p.deviceURL}, {&o.RedirectHost, p.redirectHost},
		} {
			if *f.to == "" {
				*f.to = strings.ReplaceAll(f.from, tenantMark, tenant)
			}
		}
		o.Basic = o.Basic || p.basic && !m.has["auth"]
		if p.separator != "" {
			o.ScopeSeparator = p.separator
		}
		if !m.has["redirect_port"] {
			o.RedirectPort = p.redirectPort
		}
		if o.Grant == GrantClientCredentials {
			continue // what follows is for logins
		}
		params := maps.Clone(p.params)
		if params == nil {
			params = map[string]string{}
		}
		maps.Copy(params, o.Params)
		o.Params = params
		for _, s := range p.scopes {
			if !slices.Contains(o.Scopes, s) {
				o.Scopes = append(slices.Clip(o.Scopes), s)
			}
		}
	}
}

// oauth2Fits checks that what is there is enough, and nothing contradicts the rest.
func (v *validator) oauth2Fits(path string, m *rawMint, o *OAuth2) {
	missing := func(field, want string) {
		if !m.has[field] {
			v.bad(path+"."+field, "missing", want)
		}
	}
	switch {
	case m.has["resource"]:
		for _, f := range []string{"provider", "token_url", "auth_url", "device_url", "auth"} {
			if m.has[f] {
				v.bad(path+"."+f, "a field that a resource's authorization server answers for", "resource without it")
			}
		}
		if o.Grant == GrantClientCredentials {
			missing("client_id", "the id under which the client is known to the server")
		}
	case m.has["provider"]:
		missing("client_id", "the id that the provider shows for the app")
	default:
		if !m.has["token_url"] {
			v.bad(path+".token_url", "missing", `an address, or a "provider": one of `+strings.Join(providerNames(), ", "))
		}
		missing("client_id", "the client's id")
		if o.Grant != GrantClientCredentials && !m.has["auth_url"] && !m.has["device_url"] {
			v.bad(path+".auth_url", "missing", `auth_url or device_url, for the login, or "grant": "client_credentials"`)
		}
	}
	if o.Grant == GrantClientCredentials && !m.has["resource"] {
		missing("client_secret", "the client's secret, by which alone it authenticates")
	}
	if o.Basic && o.ClientSecret.Empty() && !m.has["client_secret"] {
		v.bad(path+".auth", "basic without a client_secret", "a client_secret, or no auth")
	}
}

// key checks a private key in PEM. It is empty if that is refused.
func (v *validator) rsaKey(field, text string) secret.Value {
	const want = "a private key in PEM: -----BEGIN PRIVATE KEY----- or -----BEGIN RSA PRIVATE KEY-----"
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		v.bad(field, "no PEM block", want)
		return secret.Value{}
	}
	if strings.Contains(block.Type, "ENCRYPTED") || block.Headers["DEK-Info"] != "" {
		v.bad(field, "a key that is encrypted", "one without a passphrase, in a file that only CodeForge can read")
		return secret.Value{}
	}
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			v.bad(field, "a PEM block that is no private key", want)
			return secret.Value{}
		}
		var ok bool
		if key, ok = parsed.(*rsa.PrivateKey); !ok {
			v.bad(field, "a key that is not RSA", "the RSA key as the provider gave it")
			return secret.Value{}
		}
	}
	if key.N.BitLen() < minRSA {
		v.bad(field, fmt.Sprintf("a key of %d bits", key.N.BitLen()), fmt.Sprintf("at least %d", minRSA))
		return secret.Value{}
	}
	return secret.New(text)
}

func (v *validator) githubApp(path string, m *rawMint) *GitHubApp {
	g := &GitHubApp{
		AppID: m.text["app_id"], InstallationID: m.text["installation_id"], Repositories: m.list["repositories"],
		Permissions: m.texts["permissions"], BaseURL: strings.TrimSuffix(m.text["base_url"], "/"),
	}
	if m.has["app_id"] && !regexp.MustCompile(`^[0-9A-Za-z.]{1,40}$`).MatchString(g.AppID) {
		v.bad(path+".app_id", "not the id of an app", `digits, or a client id like "Iv23liABCDEFGHIJKLMN"`)
	}
	if m.has["installation_id"] && !regexp.MustCompile(`^[0-9]{1,20}$`).MatchString(g.InstallationID) {
		v.bad(path+".installation_id", "not the id of an installation",
			"digits, as in the address of the installation's settings")
	}
	if text, ok := v.innerText(path, "key", m); ok {
		g.Key = v.rsaKey(path+".key", text)
	}
	for i, r := range g.Repositories {
		if !regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`).MatchString(r) {
			v.bad(fmt.Sprintf("%s.repositories[%d]", path, i), "not the name of a repository",
				`one without its owner, e.g. "site"`)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(g.Permissions)) {
		field := label(path+".permissions.", name, plainKey(name))
		if !regexp.MustCompile(`^[a-z_]{1,64}$`).MatchString(name) {
			v.bad(field, "not the name of a permission", `one like "issues" or "pull_requests"`)
		}
		if !slices.Contains([]string{"read", "write", "admin"}, g.Permissions[name]) {
			v.bad(field, "not an access", "read, write or admin")
		}
	}
	if g.BaseURL == "" {
		g.BaseURL = "https://api.github.com"
	} else if u, ok := v.https(path+".base_url", g.BaseURL, `"https://github.example.com/api/v3"`); ok &&
		u.RawQuery != "" {
		v.bad(path+".base_url", "an address with a query", "one without")
	}
	return g
}

func (v *validator) google(path string, m *rawMint) *Google {
	g := &Google{Scopes: m.list["scopes"], Subject: m.text["subject"]}
	const want = "the JSON file that Google gave for the service account"
	if text, ok := v.innerText(path, "key", m); ok {
		var file struct {
			Type     string `json:"type"`
			Email    string `json:"client_email"`
			KeyID    string `json:"private_key_id"`
			Key      string `json:"private_key"`
			TokenURI string `json:"token_uri"`
		}
		switch err := json.Unmarshal([]byte(text), &file); {
		case err != nil: // its text may quote the key
			v.bad(path+".key", "not a JSON object with texts", want)
		case file.Type != "service_account":
			v.bad(path+".key", "a file that is not of the type service_account", want)
		case !strings.Contains(file.Email, "@"):
			v.bad(path+".key", "a file without client_email", want)
		default:
			g.Key, g.Email, g.KeyID, g.TokenURL = secret.New(text), file.Email, file.KeyID, file.TokenURI
			if g.TokenURL == "" {
				g.TokenURL = "https://oauth2.googleapis.com/token"
			}
			v.https(path+".key", g.TokenURL, `token_uri "https://oauth2.googleapis.com/token"`)
			g.PrivateKey = v.rsaKey(path+".key", file.Key)
		}
	}
	if m.has["scopes"] && len(g.Scopes) == 0 && !v.full() {
		v.bad(path+".scopes", "an empty list", `at least one, e.g. ["https://www.googleapis.com/auth/cloud-platform"]`)
	}
	for i, s := range g.Scopes {
		if s == "" || strings.ContainsAny(s, " \"\\") {
			v.bad(fmt.Sprintf("%s.scopes[%d]", path, i), "not a scope", "one scope per entry, without spaces and quotes")
		}
	}
	if m.has["subject"] && !strings.Contains(g.Subject, "@") {
		v.bad(path+".subject", "not a user", `a mail address, e.g. "ann@example.com"`)
	}
	return g
}

func (v *validator) aws(path string, m *rawMint) *AWS {
	a := &AWS{
		SecretAccessKey: v.inner(path, "secret_access_key", m), SessionToken: v.inner(path, "session_token", m),
		RoleARN: m.text["role_arn"], ExternalID: m.text["external_id"],
		Region: m.text["region"], Services: m.list["services"],
	}
	a.AccessKeyID, _ = v.innerText(path, "access_key_id", m)
	const secretLength = 40 // of every secret access key of AWS
	if id := a.AccessKeyID; id != "" {
		switch {
		case len(id) == secretLength && random(strings.NewReplacer("/", "", "+", "").Replace(id)):
			v.bad(path+".access_key_id", "what looks like the secret access key", `the id, which starts with AKIA or ASIA`)
		case !regexp.MustCompile(`^[A-Za-z0-9_.-]{3,128}$`).MatchString(id):
			v.bad(path+".access_key_id", "not the id of an access key", `one like "AKIAIOSFODNN7EXAMPLE"`)
		case strings.HasPrefix(id, "ASIA") && !m.has["session_token"]:
			v.bad(path+".session_token", "missing for a temporary access key", "the token that was given with it")
		}
	}
	role := regexp.MustCompile(`^arn:aws[a-z-]*:iam::[0-9]{12}:role/[\w+=,.@/-]{1,512}$`)
	if m.has["role_arn"] && !role.MatchString(a.RoleARN) {
		v.bad(path+".role_arn", "not the ARN of a role", `one like "arn:aws:iam::123456789012:role/reader"`)
	}
	if m.has["external_id"] && !m.has["role_arn"] {
		v.bad(path+".external_id", "an external id without a role", "role_arn, or none")
	}
	if m.has["region"] && !regexp.MustCompile(`^[a-z0-9-]{2,32}$`).MatchString(a.Region) {
		v.bad(path+".region", "not a region", `one like "eu-central-1"`)
	}
	for i, s := range a.Services {
		if !regexp.MustCompile(`^[a-z0-9-]{1,64}$`).MatchString(s) {
			v.bad(fmt.Sprintf("%s.services[%d]", path, i), "not a service", `the name in signatures, e.g. "s3"`)
		}
	}
	if m.has["services"] && len(a.Services) == 0 {
		v.bad(path+".services", "an empty list", `at least one, e.g. ["s3"], or no list`)
	}
	return a
}

// The placeholders of HMAC.Message, and those of HMAC.Headers.
var (
	SignatureParts = []string{"{timestamp}", "{timestamp:ms}", "{nonce}", "{method}", "{host}", "{path}", "{query}",
		"{body}", "{body:sha256}"}
	SignatureHeaders = []string{"{signature:hex}", "{signature:base64}", "{timestamp}", "{timestamp:ms}", "{nonce}"}
)

// marks finds what looks like a placeholder.
var marks = regexp.MustCompile(`\{[^{}]*\}`)

func (v *validator) hmac(path string, m *rawMint) *HMAC {
	h := &HMAC{
		Key: v.inner(path, "key", m), KeyEncoding: v.option(path, "key_encoding", m, []string{"text", "base64", "hex"}),
		Hash:    v.option(path, "hash", m, []string{"sha256", "sha512", "sha1"}),
		Message: m.text["message"], Headers: map[string]string{},
	}
	if h.KeyEncoding == "" {
		h.KeyEncoding = "text"
	}
	if h.Hash == "" {
		h.Hash = "sha256"
	}
	if _, err := h.Bytes(); err != nil && !h.Key.Empty() {
		v.bad(path+".key", "a key that is not "+h.KeyEncoding, "the key as key_encoding says")
	}
	for _, mark := range marks.FindAllString(h.Message, -1) {
		v.mark(path+".message", mark, SignatureParts)
	}
	if m.has["message"] && !marks.MatchString(h.Message) {
		v.bad(path+".message", "a text without placeholders, whose signature would be a password",
			`one like "{timestamp}{method}{path}{body}"`)
	}
	signatures := 0
	for _, name := range slices.Sorted(maps.Keys(m.texts["headers"])) {
		value := m.texts["headers"][name]
		field := label(path+".headers.", name, plainKey(name))
		signatures += strings.Count(value, "{signature:")
		for _, mark := range marks.FindAllString(value, -1) {
			v.mark(field, mark, SignatureHeaders)
		}
		switch {
		case !isToken(name) || len(name) > maxField || !httpguts.ValidHeaderFieldValue(value):
			v.bad(field, "not a header", `a header, e.g. "X-Sign": "{signature:hex}"`)
		case SinkHeader(name):
			v.bad(field, "a header that servers log, store or hand on", "the header that the server wants, e.g. X-Sign")
		default:
			h.Headers[name] = value
		}
	}
	if m.has["headers"] && signatures != 1 {
		v.bad(path+".headers", fmt.Sprintf("%d signatures", signatures), "{signature:hex} or {signature:base64} once")
	}
	return h
}

// Bytes is the key as it signs.
func (h *HMAC) Bytes() ([]byte, error) {
	switch h.KeyEncoding {
	case "base64":
		return base64.StdEncoding.DecodeString(h.Key.Reveal())
	case "hex":
		return hex.DecodeString(h.Key.Reveal())
	}
	return []byte(h.Key.Reveal()), nil
}

// mark checks a placeholder.
func (v *validator) mark(field, mark string, known []string) {
	if slices.Contains(known, mark) {
		return
	}
	found, want := "a placeholder that does not exist", "one of "+strings.Join(known, ", ")
	if near := nearest(mark, known); near != "" {
		found, want = strconv.Quote(mark), fmt.Sprintf("did you mean %q?", near)
	}
	v.bad(field, found, want)
}

// ttl is the lifetime of what a source gives.
func (v *validator) ttl(raw rawCredential) Seconds {
	ttl := defaultTTL
	if raw.ttl != nil {
		ttl = *raw.ttl
	}
	if raw.ttl != nil && ttl < minTTL {
		v.bad(raw.path()+".ttl", "less than ten seconds", `at least 10, e.g. "5m"`)
	}
	return Seconds(ttl / time.Second)
}

func (v *validator) fetch(path string, m *rawMint, ttl Seconds) *Fetch {
	f := &Fetch{URL: m.text["url"], Method: v.option(path, "method", m, []string{"GET", "POST"}),
		Headers: map[string]string{},
		Body:    m.text["body"], Pointer: m.text["json"], Base64: m.boolean["base64"], TTL: ttl}
	if m.has["url"] {
		v.https(path+".url", f.URL, `"https://vault.example.com/v1/secret/data/stripe"`)
	}
	if f.Method == "" {
		f.Method = "GET"
		if m.has["body"] && !m.has["method"] {
			f.Method = "POST"
		}
	}
	if f.Method == "GET" && f.Body != "" {
		v.bad(path+".body", "a body for a GET", `"method": "POST", or no body`)
	}
	if jsonpointer.Check(f.Pointer) != nil {
		v.bad(path+".json", "not a JSON pointer", `one like "/data/data/key"`)
	}
	for _, name := range slices.Sorted(maps.Keys(m.texts["headers"])) {
		value := m.texts["headers"][name]
		field := label(path+".headers.", name, plainKey(name))
		uses := tokenNames(value)
		switch {
		case !isToken(name) || len(name) > maxField || !httpguts.ValidHeaderFieldValue(value):
			v.bad(field, "not a header", `a header, e.g. "X-Vault-Token": "VAULT_TOKEN"`)
		case slices.Contains([]string{"host", "connection", "transfer-encoding", "content-length", "upgrade", "te", "trailer",
			"accept-encoding", "range"}, foldHeader(name)):
			v.bad(field, "a header that CodeForge sets", "it left out")
		case secretName(name) && len(uses) == 0 && !harmless(value):
			v.bad(field, "a value that is not a token name, under a name that suggests a credential",
				`the credential in the "credentials" of an API with the host, and its token name here`)
		default:
			f.Headers[name] = value
			f.Uses = append(f.Uses, uses...)
		}
	}
	slices.Sort(f.Uses)
	f.Uses = slices.Compact(f.Uses)
	return f
}

// tokenNames are the words of a text that have the form of a token name with an underscore.
func tokenNames(text string) []string {
	var out []string
	separator := func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}
	for _, w := range strings.FieldsFunc(text, separator) {
		if ValidTokenName(w) {
			out = append(out, w)
		}
	}
	return out
}

func (v *validator) command(path string, args []string, ttl Seconds) *Command {
	if args != nil && len(args) == 0 {
		v.bad(path, "an empty list", `a program and its arguments, e.g. ["op", "read", "op://Work/Stripe/key"]`)
	}
	if len(args) > 0 {
		switch name := args[0]; {
		case name == "" || strings.HasPrefix(name, "-"):
			v.bad(path+"[0]", "not a program", "the name of a program, or its absolute path")
		case len(args) == 1 && strings.Contains(name, " "):
			v.bad(path+"[0]", "a command line in one text, which no shell reads", "each argument as an entry of its own")
		case strings.Contains(name, "/") && !strings.HasPrefix(name, "/"):
			v.bad(path+"[0]", "a relative path", "the name of a program, or its absolute path")
		}
	}
	return &Command{Args: args, TTL: ttl}
}

// watched checks a file that is read again and again.
func (v *validator) watched(raw rawCredential) *Mint {
	ttl := v.ttl(raw)
	if raw.file == nil {
		v.bad(raw.path()+".ttl", "a lifetime for a credential that nothing changes", "ttl with fetch, command or file only")
		return nil
	}
	f := &File{Path: *raw.file, API: v.api, TTL: ttl}
	if raw.json != nil {
		f.Pointer = *raw.json
	}
	if text, ok := v.resolve(raw.path(), raw.source); ok { // a mistake shows now rather than when it is first used
		v.secretText(raw.path(), raw.source, text)
	}
	return &Mint{File: f}
}

// Read reads the credential anew; dir is apis/. The error quotes nothing of the file.
func (f *File) Read(dir string) (secret.Value, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return secret.Value{}, errors.New(reason(err))
	}
	defer root.Close()
	v := validator{root: root, budget: &budget{all: maxSecretFile, api: maxSecretFile}}
	v.api = f.API
	text, ok := v.resolve("", source{file: &f.Path, json: &f.Pointer})
	if ok {
		return Value(text)
	}
	return secret.Value{}, errors.New(v.problems[0].Found)
}

// Value checks what a source gave as a credential, by the rules for those in config.json. The error does not quote it.
func Value(text string) (secret.Value, error) {
	if found, _ := valueProblem(text); found != "" {
		return secret.Value{}, errors.New(found)
	}
	return secret.New(text), nil
}

// signed checks the surfaces of a credential that is not swapped, but signs: they say where its name asks for that.
func (v *validator) signed(raw rawCredential, c *Credential) {
	if !c.Mint.Signs() {
		return
	}
	if raw.in != nil {
		v.bad(raw.path()+".in", "surfaces of a credential that signs", "no list: its name stands where the signature goes")
	}
	if raw.placeholder != nil {
		v.bad(raw.path()+".placeholder", "a placeholder of a credential that signs", "none")
	}
	c.Surfaces = []Surface{{Kind: SurfaceHeader, Field: "Authorization"}}
	if h := c.Mint.HMAC; h != nil {
		c.Surfaces = nil
		for _, name := range slices.Sorted(maps.Keys(h.Headers)) {
			if strings.Contains(h.Headers[name], "{signature:") {
				s, _ := parseHeaderSurface(name)
				c.Surfaces = append(c.Surfaces, s)
			}
		}
	}
}

// signers checks what an API and its signing credentials say about one another.
func (v *validator) signers(a *API) {
	for _, c := range a.Credentials {
		if c.Mint == nil || c.Mint.AWS == nil || len(c.Mint.AWS.Services) == 1 {
			continue
		}
		for _, h := range a.Hosts {
			if _, _, ok := AWSHost(h.Name()); !ok {
				v.bad("credentials."+c.Name+".aws.services", "no single service for a host that is not AWS's",
					`the one that the host is, e.g. ["s3"]`)
				break
			}
		}
	}
}

// AWSHost is the service and the region that a host name of AWS stands for, as signatures name them. The region is
// empty for services that have one endpoint for all. It is false for other hosts. A "*" stands for one label.
func AWSHost(name string) (service, region string, ok bool) {
	rest, found := name, false
	for _, suffix := range []string{".amazonaws.com", ".amazonaws.com.cn", ".api.aws", ".on.aws"} {
		if rest, found = strings.CutSuffix(name, suffix); found {
			break
		}
	}
	if !found {
		return "", "", false
	}
	labels := strings.Split(rest, ".")
	last := len(labels) - 1
	switch {
	case isRegion(labels[last]):
		region, labels = labels[last], labels[:last]
	case last > 0 && isRegion(labels[last-1]) && (labels[last] == "es" || labels[last] == "aoss"): // NAME.REGION.es
		region = labels[last-1]
	}
	if len(labels) == 0 {
		return "", "", false
	}
	// s3.REGION, BUCKET.s3.REGION, s3.dualstack.REGION, ID.execute-api.REGION, s3-fips.REGION
	if len(labels) > 1 && labels[len(labels)-1] == "dualstack" {
		labels = labels[:len(labels)-1]
	}
	service = strings.TrimSuffix(labels[len(labels)-1], "-fips")
	if old, found := strings.CutPrefix(service, "s3-"); found && region == "" && isRegion(old) { // s3-eu-west-1
		service, region = "s3", old
	}
	if name, known := signingNames[service]; known {
		service = name
	}
	return service, region, service != "*"
}

// signingNames are the services whose signatures have another name than their hosts.
var signingNames = map[string]string{
	"email": "ses", "bedrock-runtime": "bedrock", "bedrock-agent": "bedrock", "bedrock-agent-runtime": "bedrock",
	"s3-accesspoint": "s3", "pinpoint": "mobiletargeting", "lambda-url": "lambda",
}

func isRegion(s string) bool {
	return regexp.MustCompile(`^(us|eu|ap|sa|ca|me|af|il|mx|cn)(-[a-z]+)+-[0-9]$`).MatchString(s)
}

func (v *validator) clientCert(raw *rawClientCert) *ClientCert {
	if raw == nil {
		return nil
	}
	cert, err := v.readNamed(raw.cert, maxCAs)
	if err != nil {
		v.bad("client_cert.cert", reason(err), "a PEM file in the API's folder, or an absolute path")
	}
	key, ok := v.resolve("client_cert.key", raw.key)
	if err != nil || !ok {
		return nil
	}
	if _, err := tls.X509KeyPair(cert, []byte(key)); err != nil { // its text is not shown: it may quote
		v.bad("client_cert", "no certificate and key in PEM that belong together",
			"the certificate in cert, with intermediates behind it, and its private key without a passphrase in key")
		return nil
	}
	return &ClientCert{Cert: cert, Key: secret.New(key)}
}

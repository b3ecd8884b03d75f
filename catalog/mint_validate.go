package catalog

import (
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/net/http/httpguts"

	"github.com/codeforge-mcp/codeforge/catalog/strictjson"
	"github.com/codeforge-mcp/codeforge/internal/secret"
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
		v.Bad(path+".json", "a JSON pointer without a file", "json inside "+raw.mint.kind+", or none")
	}
	path += "." + raw.mint.kind
	if raw.ttl != nil && raw.mint.kind != kindFetch && raw.mint.kind != kindCommand {
		v.Bad(raw.path()+".ttl", "a lifetime for a credential whose server says how long it lives",
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
			v.Bad(field, fmt.Sprintf("%d bytes", len(s)), fmt.Sprintf("at most %d", maxMintText))
		case strings.ContainsFunc(s, unicode.IsControl):
			v.Bad(field, "a control character", "text without control characters")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.text)) {
		check(path+"."+key, m.text[key])
		// An id may look like a key, and the body of a fetch holds ids.
		if key != "client_id" && key != "body" && secretLike(m.text[key]) {
			v.Bad(path+"."+key, "what looks like a credential", want)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.list)) {
		for i, s := range v.AtMost(path+"."+key, m.list[key], maxMintList) {
			field := fmt.Sprintf("%s.%s[%d]", path, key, i)
			check(field, s)
			if secretLike(s) {
				v.Bad(field, "what looks like a credential", want)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.texts)) {
		if len(m.texts[key]) > maxMintList {
			v.Bad(path+"."+key, fmt.Sprintf("%d entries", len(m.texts[key])), fmt.Sprintf("at most %d", maxMintList))
		}
		for _, name := range slices.Sorted(maps.Keys(m.texts[key])) {
			field := strictjson.Label(path+"."+key+".", name, plainKey(name))
			check(field, m.texts[key][name])
			if secretLike(m.texts[key][name]) {
				v.Bad(field, "what looks like a credential", want)
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
	if near := strictjson.Nearest(s, known); near != "" {
		found, want = strconv.Quote(strictjson.Cut(s)), fmt.Sprintf("did you mean %q?", near)
	}
	v.Bad(path+"."+field, found, want)
	return ""
}

// https checks a URL, which messages never show: it may have a secret in it.
func (v *validator) https(field, s, example string) (*url.URL, bool) {
	want := "an address like " + example
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || strings.ContainsFunc(s, unicode.IsSpace):
		v.Bad(field, "not an address", want)
	case u.Scheme != "https":
		v.Bad(field, "an address that is not https", want)
	case u.User != nil:
		v.Bad(field, "an address with a user", "one without; secrets have fields of their own")
	case u.Fragment != "":
		v.Bad(field, "an address with a fragment", want)
	default:
		host, err := serverHost(s)
		if err == nil && reserved(host) {
			err = errReserved
		}
		if err == nil {
			return u, true
		}
		v.Bad(field, "an address whose host is "+err.Error(), want)
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

// key checks a private key in PEM. It is empty if that is refused.
func (v *validator) rsaKey(field, text string) secret.Value {
	const want = "a private key in PEM: -----BEGIN PRIVATE KEY----- or -----BEGIN RSA PRIVATE KEY-----"
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		v.Bad(field, "no PEM block", want)
		return secret.Value{}
	}
	if strings.Contains(block.Type, "ENCRYPTED") || block.Headers["DEK-Info"] != "" {
		v.Bad(field, "a key that is encrypted", "one without a passphrase, in a file that only CodeForge can read")
		return secret.Value{}
	}
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			v.Bad(field, "a PEM block that is no private key", want)
			return secret.Value{}
		}
		var ok bool
		if key, ok = parsed.(*rsa.PrivateKey); !ok {
			v.Bad(field, "a key that is not RSA", "the RSA key as the provider gave it")
			return secret.Value{}
		}
	}
	if key.N.BitLen() < minRSA {
		v.Bad(field, fmt.Sprintf("a key of %d bits", key.N.BitLen()), fmt.Sprintf("at least %d", minRSA))
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
		v.Bad(path+".app_id", "not the id of an app", `digits, or a client id like "Iv23liABCDEFGHIJKLMN"`)
	}
	if m.has["installation_id"] && !regexp.MustCompile(`^[0-9]{1,20}$`).MatchString(g.InstallationID) {
		v.Bad(path+".installation_id", "not the id of an installation",
			"digits, as in the address of the installation's settings")
	}
	if text, ok := v.innerText(path, "key", m); ok {
		g.Key = v.rsaKey(path+".key", text)
	}
	for i, r := range g.Repositories {
		if !regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`).MatchString(r) {
			v.Bad(fmt.Sprintf("%s.repositories[%d]", path, i), "not the name of a repository",
				`one without its owner, e.g. "site"`)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(g.Permissions)) {
		field := strictjson.Label(path+".permissions.", name, plainKey(name))
		if !regexp.MustCompile(`^[a-z_]{1,64}$`).MatchString(name) {
			v.Bad(field, "not the name of a permission", `one like "issues" or "pull_requests"`)
		}
		if !slices.Contains([]string{"read", "write", "admin"}, g.Permissions[name]) {
			v.Bad(field, "not an access", "read, write or admin")
		}
	}
	if g.BaseURL == "" {
		g.BaseURL = "https://api.github.com"
	} else if u, ok := v.https(path+".base_url", g.BaseURL, `"https://github.example.com/api/v3"`); ok &&
		u.RawQuery != "" {
		v.Bad(path+".base_url", "an address with a query", "one without")
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
			v.Bad(path+".key", "not a JSON object with texts", want)
		case file.Type != "service_account":
			v.Bad(path+".key", "a file that is not of the type service_account", want)
		case !strings.Contains(file.Email, "@"):
			v.Bad(path+".key", "a file without client_email", want)
		default:
			g.Key, g.Email, g.KeyID, g.TokenURL = secret.New(text), file.Email, file.KeyID, file.TokenURI
			if g.TokenURL == "" {
				g.TokenURL = "https://oauth2.googleapis.com/token"
			}
			v.https(path+".key", g.TokenURL, `token_uri "https://oauth2.googleapis.com/token"`)
			g.PrivateKey = v.rsaKey(path+".key", file.Key)
		}
	}
	if m.has["scopes"] && len(g.Scopes) == 0 && !v.Full() {
		v.Bad(path+".scopes", "an empty list", `at least one, e.g. ["https://www.googleapis.com/auth/cloud-platform"]`)
	}
	for i, s := range g.Scopes {
		if s == "" || strings.ContainsAny(s, " \"\\") {
			v.Bad(fmt.Sprintf("%s.scopes[%d]", path, i), "not a scope", "one scope per entry, without spaces and quotes")
		}
	}
	if m.has["subject"] && !strings.Contains(g.Subject, "@") {
		v.Bad(path+".subject", "not a user", `a mail address, e.g. "ann@example.com"`)
	}
	return g
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
		v.Bad(path+".key", "a key that is not "+h.KeyEncoding, "the key as key_encoding says")
	}
	for _, mark := range marks.FindAllString(h.Message, -1) {
		v.mark(path+".message", mark, SignatureParts)
	}
	if m.has["message"] && !marks.MatchString(h.Message) {
		v.Bad(path+".message", "a text without placeholders, whose signature would be a password",
			`one like "{timestamp}{method}{path}{body}"`)
	}
	signatures := 0
	for _, name := range slices.Sorted(maps.Keys(m.texts["headers"])) {
		value := m.texts["headers"][name]
		field := strictjson.Label(path+".headers.", name, plainKey(name))
		signatures += strings.Count(value, "{signature:")
		for _, mark := range marks.FindAllString(value, -1) {
			v.mark(field, mark, SignatureHeaders)
		}
		switch {
		case !isToken(name) || len(name) > maxField || !httpguts.ValidHeaderFieldValue(value):
			v.Bad(field, "not a header", `a header, e.g. "X-Sign": "{signature:hex}"`)
		case SinkHeader(name):
			v.Bad(field, "a header that servers log, store or hand on", "the header that the server wants, e.g. X-Sign")
		default:
			h.Headers[name] = value
		}
	}
	if m.has["headers"] && signatures != 1 {
		v.Bad(path+".headers", fmt.Sprintf("%d signatures", signatures), "{signature:hex} or {signature:base64} once")
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
	if near := strictjson.Nearest(mark, known); near != "" {
		found, want = strconv.Quote(mark), fmt.Sprintf("did you mean %q?", near)
	}
	v.Bad(field, found, want)
}

func (v *validator) clientCert(raw *rawClientCert) *ClientCert {
	if raw == nil {
		return nil
	}
	cert, err := v.readNamed(raw.cert, maxCAs)
	if err != nil {
		v.Bad("client_cert.cert", reason(err), "a PEM file in the API's folder, or an absolute path")
	}
	key, ok := v.resolve("client_cert.key", raw.key)
	if err != nil || !ok {
		return nil
	}
	if _, err := tls.X509KeyPair(cert, []byte(key)); err != nil { // its text is not shown: it may quote
		v.Bad("client_cert", "no certificate and key in PEM that belong together",
			"the certificate in cert, with intermediates behind it, and its private key without a passphrase in key")
		return nil
	}
	return &ClientCert{Cert: cert, Key: secret.New(key)}
}

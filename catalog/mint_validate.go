package catalog

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/codeforge-mcp/codeforge/catalog/strictjson"
	"github.com/codeforge-mcp/codeforge/internal/secret"
)

// Bounds of the fields of a kind.
const (
	maxMintText = 2048 // bytes of one text
	maxMintList = 100  // entries of one list or object
	minTTL      = 10 * time.Second
	defaultTTL  = 5 * time.Minute
	minRSA      = 2048 // bits
)

// buildMint checks a kind. It returns nil for a credential with a fixed value, and after a mistake.
func (v *configValidator) buildMint(raw rawCredential) Mint {
	path := raw.fieldPath()
	if raw.mint == nil {
		// Without ttl a file is read once, at the load.
		if raw.ttl == nil {
			return nil
		}
		return v.buildWatchedFile(raw)
	}
	if raw.json != nil {
		v.AddError(path+".json", "a JSON pointer without a file", "json inside "+raw.mint.kind+", or no json")
	}
	path += "." + raw.mint.kind
	switch {
	case raw.mint.kind == kindFetch || raw.mint.kind == kindCommand:
		raw.mint.ttl = v.readTTL(raw)
	case raw.ttl != nil:
		v.AddError(raw.fieldPath()+".ttl", "a lifetime for a credential whose server says how long it lives",
			"ttl with fetch, command or file only")
	}
	v.checkMintTexts(path, raw.mint)
	if raw.mint.kind == kindCommand {
		return v.buildCommand(path, raw.mint)
	}
	for _, k := range mintKinds() {
		if k.name == raw.mint.kind {
			return k.build(v, path, raw.mint)
		}
	}
	return nil
}

// checkMintTexts checks the common rules for all texts of a kind: they must not contain a secret.
func (v *configValidator) checkMintTexts(path string, m *rawMint) {
	const want = "a value that is not secret; secrets have separate fields"
	check := func(field, s string) {
		switch {
		case len(s) > maxMintText:
			v.AddError(field, fmt.Sprintf("%d bytes", len(s)), fmt.Sprintf("at most %d", maxMintText))
		case strings.ContainsFunc(s, unicode.IsControl):
			v.AddError(field, "a control character", "text without control characters")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.text)) {
		check(path+"."+key, m.text[key])
		// An id may look like a key, and the body of a fetch contains ids.
		if key != "client_id" && key != "body" && hasLikelySecret(m.text[key]) {
			v.AddError(path+"."+key, "a value that looks like a credential", want)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.list)) {
		for i, s := range v.AtMost(path+"."+key, m.list[key], maxMintList) {
			field := fmt.Sprintf("%s.%s[%d]", path, key, i)
			check(field, s)
			if hasLikelySecret(s) {
				v.AddError(field, "a value that looks like a credential", want)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.texts)) {
		if len(m.texts[key]) > maxMintList {
			v.AddError(path+"."+key, fmt.Sprintf("%d entries", len(m.texts[key])), fmt.Sprintf("at most %d", maxMintList))
		}
		for _, name := range slices.Sorted(maps.Keys(m.texts[key])) {
			field := strictjson.FieldLabel(path+"."+key+".", name, isPlainKey(name))
			check(field, m.texts[key][name])
			if hasLikelySecret(m.texts[key][name]) {
				v.AddError(field, "a value that looks like a credential", want)
			}
		}
	}
}

// readOption checks an optional setting with a few allowed words. It quotes a wrong value only if it is close to an
// allowed word.
func (v *configValidator) readOption(path, field string, m *rawMint, known []string) string {
	s := m.text[field]
	if !m.has[field] || slices.Contains(known, s) {
		return s
	}
	found, want := "an unknown word", "one of "+strings.Join(known, ", ")
	if near := strictjson.NearestName(s, known); near != "" {
		found, want = strconv.Quote(strictjson.CutQuote(s)), fmt.Sprintf("did you mean %q?", near)
	}
	v.AddError(path+"."+field, found, want)
	return ""
}

// parseURL checks a URL. Messages never quote the URL, because it may contain a secret.
func (v *configValidator) parseURL(field, s, example string) (*url.URL, bool) {
	want := "an address like " + example
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || strings.ContainsFunc(s, unicode.IsSpace):
		v.AddError(field, "not an address", want)
	case u.Scheme != "https":
		v.AddError(field, "an address that is not https", want)
	case u.User != nil:
		v.AddError(field, "an address with a user", "an address without a user; secrets have separate fields")
	case u.Fragment != "":
		v.AddError(field, "an address with a fragment", want)
	default:
		host, err := serverHost(s)
		if err == nil && isOwnPattern(host) {
			err = errReserved
		}
		if err == nil {
			return u, true
		}
		v.AddError(field, "an address whose host is "+err.Error(), want)
	}
	return nil, false
}

// readInnerSecret reads a one-line secret inside a kind. The result is empty if the secret is absent or refused.
func (v *configValidator) readInnerSecret(path, field string, m *rawMint) secret.Value {
	text, ok := v.readInnerText(path, field, m)
	if !ok {
		return secret.Value{}
	}
	s, _ := v.parseSecretText(path+"."+field, m.secret[field], text)
	return s
}

func (v *configValidator) readInnerText(path, field string, m *rawMint) (string, bool) {
	from, ok := m.secret[field]
	if !ok {
		return "", false
	}
	return v.resolveSecret(path+"."+field, from)
}

// parseRSAKey checks a private RSA key in PEM. The result is empty if the key is refused.
func (v *configValidator) parseRSAKey(field, text string) secret.Value {
	const want = "a private key in PEM: -----BEGIN PRIVATE KEY----- or -----BEGIN RSA PRIVATE KEY-----"
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		v.AddError(field, "no PEM block", want)
		return secret.Value{}
	}
	// The proxy cannot ask for a passphrase.
	if strings.Contains(block.Type, "ENCRYPTED") || block.Headers["DEK-Info"] != "" {
		v.AddError(field, "a key that is encrypted", "one without a passphrase, in a file that only CodeForge can read")
		return secret.Value{}
	}
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			v.AddError(field, "a PEM block that is not a private key", want)
			return secret.Value{}
		}
		var ok bool
		if key, ok = parsed.(*rsa.PrivateKey); !ok {
			v.AddError(field, "a key that is not RSA", "the RSA key as the provider gave it")
			return secret.Value{}
		}
	}
	if key.N.BitLen() < minRSA {
		v.AddError(field, fmt.Sprintf("a key of %d bits", key.N.BitLen()), fmt.Sprintf("at least %d", minRSA))
		return secret.Value{}
	}
	return secret.New(text)
}

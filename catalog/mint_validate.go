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

// mint checks a kind. It returns nil for a credential with a fixed value, and after a mistake.
func (v *validator) mint(raw rawCredential) Mint {
	path := raw.path()
	if raw.mint == nil {
		// Without ttl a file is read once, at the load.
		if raw.ttl == nil {
			return nil
		}
		return v.watched(raw)
	}
	if raw.json != nil {
		v.Bad(path+".json", "a JSON pointer without a file", "json inside "+raw.mint.kind+", or no json")
	}
	path += "." + raw.mint.kind
	switch {
	case raw.mint.kind == kindFetch || raw.mint.kind == kindCommand:
		raw.mint.ttl = v.ttl(raw)
	case raw.ttl != nil:
		v.Bad(raw.path()+".ttl", "a lifetime for a credential whose server says how long it lives",
			"ttl with fetch, command or file only")
	}
	v.texts(path, raw.mint)
	if raw.mint.kind == kindCommand {
		return v.command(path, raw.mint)
	}
	for _, k := range mintKinds() {
		if k.name == raw.mint.kind {
			return k.build(v, path, raw.mint)
		}
	}
	return nil
}

// texts checks the common rules for all texts of a kind: they must not contain a secret.
func (v *validator) texts(path string, m *rawMint) {
	const want = "a value that is not secret; secrets have separate fields"
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
		// An id may look like a key, and the body of a fetch contains ids.
		if key != "client_id" && key != "body" && secretLike(m.text[key]) {
			v.Bad(path+"."+key, "a value that looks like a credential", want)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.list)) {
		for i, s := range v.AtMost(path+"."+key, m.list[key], maxMintList) {
			field := fmt.Sprintf("%s.%s[%d]", path, key, i)
			check(field, s)
			if secretLike(s) {
				v.Bad(field, "a value that looks like a credential", want)
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
				v.Bad(field, "a value that looks like a credential", want)
			}
		}
	}
}

// option checks an optional setting with a few allowed words. It quotes a wrong value only if it is close to an allowed
// word.
func (v *validator) option(path, field string, m *rawMint, known []string) string {
	s := m.text[field]
	if !m.has[field] || slices.Contains(known, s) {
		return s
	}
	found, want := "an unknown word", "one of "+strings.Join(known, ", ")
	if near := strictjson.Nearest(s, known); near != "" {
		found, want = strconv.Quote(strictjson.Cut(s)), fmt.Sprintf("did you mean %q?", near)
	}
	v.Bad(path+"."+field, found, want)
	return ""
}

// https checks a URL. Messages never quote the URL, because it may contain a secret.
func (v *validator) https(field, s, example string) (*url.URL, bool) {
	want := "an address like " + example
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || strings.ContainsFunc(s, unicode.IsSpace):
		v.Bad(field, "not an address", want)
	case u.Scheme != "https":
		v.Bad(field, "an address that is not https", want)
	case u.User != nil:
		v.Bad(field, "an address with a user", "an address without a user; secrets have separate fields")
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

// inner reads a one-line secret inside a kind. The result is empty if the secret is absent or refused.
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

// rsaKey checks a private RSA key in PEM. The result is empty if the key is refused.
func (v *validator) rsaKey(field, text string) secret.Value {
	const want = "a private key in PEM: -----BEGIN PRIVATE KEY----- or -----BEGIN RSA PRIVATE KEY-----"
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		v.Bad(field, "no PEM block", want)
		return secret.Value{}
	}
	// The proxy cannot ask for a passphrase.
	if strings.Contains(block.Type, "ENCRYPTED") || block.Headers["DEK-Info"] != "" {
		v.Bad(field, "a key that is encrypted", "one without a passphrase, in a file that only CodeForge can read")
		return secret.Value{}
	}
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			v.Bad(field, "a PEM block that is not a private key", want)
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

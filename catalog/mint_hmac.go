package catalog

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/codeforge-mcp/codeforge/catalog/strictjson"
	"github.com/codeforge-mcp/codeforge/internal/secret"
)

func hmacKind() mintKind {
	return mintKind{kindHMAC, (*configValidator).buildHMAC, []mintField{
		{name: "key", form: formSecret, required: true, example: `{"file": "key"}`}, {name: "key_encoding"}, {name: "hash"},
		{name: "message", required: true, example: `"{timestamp}{method}{path}{body}"`},
		{name: "headers", form: formTexts, required: true, example: `{"X-Sign": "{signature:hex}", "X-Time": "{timestamp}"}`},
	}}
}

// HMAC is "hmac": headers with a signature over parts of the request.
type HMAC struct {
	Key secret.Value
	// KeyEncoding is the encoding of the key: "text", "base64" or "hex".
	KeyEncoding string
	Hash        string            // sha256, sha512, sha1
	Message     string            // with the placeholders of SignatureParts
	Headers     map[string]string // by header name, with {signature:hex}, {signature:base64}, {timestamp}, {nonce}
}

// Kind implements Mint.
func (*HMAC) Kind() string { return kindHMAC }

// Secrets implements Mint.
func (h *HMAC) Secrets() []secret.Value { return []secret.Value{h.Key} }

func (*HMAC) mintAddress() string { return "" }

func (*HMAC) addIdentity(*mintIdentity) {}

// The placeholders of HMAC.Message and of HMAC.Headers.
var (
	SignatureParts = []string{"{timestamp}", "{timestamp:ms}", "{nonce}", "{method}", "{host}", "{path}", "{query}",
		"{body}", "{body:sha256}"}
	SignatureHeaders = []string{"{signature:hex}", "{signature:base64}", "{timestamp}", "{timestamp:ms}", "{nonce}"}
)

// marks matches a text that looks like a placeholder.
var marks = regexp.MustCompile(`\{[^{}]*\}`)

func (v *configValidator) buildHMAC(path string, m *rawMint) Mint {
	h := &HMAC{
		Key: v.readInnerSecret(path, "key", m), KeyEncoding: v.readOption(path, "key_encoding", m,
			[]string{"text", "base64", "hex"}),
		Hash:    v.readOption(path, "hash", m, []string{"sha256", "sha512", "sha1"}),
		Message: m.text["message"], Headers: map[string]string{},
	}
	h.KeyEncoding = cmp.Or(h.KeyEncoding, "text")
	h.Hash = cmp.Or(h.Hash, "sha256")
	if _, err := h.Bytes(); err != nil && !h.Key.IsEmpty() {
		v.AddError(path+".key", "a key that is not "+h.KeyEncoding, "the key as key_encoding says")
	}
	for _, mark := range marks.FindAllString(h.Message, -1) {
		v.checkMark(path+".message", mark, SignatureParts)
	}
	// A constant message has a constant signature.
	if m.has["message"] && !marks.MatchString(h.Message) {
		v.AddError(path+".message", "a text without placeholders, whose signature would be a password",
			`one like "{timestamp}{method}{path}{body}"`)
	}
	signatures := 0
	for _, name := range slices.Sorted(maps.Keys(m.texts["headers"])) {
		value := m.texts["headers"][name]
		field := strictjson.FieldLabel(path+".headers.", name, isPlainKey(name))
		signatures += strings.Count(value, "{signature:")
		for _, mark := range marks.FindAllString(value, -1) {
			v.checkMark(field, mark, SignatureHeaders)
		}
		switch {
		case !isToken(name) || len(name) > maxField || !httpguts.ValidHeaderFieldValue(value):
			v.AddError(field, "not a header", `a header, e.g. "X-Sign": "{signature:hex}"`)
		// Servers would log or publish the signature.
		case IsSinkHeader(name):
			v.AddError(field, "a header that servers log, store or pass on", "the header that the server wants, e.g. X-Sign")
		default:
			h.Headers[name] = value
		}
	}
	if m.has["headers"] && signatures != 1 {
		v.AddError(path+".headers", fmt.Sprintf("%d signatures", signatures), "{signature:hex} or {signature:base64} once")
	}
	return h
}

// Bytes returns the decoded key.
func (h *HMAC) Bytes() ([]byte, error) {
	switch h.KeyEncoding {
	case "base64":
		return base64.StdEncoding.DecodeString(h.Key.Reveal())
	case "hex":
		return hex.DecodeString(h.Key.Reveal())
	}
	return []byte(h.Key.Reveal()), nil
}

func (v *configValidator) checkMark(field, mark string, known []string) {
	if slices.Contains(known, mark) {
		return
	}
	found, want := "a placeholder that does not exist", "one of "+strings.Join(known, ", ")
	if near := strictjson.NearestName(mark, known); near != "" {
		found, want = strconv.Quote(mark), fmt.Sprintf("did you mean %q?", near)
	}
	v.AddError(field, found, want)
}

package catalog

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog/strictjson"
	"github.com/codeforge-mcp/codeforge/internal/jsonpointer"
	"github.com/codeforge-mcp/codeforge/internal/secret"
)

func (v *configValidator) buildCredential(raw rawCredential) Credential {
	c := Credential{
		Name: raw.name, Surfaces: v.parseSurfaces(raw), Placeholder: v.readPlaceholder(raw), Variable: v.readVariable(raw),
	}
	v.warnSingleWord(raw)
	if m := v.buildMint(raw); m != nil || raw.mint != nil {
		c.Mint = m
		v.checkSigningSurfaces(raw, &c)
		return c
	}
	text, ok := v.resolveSecret(raw.fieldPath(), raw.secretSource)
	if !ok {
		return c
	}
	// The name would be swapped by itself.
	if text == raw.name {
		v.AddError(raw.fieldPath(), "the token name itself", "the credential")
		return c
	}
	c.Value, _ = v.parseSecretText(raw.fieldPath(), raw.secretSource, text)
	return c
}

// parseSecretText checks a secret of one line. It returns false if the secret is rejected.
func (v *configValidator) parseSecretText(path string, from secretSource, text string) (secret.Value, bool) {
	isReference := from.value != nil && reference.MatchString(text)
	if problem, want := valueProblem(text); problem != "" {
		if isReference {
			problem, want = foundReference, wantReference
		}
		v.AddError(path, problem, want)
		return secret.Value{}, false
	}
	if isReference {
		v.AddWarning(path, foundReference, wantReference)
	}
	if w := placeholderReason(text); w != "" && !isReference {
		v.AddWarning(path, w, "the credential itself")
	}
	return secret.New(text), true
}

// warnSingleWord warns of a token name that requests may contain by chance.
func (v *configValidator) warnSingleWord(raw rawCredential) {
	if strings.Trim(raw.name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" {
		v.AddWarning(raw.fieldPath(), "a token name that is a single word, which requests may contain by chance",
			"one like "+raw.name+"_TOKEN")
	}
}

// Bounds of a placeholder, in bytes. maxAround bounds the text around the token name, so that no credential fits there.
const (
	maxPlaceholder = maxName + maxAround
	maxAround      = 24
)

// readPlaceholder checks a credential's placeholder.
func (v *configValidator) readPlaceholder(raw rawCredential) string {
	if raw.placeholder == nil {
		return ""
	}
	text, field := *raw.placeholder, raw.fieldPath()+".placeholder"
	want := fmt.Sprintf("the token name with what programs look for, e.g. \"sk_test_%s\"", raw.name)
	isPlain := strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
	switch {
	case text == raw.name:
		v.AddError(field, "the token name itself", "it left out")
	// Other characters would need escapes in a header or a URL.
	case !isPlain:
		v.AddError(field, "a text with other characters than letters, digits, -, _ and .", want)
	case strings.Count(text, raw.name) != 1:
		v.AddError(field, "a text without the token name in it, once", want)
	case len(text)-len(raw.name) > maxAround:
		v.AddError(field, fmt.Sprintf("%d characters besides the token name", len(text)-len(raw.name)),
			fmt.Sprintf("at most %d", maxAround))
	default:
		return text
	}
	return ""
}

// resolveSecret reads a secret from its source: config.json, a file, or the environment.
func (v *configValidator) resolveSecret(path string, from secretSource) (string, bool) {
	text, ok := v.readStoredSecret(path, from)
	if !ok || from.json == nil {
		return text, ok
	}
	if from.value != nil {
		v.AddError(path+".json", `a JSON pointer into "value"`, "the credential itself as value")
		return "", false
	}
	found, err := jsonpointer.Find([]byte(text), *from.json)
	if err != nil {
		v.AddError(path+".json", err.Error(), `the JSON pointer to the credential, e.g. "/password"`)
	}
	return found, err == nil
}

func (v *configValidator) readStoredSecret(path string, from secretSource) (string, bool) {
	switch {
	case from.value != nil:
		return *from.value, true
	case from.file != nil:
		data, err := v.readNamed(*from.file, maxSecretFile)
		if err != nil {
			v.addReadError(path+".file", *from.file, "a file with the credential", err)
			return "", false
		}
		return strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r"), true
	// In Docker every user of docker inspect can read the environment.
	case v.getenv == nil:
		v.AddError(path+".env",
			"a credential in the environment, which docker inspect shows to everybody who can use Docker",
			`{"file": "/run/secrets/..."} or a value in config.json`)
		return "", false
	}
	text := v.getenv(*from.env)
	if text == "" {
		v.AddError(path+".env", "a variable that is not set", "the name of one in the environment or in .env")
	}
	return text, text != ""
}

func (v *configValidator) parseSurfaces(raw rawCredential) []Surface {
	if raw.in == nil {
		return []Surface{{Kind: SurfaceHeader}}
	}
	if len(raw.in) == 0 {
		v.AddError(raw.fieldPath()+".in", "an empty list", `at least one surface, e.g. ["header"], or no list`)
	}
	var out []Surface
	for i, text := range v.AtMost(raw.fieldPath()+".in", raw.in, maxSurfaces) {
		field := fmt.Sprintf("%s.in[%d]", raw.fieldPath(), i)
		s, err := ParseSurface(text)
		switch {
		case err != nil:
			v.AddError(field, quoteFound(text, err), wantSurface(text))
			continue
		case slices.Contains(out, s):
			v.AddWarning(field, strconv.Quote(s.String())+" listed twice", "each surface once")
			continue
		// Code chooses the field, which may be one that the API publishes.
		case s.Field == "" && (s.Kind == SurfaceQuery || s.Kind == SurfaceBody):
			v.AddWarning(field,
				strconv.Quote(s.String())+", where code could also publish the credential (in a message, in a comment)",
				fmt.Sprintf("the one field that needs it, e.g. %q", s.String()+":key"))
		}
		out = append(out, s)
	}
	return out
}

func wantSurface(text string) string {
	kind, field, named := strings.Cut(text, ":")
	if kind == "cookie" || kind == "header" && strings.EqualFold(field, "Cookie") {
		return `"cookie:NAME" with the name of the cookie, e.g. "cookie:session"`
	}
	if kind == "header" && IsSinkHeader(field) {
		return `"header", or the API's own header, e.g. "header:X-Api-Key"`
	}
	near := strictjson.NearestName(kind, []string{"header", "query", "path", "body"})
	if near != "" && near != kind && !named {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return `"header", "header:Name", "query:name", "path", "body:field" or "cookie:name"`
}

package catalog

import (
	"slices"
	"strings"
)

// hasTokenName reports whether a value contains a token name of the API.
func hasTokenName(a *API, value string) bool { return removeNames(a, value) != value }

// removeNames removes the API's token names from a value.
func removeNames(a *API, value string) string {
	for _, c := range a.Credentials {
		value = strings.ReplaceAll(value, c.Name, " ")
	}
	return value
}

// keyPrefixes are the beginnings of credentials of well-known services.
var keyPrefixes = []string{
	"sk-", "sk_", "pk_live_", "rk_", "ghp_", "gho_", "ghs_", "ghu_", "github_pat_", "glpat-", "xox", "xapp-",
	"AKIA", "ASIA", "AIza", "ya29.", "eyJ", "npm_", "ntn_", "secret_", "lin_api_", "lin_oauth_", "figd_", "figu_",
	"fc-", "hf_", "sntrys_", "sntryu_", "dop_v1_", "shpat_", "shpss_", "whsec_", "rnd_", "dckr_pat_", "pplx-", "gsk_",
	"tvly-", "ctx7sk-", "sbp_", "key-", "SG.",
}

// IsLikelySecret reports whether a value is most likely a credential. It judges the value, and the name of the
// variable, header or parameter (key, which may be empty). The settings of a server may not contain such a value.
func IsLikelySecret(key, value string) bool {
	return hasLikelySecret(value) || isSecretName(key) && !isHarmless(value)
}

// hasLikelySecret reports whether a text most likely contains a credential: a word that begins like those of a
// well-known service, or a long random word.
func hasLikelySecret(s string) bool {
	separator := func(r rune) bool { return r <= ' ' || strings.ContainsRune(`"'=:,;&?/@`, r) }
	for _, word := range strings.FieldsFunc(s, separator) {
		const rest = 8
		for _, p := range keyPrefixes {
			// A prefix alone, or before ordinary words, is not a credential.
			if tail, ok := strings.CutPrefix(word, p); ok && len(tail) >= rest && !isPlainWord(tail) {
				return true
			}
		}
		pieces := strings.FieldsFunc(word, func(r rune) bool { return strings.ContainsRune("-_.", r) })
		if slices.ContainsFunc(pieces, isRandomWord) {
			return true
		}
	}
	return false
}

// isPlainWord reports whether the text after a prefix is ordinary: lower-case letters and separators.
func isPlainWord(s string) bool { return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz-_.") == "" }

// isRandomWord reports whether a word is not typed by a person: a long word with letters of both cases and digits, or
// with more hexadecimal digits than an identifier has.
func isRandomWord(s string) bool {
	const mixed, hex = 20, 40
	has := func(from, to rune) bool {
		return strings.ContainsFunc(s, func(r rune) bool { return from <= r && r <= to })
	}
	if len(s) >= hex && strings.Trim(strings.ToLower(s), "0123456789abcdef") == "" {
		return true
	}
	return len(s) >= mixed && has('0', '9') && has('a', 'z') && has('A', 'Z')
}

// isSecretName reports whether a variable, header or parameter with this name usually has a credential.
func isSecretName(key string) bool {
	words := strings.FieldsFunc(strings.ToLower(key), func(r rune) bool { return r == '_' || r == '-' || r == '.' })
	if len(words) == 0 {
		return false
	}
	switch words[len(words)-1] {
	case "key", "apikey", "token", "secret", "password", "passwd", "pat", "authorization", "cookie":
		return true
	}
	return false
}

// isHarmless reports whether a value cannot be a credential: it is short, a number, or a switch.
func isHarmless(s string) bool {
	const short = 4
	return len(s) <= short || strings.Trim(s, "0123456789.") == "" || s == "false" || s == "disabled"
}

package catalog

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a credential, in bytes. Responses contain shorter texts by chance.
const (
	minValue = 8
	maxValue = 8192
)

// valueProblem returns the mistake of a credential, without quoting it, and a description of a right credential.
func valueProblem(s string) (found, want string) {
	switch {
	case s == "":
		return "empty", fmt.Sprintf("a credential of at least %d bytes", minValue)
	case !utf8.ValidString(s):
		return "bytes that are not UTF-8", "a credential that is text"
	case strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII }):
		return "a character outside ASCII in the credential", "printable ASCII: servers return other characters " +
			"in more forms than can be recognised, so the credential would not be scrubbed"
	case strings.ContainsAny(s, "\r\n"):
		return "a line break in the credential", "one line"
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "a control character in the credential", "text without control characters"
	case strings.TrimSpace(s) != s:
		return "white space at the start or end of the credential", "the credential without it"
	case len(s) < minValue:
		return fmt.Sprintf("a credential of %d bytes", len(s)),
			fmt.Sprintf("at least %d: shorter ones appear in responses by chance", minValue)
	case len(s) > maxValue:
		return fmt.Sprintf("a credential of %d bytes", len(s)), fmt.Sprintf("at most %d", maxValue)
	}
	return "", ""
}

// reference matches a variable instead of a credential: of a shell, Windows, a template or a program.
var reference = regexp.MustCompile(
	`^(?:\$\{[A-Za-z_]\w*(?::?[-?][^}]*)?\}|\$[A-Z_][A-Z0-9_]*|%[A-Za-z_]\w*%|` +
		`\$?\{\{.*\}\}|(?:process\.env\.|\$?env:)\w+)$`)

// The mistake of a credential that is a reference.
const (
	foundReference = "the name of a variable, which CodeForge does not replace here"
	wantReference  = `the credential itself, or {"file": "..."}; in embedded mode {"env": "NAME"} too`
)

// placeholderReason returns why a credential looks like a placeholder, or "".
func placeholderReason(s string) string {
	examples := []string{"your_", "your-", "put_yours", "changeme", "replace_me", "replace-me"}
	lower := strings.ToLower(s)
	scheme, _, two := strings.Cut(lower, " ")
	switch {
	case two && slices.Contains([]string{"bearer", "basic", "token", "apikey"}, scheme):
		return fmt.Sprintf("a credential with the scheme %q in front, which code adds itself", scheme)
	case strings.HasSuffix(s, "..."), strings.HasPrefix(s, "<") && strings.HasSuffix(s, ">"),
		slices.ContainsFunc(examples, func(e string) bool { return strings.Contains(lower, e) }):
		return "a placeholder, not a credential"
	// Such a text would be scrubbed from many responses.
	case strings.Trim(s, s[:1]) == "":
		return "one character repeated"
	case len(s) < 16 && strings.Trim(lower, "abcdefghijklmnopqrstuvwxyz") == "",
		len(s) < 12 && strings.Trim(s, "0123456789") == "":
		return "a word or number, which would be replaced by the token name wherever a response contains it"
	}
	return ""
}

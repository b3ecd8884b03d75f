package swap

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"

	"github.com/codeforge-mcp/codeforge/catalog"
)

var (
	inAuthorization    = spot{catalog.SurfaceHeader, "Authorization", false}
	wholeAuthorization = spot{catalog.SurfaceHeader, "Authorization", true}
)

// basic swaps the user, the password, or both where one name stands for the pair. Without a swap the value stays as it
// is; with one it is rewritten, and has exactly one colon (RFC 7617).
func (x *rewrite) basic(coded string) (string, error) {
	plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(coded, "="))
	if err != nil {
		return coded, nil
	}
	user, password, colon := strings.Cut(string(plain), ":")
	newUser, swappedUser := x.basicPart(user)
	newPassword, swappedPassword := "", false
	if colon {
		newPassword, swappedPassword = x.basicPart(password)
	}
	if !swappedUser && !swappedPassword {
		return coded, nil
	}
	text := newUser
	if colon {
		text += ":" + newPassword
	}
	divided := !colon || !strings.Contains(newUser, ":") && (swappedPassword || !strings.Contains(password, ":"))
	//defence:one-reading
	if !divided || !utf8.Valid(plain) || strings.ContainsFunc(string(plain), isControl) {
		return "", errBasic
	}
	return base64.StdEncoding.EncodeToString([]byte(text)), nil
}

// basicPart returns a user or a password after swapping.
func (x *rewrite) basicPart(token string) (string, bool) {
	if x.s.byText[token] == "" {
		x.reportNames(token, CodeInside, inAuthorization)
		return token, false
	}
	if v, ok := x.use(x.s.byText[token], wholeAuthorization); ok {
		return v, true
	}
	return token, false
}

func isControl(r rune) bool { return r < ' ' || 0x7f <= r && r < 0xA0 }

// parameters swaps whole values of key=value parameters, quoted or not. It swaps only in a list by RFC 9110, section
// 11.2, with the characters of base64 and of addresses allowed in unquoted values too.
func (x *rewrite) parameters(value string) (string, error) {
	var out strings.Builder
	swapped := false
	rest := value
	for rest != "" {
		eq := strings.IndexByte(rest, '=')
		if eq < 0 {
			break
		}
		out.WriteString(rest[:eq+1])
		x.reportNames(rest[:eq], CodeInside, inAuthorization)
		rest = rest[eq+1:]
		n, text, quoted := parameter(rest)
		v, ok := "", false
		if x.s.byText[text] != "" {
			v, ok = x.use(x.s.byText[text], wholeAuthorization)
		} else {
			x.reportNames(rest[:n], CodeInside, inAuthorization)
		}
		if ok {
			out.WriteString(renderParameter(v, quoted))
			swapped = true
		} else {
			out.WriteString(rest[:n])
		}
		rest = rest[n:]
	}
	x.reportNames(rest, CodeInside, inAuthorization)
	out.WriteString(rest)
	//defence:one-reading
	if swapped && !isParameters(value) {
		return "", errParameters
	}
	return out.String(), nil
}

// parameter reads one value: its length as written, and its content.
func parameter(s string) (n int, text string, quoted bool) {
	if !strings.HasPrefix(s, `"`) {
		n = strings.IndexAny(s, ", ;\t")
		if n < 0 {
			n = len(s)
		}
		return n, s[:n], false
	}
	for n = 1; n < len(s) && s[n] != '"'; n++ {
		if s[n] == '\\' {
			n++
		}
	}
	if n >= len(s) {
		return len(s), "", true
	}
	return n + 1, s[1:n], true
}

// isParameters reports whether a value is an optional scheme and a list of parameters, each once, that all parsers
// split in the same way.
func isParameters(s string) bool {
	if scheme, rest, ok := strings.Cut(strings.TrimSpace(s), " "); ok && isToken(scheme) {
		s = rest
	}
	seen := map[string]bool{}
	for s = strings.Trim(s, " \t"); ; s = strings.Trim(s[1:], " \t") {
		key, rest, ok := strings.Cut(s, "=")
		key = strings.ToLower(key)
		if !ok || !isToken(key) || strings.Contains(key, "*") || strings.Contains(key, "'") || seen[key] {
			return false
		}
		seen[key] = true
		n, text, quoted := parameter(rest)
		switch {
		case quoted && (n < 2 || rest[n-1] != '"' || strings.Contains(text, `\`)):
			return false
		case !quoted && (text == "" || strings.Trim(text, bareParameter) != ""):
			return false
		}
		if s = strings.Trim(rest[n:], " \t"); s == "" {
			return true
		}
		if s[0] != ',' {
			return false
		}
	}
}

const (
	alphanumeric  = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	bareParameter = alphanumeric + "-._~+/=:@!#$%&*^|"
)

// isToken reports whether a word is a token (RFC 9110, 5.6.2).
func isToken(s string) bool { return s != "" && strings.Trim(s, alphanumeric+"!#$%&'*+-.^_`|~") == "" }

// renderParameter writes a value, in quotes if it had them or needs them.
func renderParameter(v string, quoted bool) string {
	if !quoted && v != "" && strings.Trim(v, bareParameter) == "" {
		return v
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v) + `"`
}

package swap

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/codeforge-mcp/codeforge/catalog"
)

var (
	inAuthorization    = requestSpot{catalog.SurfaceHeader, "Authorization", false}
	wholeAuthorization = requestSpot{catalog.SurfaceHeader, "Authorization", true}
)

// swapBasic swaps the user, the password, or both if one token name stands for the pair. Without a swap it returns
// coded unchanged. It refuses a swap if the user, or a password that the code wrote, contains a colon (RFC 7617).
func (x *requestRewrite) swapBasic(coded string) (string, error) {
	plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(coded, "="))
	if err != nil {
		return coded, nil
	}
	user, password, colon := strings.Cut(string(plain), ":")
	newUser, swappedUser := x.swapBasicPart(user)
	newPassword, swappedPassword := "", false
	if colon {
		newPassword, swappedPassword = x.swapBasicPart(password)
	}
	if !swappedUser && !swappedPassword {
		return coded, nil
	}
	text := newUser
	if colon {
		text += ":" + newPassword
	}
	// With another colon, servers could disagree about the border between user and password (RFC 7617, section 2). Only a
	// swapped password may contain one.
	divided := !colon || !strings.Contains(newUser, ":") && (swappedPassword || !strings.Contains(password, ":"))
	//defence:one-reading
	if !divided || !utf8.Valid(plain) || strings.ContainsFunc(string(plain), isControl) {
		return "", errBasic
	}
	return base64.StdEncoding.EncodeToString([]byte(text)), nil
}

// swapBasicPart returns a user or a password after swapping, and whether it swapped.
func (x *requestRewrite) swapBasicPart(token string) (string, bool) {
	if x.s.byText[token] == "" {
		x.reportNames(token, CodeInside, inAuthorization)
		return token, false
	}
	if v, ok := x.useName(x.s.byText[token], wholeAuthorization); ok {
		return v, true
	}
	return token, false
}

func isControl(r rune) bool { return r < ' ' || 0x7f <= r && r < 0xA0 }

// swapParameters swaps whole values of key=value parameters, quoted or not. It swaps only in a list that follows RFC
// 9110, section 11.2. Unquoted values may also contain the characters of base64 and of addresses.
func (x *requestRewrite) swapParameters(value string) (string, error) {
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
		n, text, quoted := readParameter(rest)
		v, ok := "", false
		if x.s.byText[text] != "" {
			v, ok = x.useName(x.s.byText[text], wholeAuthorization)
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
	// The list is checked as the code wrote it. A swapped value cannot break the list, because renderParameter quotes it.
	//defence:one-reading
	if swapped && !isParameterList(value) {
		return "", errParameters
	}
	return out.String(), nil
}

// readParameter reads one value. It returns the length as written and the content without quotes.
func readParameter(s string) (n int, text string, quoted bool) {
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

// isParameterList reports whether s is an optional scheme and a list of parameters that all parsers split in the same
// way. Each parameter may occur once.
func isParameterList(s string) bool {
	if scheme, rest, ok := strings.Cut(strings.TrimSpace(s), " "); ok && httpguts.ValidHeaderFieldName(scheme) {
		s = rest
	}
	seen := map[string]bool{}
	for s = strings.Trim(s, " \t"); ; s = strings.Trim(s[1:], " \t") {
		key, rest, ok := strings.Cut(s, "=")
		key = strings.ToLower(key)
		// An asterisk or an apostrophe marks an extended value (RFC 8187), which some parsers decode by its charset.
		if !ok || !httpguts.ValidHeaderFieldName(key) || strings.ContainsAny(key, "*'") || seen[key] {
			return false
		}
		seen[key] = true
		n, text, quoted := readParameter(rest)
		switch {
		// Parsers disagree on a backslash in quotes, so no escape may occur.
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

// renderParameter writes a value, in quotes if it had them or needs them.
func renderParameter(v string, quoted bool) string {
	if !quoted && v != "" && strings.Trim(v, bareParameter) == "" {
		return v
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v) + `"`
}

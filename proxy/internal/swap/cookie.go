package swap

import (
	"strings"

	"github.com/codeforge-mcp/codeforge/catalog"
)

// swapSinkHeader swaps token names that are whole values of declared cookies. Names elsewhere in sink headers stay.
func (x *requestRewrite) swapSinkHeader(header, value string) (string, error) {
	sink := requestSpot{kind: catalog.SurfaceHeader, field: header}
	if header != "Cookie" {
		x.reportNames(value, CodeSink, sink)
		return value, nil
	}
	pairs := strings.Split(value, ";")
	isSwapped := false
	for i, pair := range pairs {
		name, text, _ := strings.Cut(pair, "=")
		token := x.s.byText[strings.Trim(text, " \t")]
		if token == "" {
			x.reportNames(pair, CodeSink, sink)
			continue
		}
		x.reportNames(name, CodeSink, sink)
		v, ok := x.useName(token, requestSpot{catalog.SurfaceCookie, strings.Trim(name, " \t"), true})
		if !ok {
			continue
		}
		// A value with a semicolon would continue in another cookie.
		//defence:one-reading
		if !isCookieValue(v) {
			return "", errCookieValue
		}
		pairs[i], isSwapped = name+"="+v, true
	}
	// The list is checked as the code wrote it.
	//defence:one-reading
	if isSwapped && !isCookieList(value) {
		return "", errCookies
	}
	return strings.Join(pairs, ";"), nil
}

// isCookieList reports whether all servers split a Cookie header into the same pairs (RFC 6265, section 4.2.1). Servers
// that follow RFC 2965 also split at commas, read semicolons inside of quotes, and give names with $ a meaning. PHP
// reads "a.b" and "a_b" as one name.
func isCookieList(value string) bool {
	names := map[string]bool{}
	for pair := range strings.SplitSeq(value, ";") {
		name, text, ok := strings.Cut(strings.Trim(pair, " \t"), "=")
		if !ok || name == "" || strings.Trim(name, cookieName) != "" || !isCookieValue(text) ||
			names[catalog.FoldHeader(name)] {
			return false
		}
		names[catalog.FoldHeader(name)] = true
	}
	return true
}

// cookieName has the characters of a token (RFC 9110, section 5.6.2) except $ and %, which some servers interpret.
const cookieName = alphanumeric + "-._~!#&'*+^`|"

// isCookieValue reports whether a text has only the characters of a cookie's value (RFC 6265, section 4.1.1).
func isCookieValue(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune("\",;\\", r)
	})
}

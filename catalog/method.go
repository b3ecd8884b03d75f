package catalog

import (
	"errors"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/typo"
)

// maxMethod bounds a method's name, in bytes.
const maxMethod = 32

// knownMethods are those in use, the ordinary ones first; something close to one is taken for a typing mistake.
func knownMethods() []string {
	return []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT",
		"QUERY", "SEARCH", "REPORT", "PROPFIND", "PROPPATCH", "MKCOL", "MKCALENDAR", "COPY", "MOVE", "LOCK", "UNLOCK",
		"LINK", "UNLINK", "BIND", "ACL", "CHECKIN", "CHECKOUT", "MERGE", "PURGE", "LIST",
		"SUBSCRIBE", "UNSUBSCRIBE", "NOTIFY"}
}

// parseMethod normalises a method to upper case. Methods are tokens (RFC 9110, section 9.1).
func parseMethod(s string) (string, error) {
	switch {
	case s == "":
		return "", errors.New("empty")
	case !isToken(s) || len(s) > maxMethod:
		return "", errors.New("not a method")
	}
	return strings.ToUpper(s), nil
}

// nearMethod is the known method that is one typing mistake away from m, or nothing. A mistake in restricted_methods
// would leave the method open.
func nearMethod(m string) string {
	for _, known := range knownMethods() {
		if typo.Distance(m, known, 2) == 1 {
			return known
		}
	}
	return ""
}

package catalog

import (
	"errors"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/typo"
)

// maxMethod bounds the name of a method, in bytes.
const maxMethod = 32

// knownMethods lists the methods in use, the common ones first. A name close to one counts as a typing mistake.
func knownMethods() []string {
	return []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT",
		"QUERY", "SEARCH", "REPORT", "PROPFIND", "PROPPATCH", "MKCOL", "MKCALENDAR", "COPY", "MOVE", "LOCK", "UNLOCK",
		"LINK", "UNLINK", "BIND", "ACL", "CHECKIN", "CHECKOUT", "MERGE", "PURGE", "LIST",
		"SUBSCRIBE", "UNSUBSCRIBE", "NOTIFY"}
}

// parseMethod converts a method to upper case. Methods are tokens (RFC 9110, section 9.1).
func parseMethod(s string) (string, error) {
	switch {
	case s == "":
		return "", errors.New("empty")
	// RFC 9110, section 9.1: a method is a token.
	case !isToken(s) || len(s) > maxMethod:
		return "", errors.New("not a method")
	}
	return strings.ToUpper(s), nil
}

// nearMethod returns the known method that is one typing mistake away from an unknown one, or "". A mistake in
// restricted_methods would leave the method open.
func nearMethod(m string) string {
	return typo.NearestOf(m, 1, knownMethods())
}

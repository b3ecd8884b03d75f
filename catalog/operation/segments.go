package operation

import (
	"net/url"
	"strings"
)

// Segment is a part of a path between two slashes.
type Segment struct {
	// Text is the decoded segment.
	Text string
	// Plain means that only bytes that need an escape are escaped. A server that compares undecoded paths then reads the
	// same segment.
	Plain bool
}

// SplitSegments returns the segments of a path as sent: escaped and without a query. A path that ends with a slash has
// an empty last segment. It returns false for a path that servers may read in different ways. Examples are empty
// segments, dot segments, escaped separators, escapes of escapes, and parameters after a semicolon.
func SplitSegments(path string) ([]Segment, bool) {
	list, ok := splitPath(path)
	if !ok {
		return nil, false
	}
	out := make([]Segment, len(list))
	for i, s := range list {
		if isSimple(s) {
			out[i] = Segment{s, true}
			continue
		}
		once, err := url.PathUnescape(s)
		if err != nil || strings.ContainsAny(once, "%?#;") {
			return nil, false
		}
		out[i] = Segment{once, s == once || isMinimallyEscaped(s, once)}
	}
	return out, true
}

// isSimple reports whether a segment has only letters, digits, - and _, as most have. Every server reads such a segment
// in the same way.
func isSimple(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// isMinimallyEscaped reports whether only those bytes of a segment are escaped that must be: bytes that RFC 3986 does
// not allow in a segment, and bytes beyond ASCII.
func isMinimallyEscaped(s, decoded string) bool {
	at := 0
	for i := range len(decoded) {
		if s[at] != '%' {
			at++
			continue
		}
		c := decoded[i]
		if 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("-._~!$&'()*+,;=:@", c) >= 0 {
			return false
		}
		at += 3
	}
	return true
}

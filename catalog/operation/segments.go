package operation

import (
	"net/url"
	"strings"
)

// Segment is a part of a path between two slashes.
type Segment struct {
	// Text is the segment, decoded.
	Text string
	// Plain means that nothing is escaped which needs no escape: a server that compares paths as they are sent reads
	// the same.
	Plain bool
}

// Segments are the segments of a path as it is sent, escaped and without a query; a path that ends with a slash has an
// empty last one. It is false for a path that servers may read in different ways: one with empty segments, steps to
// other folders, escaped separators, escapes of escapes, or parameters behind a semicolon.
func Segments(path string) ([]Segment, bool) {
	list, ok := segments(path)
	if !ok {
		return nil, false
	}
	out := make([]Segment, len(list))
	for i, s := range list {
		if simple(s) {
			out[i] = Segment{s, true}
			continue
		}
		once, err := url.PathUnescape(s)
		if err != nil || strings.ContainsAny(once, "%?#;") {
			return nil, false
		}
		out[i] = Segment{once, s == once || needed(s, once)}
	}
	return out, true
}

// simple reports whether a segment consists of letters, digits, - and _ alone, as most do: everybody reads it as it is.
func simple(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// needed reports whether only those bytes of a segment are escaped that must be: those that RFC 3986 does not have in a
// segment, and those beyond ASCII.
func needed(s, decoded string) bool {
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

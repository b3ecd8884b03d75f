package operation

import (
	"net/url"
	"strings"
)

// Segments are the decoded segments of a path as it is sent, escaped and without a query; a path that ends with a slash
// has an empty last one. It is false for a path that servers may read in different ways: one with empty segments, steps
// to other folders, escaped separators, escapes of escapes, or parameters behind a semicolon.
func Segments(path string) ([]string, bool) {
	list, ok := segments(path)
	if !ok {
		return nil, false
	}
	for i, s := range list {
		once, err := url.PathUnescape(s)
		if err != nil || strings.ContainsAny(once, "%?#;") {
			return nil, false
		}
		list[i] = once
	}
	return list, true
}

package approval

import (
	"encoding/json"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

var (
	// hollowText matches the text that code writes for a value that it does not have.
	hollowText = regexp.MustCompile(`(?:^|[^0-9A-Za-z_$])(?:undefined|NaN)(?:$|[^0-9A-Za-z_$])|\[object Object\]`)
	// plannedText matches the answer to a step, inside the text of a later step.
	plannedText = regexp.MustCompile(`\bplanned\b["'\\]*\s*[:=]\s*([0-9]{1,4})\b`)
	// plannedValue matches the value of a field of that answer.
	plannedValue = regexp.MustCompile(`\bplanned:([0-9]{1,4})\b`)
)

// findDependency reports whether a step contains a placeholder for a value that an earlier step would have answered. on
// is the number of the earlier step, or 0 if it is unknown. An upstream can make code write a placeholder. Then the
// plan ends too early, but never too late.
func findDependency(s Step) (on int, is bool) {
	texts := []string{s.URL.RawQuery, s.Shown.Body}
	if plain, err := url.QueryUnescape(s.URL.RawQuery); err == nil {
		texts = append(texts, plain)
	}
	for _, segment := range strings.Split(s.URL.EscapedPath(), "/") {
		plain, err := url.PathUnescape(segment)
		if err != nil {
			plain = segment
		}
		switch plain {
		// JavaScript and Python write these for a missing id in a path.
		case "null", "None":
			return 0, true
		}
		texts = append(texts, plain)
	}
	if strings.Contains(s.Shown.Body, "null/") {
		return 0, true
	}
	// The placeholder may be escaped as in a form.
	if form, err := url.QueryUnescape(s.Shown.Body); err == nil {
		texts = append(texts, form)
	}
	for _, list := range s.Header {
		texts = append(texts, list...)
	}
	for _, text := range texts {
		if strings.Contains(text, "planned") {
			if m := plannedText.FindStringSubmatch(text); m != nil {
				on, _ = strconv.Atoi(m[1]) // four digits
				return on, true
			}
		}
		if isHollow(text) {
			return 0, true
		}
	}
	return 0, hasEscapedMarker(s.Shown.Body)
}

// findReadDependency returns the number of the step whose answer a read names in its URL, or 0.
func findReadDependency(u *url.URL) (on int) {
	query, err := url.QueryUnescape(u.RawQuery)
	if m := plannedValue.FindStringSubmatch(u.Path + "?" + query); err == nil && m != nil {
		on, _ = strconv.Atoi(m[1]) // four digits
	}
	return on
}

// hasEscapedMarker reports whether a JSON string contains a placeholder after its escapes are removed.
func hasEscapedMarker(body string) bool {
	var v any
	if !strings.Contains(body, `\u`) || json.Unmarshal([]byte(body), &v) != nil {
		return false
	}
	plain, err := json.Marshal(v)
	return err == nil && isHollow(string(plain))
}

// isHollow reports whether a text contains a placeholder.
func isHollow(text string) bool {
	// Contains is faster than the expression, and most texts contain no such word.
	for _, word := range []string{"undefined", "NaN", "[object Object]"} {
		if strings.Contains(text, word) {
			return hollowText.MatchString(text)
		}
	}
	return false
}

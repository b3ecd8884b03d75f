package plan

import (
	"encoding/json"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

var (
	// hollow is what code writes where a value is that it does not have.
	hollow = regexp.MustCompile(`(?:^|[^0-9A-Za-z_$])(?:undefined|NaN)(?:$|[^0-9A-Za-z_$])|\[object Object\]`)
	// planned is the answer to a step, in what a later one carries.
	planned = regexp.MustCompile(`\bplanned\b["'\\]*\s*[:=]\s*([0-9]{1,4})\b`)
)

// depends reports whether a step carries what is not a value, but stands for one that an earlier step would have
// answered, and perhaps which one: 0 if that cannot be told. Upstreams can make code write such a thing: then the plan
// ends too early, and never too late.
func depends(s Step) (on int, is bool) {
	texts := []string{s.URL.RawQuery, string(s.Body)}
	if plain, err := url.QueryUnescape(s.URL.RawQuery); err == nil {
		texts = append(texts, plain)
	}
	for _, segment := range strings.Split(s.URL.EscapedPath(), "/") {
		plain, err := url.PathUnescape(segment)
		if err != nil {
			plain = segment
		}
		switch plain {
		case "null", "None":
			return 0, true
		}
		texts = append(texts, plain)
	}
	if strings.Contains(string(s.Body), "null/") {
		return 0, true
	}
	if form, err := url.QueryUnescape(string(s.Body)); err == nil {
		texts = append(texts, form)
	}
	for _, list := range s.Header {
		texts = append(texts, list...)
	}
	for _, text := range texts {
		if strings.Contains(text, "planned") {
			if m := planned.FindStringSubmatch(text); m != nil {
				on, _ = strconv.Atoi(m[1]) // four digits
				return on, true
			}
		}
		if isHollow(text) {
			return 0, true
		}
	}
	return 0, escapedMarker(s.Body)
}

// escapedMarker reports whether a string of JSON is such a thing once its escapes are read.
func escapedMarker(body []byte) bool {
	var v any
	if !strings.Contains(string(body), `\u`) || json.Unmarshal(body, &v) != nil {
		return false
	}
	plain, err := json.Marshal(v)
	return err == nil && isHollow(string(plain))
}

// isHollow reports whether a text has one of these words. Most have not: that is found out faster.
func isHollow(text string) bool {
	for _, word := range []string{"undefined", "NaN", "[object Object]"} {
		if strings.Contains(text, word) {
			return hollow.MatchString(text)
		}
	}
	return false
}
